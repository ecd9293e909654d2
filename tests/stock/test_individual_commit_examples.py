"""The examples of individual commits with stock clients: what was finished is not begun again after kill -9.

Without a proxy the text rests in Kafka's metadata of the committed offset, and each partition has one owner.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Message, Producer
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.offsets.commit_text import parse_commit_text
from kafka_share_proxy.offsets.ranges import OffsetRanges

from tests.support.java_programs import java_program
from tests.support.raw import LIMIT_S, Raw, until

pytestmark = pytest.mark.broker

EXAMPLES = Path(__file__).resolve().parents[2] / "deploy" / "examples"
PARTITIONS = 2
RECORDS = 240
TRANSACTION = 20
"""Records of one transaction; after each there is a marker, which no client delivers."""
ENDLESS = {0: (0, 41, 42), 1: (7, 60, 119)}
"""Partition -> its records, by number, whose work takes for ever; fewer than an example has workers."""


class Produced(NamedTuple):
    topic: str
    offsets: dict[int, list[int]]
    """Offsets of the records of each partition."""

    def endless(self, partition: int) -> list[int]:
        """The offsets whose work never ends."""
        return [self.offsets[partition][number] for number in ENDLESS[partition]]

    def unfinished(self, partition: int) -> list[tuple[int, int]]:
        """Return what can not be done while that work continues: those records with the markers before them."""
        offsets = self.offsets[partition]
        spans = [(offsets[n - 1] + 1 if n else 0, offsets[n] + 1) for n in ENDLESS[partition]]
        return list(OffsetRanges(spans))


@pytest.fixture
def produced(kafka_39: Cluster, fresh: Callable[[str], str]) -> Produced:
    """Small transactions, so that there are markers between the records."""
    topic, offsets = fresh("topic"), {partition: [] for partition in range(PARTITIONS)}
    with Raw(kafka_39.bootstrap) as raw:
        raw.create_topic(topic, PARTITIONS)

    def delivered(error: object, message: Message) -> None:
        assert error is None
        offsets[message.partition()].append(message.offset())

    producer = Producer({"bootstrap.servers": kafka_39.bootstrap, "transactional.id": fresh("id")})
    producer.init_transactions(LIMIT_S)
    for begin in range(0, RECORDS, TRANSACTION):
        producer.begin_transaction()
        for each in range(begin, begin + TRANSACTION):
            number, partition = divmod(each, PARTITIONS)
            seconds = "1e9" if number in ENDLESS[partition] else f"0.0{each % 5}"
            producer.produce(topic, seconds, partition=partition, on_delivery=delivered)
        producer.commit_transaction(LIMIT_S)
    return Produced(topic, offsets)


def command(example: str) -> list[str]:
    """How to run it, without its arguments."""
    if not example.endswith(".java"):
        return [sys.executable, str(EXAMPLES / example)]
    return java_program("IndividualCommits", "4.3.0", source=EXAMPLES / example)


def committed(raw: Raw, group: str, topic: str) -> dict[int, tuple[int, str]]:
    """Partition -> offset and metadata, as the broker has them."""
    expected = [{"name": topic, "partition_indexes": [*range(PARTITIONS)]}]
    response = raw.send_request("OffsetFetch", 5, on=raw.on_coordinator(group), group_id=group, topics=expected)
    if response.error_code:  # the group's coordinator is only becoming one
        return dict.fromkeys(range(PARTITIONS), (-1, ""))
    partitions = response.topics[0].partitions
    assert [each.error_code for each in partitions] == [0] * PARTITIONS
    return {each.partition_index: (each.committed_offset, each.metadata) for each in partitions}


def left(state: tuple[int, str], end: int) -> list[tuple[int, int]] | None:
    """Return what is not done before an offset; None if nothing is committed."""
    mark, metadata = state
    return None if mark < 0 else list(parse_commit_text(metadata).ranges.gaps(mark, end))


def started_offsets(log: Path, partition: int) -> list[int]:
    """The offsets of the records that the example began with."""
    lines = [line.split() for line in log.read_text().splitlines() if line.startswith("begin ")]
    return sorted(int(offset) for _, number, offset in lines if int(number) == partition)


@pytest.mark.parametrize(
    "example",
    [
        "individual_commits_confluent.py",
        "individual_commits_kafka_python.py",
        "individual_commits_aiokafka.py",
        "IndividualCommits.java",
    ],
)
def test_only_what_was_not_finished_is_begun_again(
    kafka_39: Cluster, produced: Produced, fresh: Callable[[str], str], tmp_path: Path, example: str
) -> None:
    """All but six records after those six are finished; after kill -9 only the six are processed again."""
    group, bootstrap = fresh("group"), kafka_39.bootstrap
    ends = {partition: offsets[-1] + 1 for partition, offsets in produced.offsets.items()}
    arguments = [*command(example), bootstrap, produced.topic, group]
    logs = [tmp_path / name for name in ("first", "second")]
    with Raw(bootstrap) as raw:

        def undone() -> dict[int, list[tuple[int, int]] | None]:
            return {p: left(state, ends[p]) for p, state in committed(raw, group, produced.topic).items()}

        first = Child(arguments, logs[0])
        try:
            endless = {partition: produced.unfinished(partition) for partition in ENDLESS}
            until(lambda: undone() == endless, f"all others are committed: {first.log}")
        finally:
            first.kill()
        second = Child([*arguments, "0"], logs[1])
        try:
            until(lambda: undone() == {0: [], 1: []}, f"all are committed: {second.log}")
            assert second.status is None
            assert second.stop() in (0, 128 + signal.SIGTERM)  # Java ends with the latter
        finally:
            second.kill()
        for partition, (mark, metadata) in committed(raw, group, produced.topic).items():
            assert mark - ends[partition] in (0, 1)  # after the last marker, if the client reports its position
            assert str(parse_commit_text(metadata)) == "ic/1;"
    for partition in ENDLESS:
        assert started_offsets(logs[0], partition) == produced.offsets[partition]
        assert started_offsets(logs[1], partition) == produced.endless(partition)
