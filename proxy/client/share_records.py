"""Records as an application of a share group gets them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from proxy.consumer.share_core import DeliveredRecords
from proxy.wire.values import TopicPartition


class ShareRecord(NamedTuple):
    """A record, where it came from, and how often it was delivered (ConsumerRecord of KIP-932)."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int
    """Milliseconds since 1970."""
    offset: int
    timestamp_type: int
    """0: the producer set the timestamp, 1: the broker did when it appended."""
    delivery_count: int
    """1 at its first delivery to any member of the group."""
    delivery: int
    """Tells this delivery from others of the same record to this consumer: only the last one can be acknowledged."""

    @property
    def origin(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.topic, self.partition)


_NEW = tuple.__new__
"""Makes a named tuple without the call of its own constructor, which would cost more than all else."""


def share_records(parts: Iterable[DeliveredRecords]) -> list[ShareRecord]:
    """The records of one poll, in order within each partition."""
    made: list[ShareRecord] = []
    for (topic, number), records, delivery_count, delivery in parts:
        made += [_NEW(ShareRecord, (topic, number, *record, delivery_count, delivery)) for record in records]
    return made
