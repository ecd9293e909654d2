"""The examples of README.md and docs/ do what they say."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.views.model import plans

from tests.support import documents
from tests.support.raw import Raw, until
from tests.support.view_group import committed


def program(document: Path, beginning: str, own: dict[str, str], file: Path) -> Path:
    """The only program of a document with that call in this file; its names are replaced by the test's own."""
    text = documents.block(document, "python", beginning)
    for name, by in own.items():
        assert name in text
        text = text.replace(name, by)
    file.write_text(text)
    return file


@pytest.mark.broker
def test_the_share_consumer_settles_what_it_gets(proxy_39: Front, fresh: Callable[[str], str], tmp_path: Path) -> None:
    topic, group = fresh("topic"), fresh("group")
    own = {"proxy.example:19092": proxy_39.bootstrap, '"workers"': f'"{group}"', "orders": topic}
    file = program(documents.README, "ShareConsumer(", own, tmp_path / "worker.py")
    with Raw(proxy_39.bootstrap) as raw:
        created = raw.create_topic(topic, 1)
        raw.configure_group(group, {"share.auto.offset.reset": "earliest"})
        raw.produce(created, [b"one", b"two", b"three"])
        worker = Child([sys.executable, str(file)], tmp_path / "worker.log")
        try:
            until(lambda: raw.share_start_offset(group, topic) == 3, f"all three are settled: {worker.log}")
        finally:
            worker.kill()


@pytest.mark.broker
def test_the_consumer_prints_what_there_is(kafka_39: Cluster, fresh: Callable[[str], str], tmp_path: Path) -> None:
    """With brokers alone; after Ctrl-C, it has committed and left the group."""
    topic, group = fresh("topic"), fresh("group")
    own = {"kafka-1:9092": kafka_39.bootstrap, '"billing"': f'"{group}"', "orders": topic}
    file = program(documents.TRIO, "async with open_consumer(\n", own, tmp_path / "consumer.py")
    with Raw(kafka_39.bootstrap) as raw:
        created = raw.create_topic(topic, 1)
        raw.produce(created, [b"one", b"two", b"three"])
        reader = Child([sys.executable, "-u", str(file)], tmp_path / "consumer.log")
        try:
            until(lambda: committed(raw, group, topic, [0]) == [3], f"all three are committed: {reader.log}")
            reader.signal(signal.SIGINT)
            reader.wait(30)
            described = raw.send_request("DescribeGroups", 5, on=raw.on_coordinator(group), groups=[group]).groups[0]
            assert described.members == []
        finally:
            reader.kill()
    printed = reader.log.read_text().splitlines()[:3]
    assert [line.split()[:2] + line.split()[-1:] for line in printed] == [
        ["0", str(offset), str(value)] for offset, value in enumerate((b"one", b"two", b"three"))
    ]


@pytest.mark.broker
def test_the_program_reads_a_view_that_does_not_exist_yet(
    proxy_39: Front, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    """Two processes of the program share the partition."""
    topic, group = fresh("topic"), fresh("group")
    own = {"proxy.example:19092": proxy_39.bootstrap, '"billing"': f'"{group}"', "orders": topic}
    file = program(documents.VIEWS, "Consumer(", own, tmp_path / "reader.py")
    with Raw(proxy_39.bootstrap) as raw:
        created = raw.create_topic(topic, 1)
        raw.produce(created, [b"one", b"two", b"three"])
    readers = [Child([sys.executable, "-u", str(file)], tmp_path / f"reader-{n}.log") for n in range(2)]

    def printed() -> set[str]:
        return {line for reader in readers for line in reader.log.read_text().splitlines()}

    try:
        until(lambda: len(printed()) >= 3, "all three are printed")
    finally:
        for reader in readers:
            reader.kill()
    assert {line.split(maxsplit=1)[1] for line in printed()} == {
        f"{offset} None {value!r}" for offset, value in enumerate((b"one", b"two", b"three"))
    }


def test_the_plan_is_one() -> None:
    (text,) = documents.blocks(documents.VIEWS, "json")
    plan = plans.read("hot1", text)
    assert plan.topic == json.loads(text)["topic"]
    assert plan.slots == 3
