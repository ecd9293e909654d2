"""Records as returned to an application of a share group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_share_proxy.wire.values import TopicPartition

if TYPE_CHECKING:  # a consumer without share groups loads this module for its deserializers
    from kafka_share_proxy.consumer.share.share_core import DeliveredRecords


class ShareRecord(NamedTuple):
    """A record with its topic, partition and offset, and its delivery count (ConsumerRecord of KIP-932)."""

    topic: str
    partition: int
    key: Any
    """bytes or None, or the result of a key deserializer."""
    value: Any
    """bytes or None, or the result of a value deserializer."""
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int
    """Milliseconds since 1970."""
    offset: int
    timestamp_type: int
    """0: the producer set the timestamp, 1: the broker did when it appended."""
    delivery_count: int
    """1 at its first delivery to any member of the group."""
    delivery: int
    """Number of this delivery to this consumer. Only the last delivery of a record can be acknowledged."""

    @property
    def origin(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


_NEW = tuple.__new__
"""Create a named tuple without its own constructor, whose call would dominate the cost."""


def share_records(parts: Iterable[DeliveredRecords]) -> list[ShareRecord]:
    """Return the records of one poll, in order within each partition."""
    delivered: list[ShareRecord] = []
    for (topic, number), records, delivery_count, delivery in parts:
        delivered += [_NEW(ShareRecord, (topic, number, *record, delivery_count, delivery)) for record in records]
    return delivered
