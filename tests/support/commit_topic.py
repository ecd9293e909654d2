"""The oracle of individual commits: the topic of ranges and the committed offsets, read from the broker itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafka_share_proxy.commits.locked_partitions import text_of
from kafka_share_proxy.commits.state_records import (
    BINDING,
    TOPIC,
    GroupKey,
    RangeKey,
    RangeValue,
    decode_key,
    decode_range_value,
)
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.offsets.commit_text import CommitText
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import records

from tests.support.raw import Raw, Topic, until


class Dumped(NamedTuple):
    """A record about a range, as it is in the log."""

    offset: int
    key: RangeKey
    value: RangeValue | None
    """None: the range is deleted."""

    def __str__(self) -> str:
        return f"{'-' if self.value is None else '+'}{self.key.first}-{self.key.last}"


class CommitTopic:
    """Reader at the broker, past every proxy."""

    def __init__(self, bootstrap: str, *, in_metadata: bool = False) -> None:
        """`in_metadata`: ranges in the broker's metadata count as stored, and not as the user's metadata."""
        self.raw = Raw(bootstrap)
        self.in_metadata = in_metadata

    def close(self) -> None:
        self.raw.close()

    def primary(self, group: str, topic: str, partition: int = 0) -> tuple[int, str]:
        """Return the broker's committed offset, and the user's metadata."""
        offset, metadata = self.broker(group, topic, partition)
        return offset, without_ranges(metadata) if self.in_metadata else metadata

    def broker(self, group: str, topic: str, partition: int = 0) -> tuple[int, str]:
        """Return the broker's committed offset, and its metadata, without the NUL that ends confluent-kafka's."""
        response = self.raw.send_request(
            "OffsetFetch",
            7,
            on=self.raw.on_coordinator(group),
            group_id=group,
            topics=[{"name": topic, "partition_indexes": [partition]}],
            require_stable=True,
        )
        entry = response.topics[0].partitions[0]
        assert (response.error_code, entry.error_code) == (0, 0)
        return entry.committed_offset, entry.metadata.rstrip("\0")

    def log(self, group: str) -> list[tuple[int, bytes, bytes | None]]:
        """Return all records of the partition that holds a group: offset, key, value."""
        topic: Topic = until(lambda: self.raw.topic(TOPIC), f"topic {TOPIC}")
        partition = state_partition(group)
        entries: list[tuple[int, bytes, bytes | None]] = []
        at, end = 0, self.raw.end_offset(topic, partition)
        while at < end:
            batches = self._fetch(topic, partition, at)
            assert batches, f"no record at {at} of {end}"
            for offset, key, value in batches:
                if offset >= at:
                    entries.append((offset, key, value))
                    at = offset + 1
        return entries

    def _fetch(self, topic: Topic, partition: int, at: int) -> Sequence[tuple[int, bytes, bytes | None]]:
        response = self.raw.send_request(
            "Fetch", 12, on=self.raw.kept(self.raw.node(topic.leaders[partition])), max_wait_ms=500, min_bytes=1,
            session_epoch=-1, max_bytes=1 << 22,
            topics=[{"topic": topic.name, "partitions": [
                {"partition": partition, "fetch_offset": at, "partition_max_bytes": 1 << 22}]}],
        ).responses[0].partitions[0]  # fmt: skip
        assert response.error_code == 0
        view = memoryview(bytes(response.records or b""))
        return [
            (record.offset, bytes(record.key or b""), None if record.value is None else bytes(record.value))
            for batch in records.iter_batches(view)
            for record in records.decode_records(view[batch.position : batch.end])
        ]

    def dump(self, group: str, topic: str, partition: int = 0) -> list[Dumped]:
        """Return the records about ranges of one partition of a group, in the order of the log."""
        entries = []
        for offset, raw_key, value in self.log(group):
            key = _decoded(raw_key)
            if isinstance(key, RangeKey) and key[:3] == (group, topic, partition):
                entries.append(Dumped(offset, key, None if value is None else decode_range_value(value)))
        return entries

    def live(self, group: str, topic: str, partition: int = 0) -> str:
        """Return the stored ranges: those in the log after compaction, and those in the broker's metadata."""
        last: dict[RangeKey, RangeValue | None] = {each.key: each.value for each in self.dump(group, topic, partition)}
        spans = sorted(
            (key.first, key.last) for key, value in last.items() if value is not None and value.metadata != BINDING
        )
        if not self.in_metadata:
            return ",".join(f"{first}-{last}" for first, last in spans)
        offset, metadata = self.broker(group, topic, partition)
        ranges, text = OffsetRanges((first, last + 1) for first, last in spans), text_of(metadata)
        ranges.merge_all(() if text is None else text.ranges)
        ranges.drop_below(offset)
        return str(ranges)

    def is_marked(self, group: str) -> bool:
        """True if a record says that the group commits individually."""
        last: dict[Any, bytes | None] = {_decoded(key): value for _, key, value in self.log(group)}
        return last.get(GroupKey(group)) is not None


def without_ranges(metadata: str) -> str:
    """Return the user's part of metadata, in the form in which it is kept without ranges."""
    text = text_of(metadata)
    if text is None:
        return metadata
    reduced_text = CommitText(OffsetRanges(), text.catch_up, text.user_text)
    return (str(reduced_text) if text.catch_up else text.user_text or "") + ("\0" if metadata.endswith("\0") else "")


def _decoded(key: bytes) -> Any:
    try:
        return decode_key(key)
    except RemoteProtocolError:
        return None  # a takeover, or a keep-alive
