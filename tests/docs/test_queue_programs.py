"""The worker of docs/queues.md in each language: order of keys, retries after a delay, dead letters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.front import Front

from tests.docs.test_share_group_programs import java
from tests.stock.test_dead_letters import fields, letters_in
from tests.support import documents, shell_examples
from tests.support.java_tools import tool
from tests.support.raw import Raw, until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(480)]

ORDERS = (("ann", "10"), ("bob", "-1"), ("ann", "unreadable"), ("bob", "20"), ("ann", "30"), ("cid", "40"))
"""Keys and values. The second is never processed."""


def python(text: str, folder: Path) -> list[str]:
    (folder / "worker.py").write_text(text)
    return [sys.executable, str(folder / "worker.py")]


PROGRAMS: dict[str, tuple[str, str, Callable[[str, Path], list[str]]]] = {
    "confluent-kafka": ("python", "ShareConsumer(", python),
    "trio": ("python", "open_share_consumer", python),
    "java": ("java", "KafkaShareConsumer", java),
}
"""Language, a part of the block, and the function that runs it, by client."""


@pytest.mark.parametrize("client", PROGRAMS)
def test_orders_are_processed_in_order_retried_and_written_as_dead_letters(
    proxy_39_quick: Front, fresh: Callable[[str], str], tmp_path: Path, client: str
) -> None:
    topic, group = fresh("topic"), fresh("group")
    own = {"proxy.example:19092": proxy_39_quick.bootstrap, "orders": topic, "jobs": group}
    language, part, command = PROGRAMS[client]
    text = documents.block(documents.QUEUES, language, part)
    for name, by in own.items():
        assert name in text
        text = text.replace(name, by)
    (setting,) = shell_examples.commands(documents.block(documents.QUEUES, "sh", "deadletterqueue"), own)
    tool(shell_examples.TOOLS[setting[0]], *setting[1:])
    with Raw(proxy_39_quick.bootstrap) as raw:
        raw.create_topic(topic)
        raw.create_topic(f"dlq.{topic}", 2)
        raw.configure_group(group, {"share.auto.offset.reset": "earliest"})
        producer = Producer({"bootstrap.servers": proxy_39_quick.bootstrap})
        for key, value in ORDERS:
            producer.produce(topic, value, key)
        assert producer.flush(30) == 0
        worker = Child(command(text, tmp_path), tmp_path / "worker.log")
        try:
            until(lambda: raw.share_start_offset(group, topic) == len(ORDERS), f"all are settled: {worker.log}")
        finally:
            worker.kill()
    lines = [line for line in worker.log.read_text().splitlines() if line[:3] in ("ann", "bob", "cid")]
    assert sorted(lines) == ["ann 10", "ann 30", "bob 20", "cid 40"]
    assert lines.index("ann 10") < lines.index("ann 30")
    assert lines[-1] == "bob 20", "it waits for the retries of the order before"
    letters = {fields(each)["offset"]: fields(each) for each in letters_in(proxy_39_quick.bootstrap, f"dlq.{topic}", 2)}
    assert {offset: each["delivery.count"] for offset, each in letters.items()} == {"1": "3", "2": "1"}
