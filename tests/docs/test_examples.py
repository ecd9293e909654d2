"""Examples of the pages that are not whole programs: commands, settings, snippets."""

from __future__ import annotations

import json
import re
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
import yaml
from confluent_kafka import Consumer, TopicPartition
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.conformance.cluster_thread import running_cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.values import TopicPartition as KafkaPartition

from tests.client.cluster import cluster
from tests.consumer.world import FakeKafka
from tests.support import documents, shell_examples
from tests.support.java_tools import tool
from tests.support.raw import Raw

Fresh = Callable[[str], str]
GROUP_RESOURCE = 32
COMMANDS_S = 120
POLLS_MAX = 60
PARTITIONS = [KafkaPartition("orders", number) for number in range(2)]
PARTITION = PARTITIONS[0]
DELAYS = 3
"""Polls that delay the revocation before the work is finished."""


class FakeRecord(NamedTuple):
    offset: int


# Settings of groups


@pytest.mark.broker
@pytest.mark.parametrize(
    ("document", "containing"),
    [(documents.README, "share.ordering=key"), (documents.QUEUES, "share.redelivery.delay.max.ms")],
    ids=["README.md", "queues.md"],
)
def test_the_settings_of_a_queue_are_set_with_the_stock_tool(
    proxy_39: Front, fresh: Fresh, document: Path, containing: str
) -> None:
    group = fresh("jobs")
    text = documents.block(document, "sh", containing)
    (words,) = shell_examples.commands(text, {"proxy.example:19092": proxy_39.bootstrap, "jobs": group})
    assert "Completed updating config" in tool(shell_examples.TOOLS[words[0]], *words[1:])
    with Raw(proxy_39.bootstrap) as raw:
        described = raw.describe(GROUP_RESOURCE, group, raw.on_coordinator(group))
    assert (described["share.ordering"], described["share.redelivery.delay.ms"]) == ("key", "1000")


