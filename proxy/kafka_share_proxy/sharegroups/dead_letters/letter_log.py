"""Dead letters of one group, read from their topic in bounded batches, for commands."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafka_share_proxy.brokers import topic_log
from kafka_share_proxy.brokers.open_nodes import OpenNodes
from kafka_share_proxy.brokers.topic_log import EARLIEST, LATEST, READ_COMMITTED
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.sharegroups.dead_letters import letter_records
from kafka_share_proxy.sharegroups.dead_letters.letter_records import MESSAGES, letter_text
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost, error_name
from kafka_share_proxy.wire.records.fetched_records import fetched_records
from kafka_share_proxy.wire.records.records import Record
from kafka_share_proxy.wire.values import TopicPartition

READ_BYTES = 1 << 20
"""Bytes requested by one Fetch: the memory that a command needs."""
READ_WAIT_MS = 500
FIELDS = ("error", "topic", "partition", "offset", "deliveries")
"""Names of conditions."""


class BadCondition(ValueError):
    """A condition cannot be parsed. The text says how to write it."""


class StoredLetter(NamedTuple):
    """A dead letter, and where it is stored."""

    topic_partition: TopicPartition
    record: Record
    topic: str
    """Topic of the failed record; so are the following fields."""
    partition: int
    offset: int
    deliveries: int
    error: str

    @property
    def is_copied(self) -> bool:
        """True if the letter has key or value of the failed record."""
        return self.record.key is not None or self.record.value is not None


class Condition(NamedTuple):
    """`error=rejected`, `topic=orders`: a field of dead letters and its text."""

    name: str
    text: str

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Raises BadCondition."""
        name, separator, target = text.partition("=")
        if not separator or name not in FIELDS:
            raise BadCondition(f"{text}: write {'|'.join(FIELDS)}=TEXT, for example error=rejected")
        return cls(name, MESSAGES.get(target, target) if name == "error" else target)

    def holds(self, letter: StoredLetter) -> bool:
        return str(getattr(letter, self.name)) == self.text


@dataclass(slots=True)
class LetterBatch:
    """Records of one Fetch."""

    letters: list[StoredLetter]
    """Dead letters of the group."""
    next_offset: int


def letter_in(topic_partition: TopicPartition, record: Record, group: str) -> StoredLetter | None:
    """Return a record as a dead letter of the group. None if it is none."""
    headers = dict(record.headers)
    partition, offset, count = (
        letter_text(headers, name)
        for name in (letter_records.PARTITION, letter_records.OFFSET, letter_records.DELIVERY_COUNT)
    )
    topic = letter_text(headers, letter_records.TOPIC)
    is_letter = topic and partition.isdecimal() and offset.isdecimal()
    if letter_text(headers, letter_records.GROUP) != group or not is_letter:
        return None
    deliveries = int(count) if count.isdecimal() else 0
    error = letter_text(headers, letter_records.MESSAGE)
    return StoredLetter(topic_partition, record, topic, int(partition), int(offset), deliveries, error)


async def log_bounds(nodes: OpenNodes, topic_partition: TopicPartition) -> tuple[int, int]:
    """Return the first offset, and the last stable one. Raises ProxyError."""
    bounds: list[int] = []
    async with nodes.connection(await nodes.leader(topic_partition)) as opened:
        for timestamp in (EARLIEST, LATEST):
            entries = await topic_log.request_offsets(
                opened, topic_partition.topic, [topic_partition.partition], timestamp, READ_COMMITTED
            )
            _check(entries[0].error_code, topic_partition)
            bounds.append(int(entries[0].offset))
    return bounds[0], bounds[1]


async def letters_of(
    nodes: OpenNodes, topic_partition: TopicPartition, group: str, start: int, end: int, done: OffsetRanges
) -> AsyncGenerator[LetterBatch, None]:
    """Yield the dead letters of a group in `[start, end)` that are not done, by Fetch. Raises ProxyError."""
    position = start
    while position < end:
        records, next_offset = await _fetch(nodes, topic_partition, position)
        if next_offset <= position:
            raise UpstreamLost(
                f"partition {topic_partition.topic}-{topic_partition.partition} has no data from offset {position} on"
            )
        letters = [
            letter
            for record in records
            if record.offset < end and record.offset not in done
            if (letter := letter_in(topic_partition, record, group)) is not None
        ]
        position = min(next_offset, end)
        yield LetterBatch(letters, position)


async def records_at(nodes: OpenNodes, topic_partition: TopicPartition, offsets: Sequence[int]) -> Mapping[int, Record]:
    """Return the records at ascending offsets that still exist. Raises ProxyError."""
    if topic_partition.partition >= await nodes.partitions_of(topic_partition.topic):
        return {}
    log_start, log_end = await log_bounds(nodes, topic_partition)
    remaining = [offset for offset in offsets if log_start <= offset < log_end]
    existing: dict[int, Record] = {}
    while remaining:
        records, next_offset = await _fetch(nodes, topic_partition, remaining[0])
        target = set(remaining)
        existing.update((record.offset, record) for record in records if record.offset in target)
        if next_offset <= remaining[0]:
            break
        remaining = [offset for offset in remaining if offset >= next_offset]
    return existing


async def _fetch(nodes: OpenNodes, topic_partition: TopicPartition, offset: int) -> tuple[list[Record], int]:
    """Return committed records from `offset` on, and the offset after them. Raises ProxyError."""
    async with nodes.connection(await nodes.leader(topic_partition)) as opened:
        (entry,) = await topic_log.fetch(
            opened,
            topic_partition.topic,
            {topic_partition.partition: offset},
            wait_ms=READ_WAIT_MS,
            max_bytes=READ_BYTES,
            partition_bytes=READ_BYTES,
            isolation_level=READ_COMMITTED,
        )
    _check(entry.error_code, topic_partition)
    records: list[Record] = []
    next_offset = offset
    for batch in fetched_records(entry.records or b"", offset, entry.aborted_transactions or ()):
        records += batch.records
        next_offset = batch.next_offset
    return records, next_offset


def _check(code: int, topic_partition: TopicPartition) -> None:
    if code != ErrorCode.NONE:
        raise UpstreamLost(f"partition {topic_partition.topic}-{topic_partition.partition}: {error_name(code)}")