@pytest.mark.broker
def test_a_consumer_subscribes_to_a_view_by_its_name(proxy_39: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    with Raw(proxy_39.bootstrap) as raw:
        raw.produce(raw.create_topic(topic, 1), [b"one", b"two"])
    (words,) = documents.blocks(documents.README, "python", "Views")
    settings = {"bootstrap.servers": proxy_39.bootstrap, "group.id": fresh("group"), "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    try:
        exec(compile(words.replace("orders", topic), "README.md", "exec"), {"consumer": consumer})
        values: set[bytes] = set()
        for _ in range(POLLS_MAX):
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                values.add(message.value() or b"")
            if len(values) == 2:
                break
    finally:
        consumer.close()
    assert values == {b"one", b"two"}


# Settings of the proxy


def test_the_settings_of_the_page_on_security_are_valid(tmp_path: Path) -> None:
    (text,) = documents.blocks(documents.SECURE, "yaml")
    password = tmp_path / "password"
    password.write_text("secret\n")
    config = Config.model_validate(yaml.safe_load(text.replace("/etc/ksp/password", str(password))))
    assert config.client_tls.on
    assert config.upstream.sasl.mechanism == "SCRAM-SHA-512"
    assert len(config.apis.denied) == 2


def test_the_settings_of_one_port_are_valid() -> None:
    (text,) = documents.blocks(documents.INSTALL, "yaml", "One port")
    config = Config.model_validate(yaml.safe_load(text))
    assert str(config.bootstrap_address) == "kafka.example:443"
    assert config.broker_names == "broker-{id}.kafka.example"
    assert [str(network) for network in config.proxy_protocol.clients] == ["10.1.0.0/16"]


# Individual commits


@pytest.mark.broker
def test_a_commit_by_text_moves_the_committed_offset_and_keeps_the_ranges(proxy_39: Front, fresh: Fresh) -> None:
    """Each line of the example, with a stock client."""
    topic = fresh("topic")
    text = documents.block(documents.INDIVIDUAL_COMMITS, "text", "committed()")
    steps = re.findall(
        r'^(?:commit offset (\d+) with metadata +(\S+)|committed\(\) +(\d+), "([^"]*)")', text, re.MULTILINE
    )
    assert [bool(step[0]) for step in steps] == [True, False, True, False]
    with Raw(proxy_39.bootstrap) as raw:
        raw.produce(raw.create_topic(topic, 1), [b"value"] * 60)
    consumer = Consumer({"bootstrap.servers": proxy_39.bootstrap, "group.id": fresh("group")})
    try:
        for offset, metadata, committed, ranges in steps:
            if offset:
                consumer.commit(offsets=[TopicPartition(topic, 0, int(offset), metadata=metadata)], asynchronous=False)
                continue
            (committed_offset,) = consumer.committed([TopicPartition(topic, 0)], 30)
            assert (committed_offset.offset, committed_offset.metadata) == (int(committed), ranges)
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("offset", "processed", "committed"),
    [(43, [43], (44, "ic/1;45-47")), (45, [], (48, "ic/1;"))],
    ids=["unfinished", "finished"],
)
def test_the_ledger_skips_finished_records_and_returns_the_commit(
    offset: int, processed: list[int], committed: tuple[int, str]
) -> None:
    code = documents.block(documents.INDIVIDUAL_COMMITS, "python", "OffsetLedger")
    processed_offsets: list[int] = []
    commits: list[tuple[int, str]] = []
    names: dict[str, Any] = {"offset": 43, "metadata": "ic/1;45-47", "record": FakeRecord(offset)}
    names |= {
        "process": lambda record: processed_offsets.append(record.offset),
        "commit": lambda *values: commits.append(values),
    }
    exec(compile(code, "individual-commits.md", "exec"), names)
    assert (processed_offsets, commits) == (processed, [committed])


def test_the_holes_have_the_fields_that_the_command_prints() -> None:
    """tests/stock/test_commits_command.py compares the command's own output."""
    shown = json.loads(documents.block(documents.INDIVIDUAL_COMMITS, "json", '"holes"'))
    assert shown.keys() == {"group", "holes"}
    assert [list(hole) for hole in shown["holes"]] == [["topic", "partition", "first", "last"]]


# The Trio clients


async def run_snippet(code: str, names: dict[str, Any]) -> None:
    """Run statements of a coroutine, until `names["ended"]` is set."""
    exec(compile("async def main():\n" + textwrap.indent(code, "    "), "snippet", "exec"), names)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(names["main"])
        await names["ended"].wait()
        nursery.cancel_scope.cancel()


async def test_the_snippet_of_the_readme_prints_the_records(
    autojump_clock: trio.testing.MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = FakeKafka(orders=1)
    ended = trio.Event()

    def printed(*values: Any) -> None:
        print(*values)
        if values[1] == 4:
            ended.set()

    async with cluster(kafka) as brokers:

        def opened(_bootstrap: str, **options: Any) -> Any:
            return brokers.consumer(auto_offset_reset="earliest", **options)

        kafka.produce(PARTITION, 5)
        code = documents.block(documents.README, "python", "async with open_consumer")
        with trio.fail_after(120):
            await run_snippet(code, {"open_consumer": opened, "print": printed, "ended": ended})
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [["0", str(n)] for n in range(5)]


class Noting:
    """A consumer, and the revocations that are delayed through it. After `DELAYS` nothing is busy any longer."""

    def __init__(self, opening: Any, busy: set[Any]) -> None:
        self._opening, self._busy = opening, busy
        self.delayed: list[Any] = []

    async def __aenter__(self) -> Noting:
        self._consumer = await self._opening.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._opening.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def delay_revoke(self, partitions: Any) -> bool:
        self.delayed.append(partitions)
        if len(self.delayed) == DELAYS:
            self._busy.clear()
        return bool(self._consumer.delay_revoke(partitions))


async def test_a_revocation_is_delayed_until_busy_partitions_are_finished(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A second member joins, and gets its partition once the first has finished it."""
    kafka = FakeKafka(orders=2)
    for each in PARTITIONS:
        kafka.produce(each, 10)
    ended, busy, lost = trio.Event(), set(PARTITIONS), []
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "assignors": ("cooperative-sticky",)}
    async with cluster(kafka) as brokers, trio.open_nursery() as nursery:

        async def second() -> None:
            await trio.sleep(5)
            async with brokers.consumer(group="billing", topics=["orders"], client_id="b", **options) as consumer:
                while not consumer.assignment:
                    await consumer.poll(1)
                ended.set()
                await trio.sleep_forever()

        first = Noting(brokers.consumer(group="billing", topics=["orders"], **options), busy)
        nursery.start_soon(second)
        names: dict[str, Any] = {"open_consumer": lambda _bootstrap, **_: first, "start": list, "abort": lost.extend}
        names |= {"ended": ended, "finished": lambda: None, "busy": busy}
        with trio.fail_after(300):
            await run_snippet(documents.block(documents.TRIO, "python", "delay_revoke"), names)
        nursery.cancel_scope.cancel()
    assert len(first.delayed) == DELAYS
    assert lost == []


# Conformance


def test_the_commands_of_the_page_run_the_suite_against_a_cluster(tmp_path: Path) -> None:
    text = documents.block(documents.CONFORMANCE, "sh", "--suite share-groups")
    with running_cluster() as kafka:
        own = {"localhost:9092": kafka.bootstrap}
        whole, renewals, listing = shell_examples.commands(text, own)
        printed = [
            run(tmp_path, [*shell_examples.runnable(whole), "--only", "metadata.*topics*"]),
            run(tmp_path, shell_examples.runnable(renewals)),
            run(tmp_path, shell_examples.runnable(listing)),
        ]
    assert "share-groups.renew" in printed[2]
    assert json.loads((tmp_path / "report.json").read_text())
    assert {"report.html", "report.xml"} <= {path.name for path in tmp_path.iterdir()}


def run(folder: Path, words: list[str]) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=COMMANDS_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_target_of_the_page_serves(tmp_path: Path) -> None:
    text = documents.block(documents.CONFORMANCE, "sh", "conformance target")
    (words,) = shell_examples.commands(text, {})
    with subprocess.Popen(
        [*shell_examples.runnable(words), "--until-stdin-closes"],
        cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as target:  # fmt: skip
        assert target.stdout is not None
        assert target.stdin is not None
        addresses = json.loads(target.stdout.readline())
        with Raw(addresses["bootstrap"]) as raw:
            topic = raw.topic("orders")
        target.stdin.close()
        assert target.wait(30) == 0
    assert topic is not None
    assert len(topic.leaders) == 3


# The commands of README.md and install.md
