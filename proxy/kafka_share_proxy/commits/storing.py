"""Appends of changed ranges of a group to the topic.

Rule: commits/README.md 8. Memory has already changed when an append begins. Appends of one group are stored in their
order. After a failed one the partitions remember its records (`PartitionCommits.not_stored`). All of this continues
after the client has disconnected. 10,000 ranges are 1.5 MB of very similar records, 45 to 110 KB compressed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.model.partition_commits import PartitionCommits
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.commits.state_records import (
    BINDING,
    CommitKey,
    GroupKey,
    RangeKey,
    RangeValue,
    group_value,
    range_value,
)
from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S, JournalRefused
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.waiting import settled_by
from kafka_share_proxy.offsets.ranges import OffsetSpan, RangeChange
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

Entry = tuple[CommitKey, bytes | None]

FEW, FEW_BYTES = 16, 1 << 10
"""Records, and bytes of each name and value, that fit in any append unchecked."""
RECORD_BYTES = 64
"""Bytes of a record without the names in its key and without its value."""


class StoredChange(NamedTuple):
    """Changed ranges of one partition."""

    topic_partition: TopicPartition
    held: PartitionCommits
    change: RangeChange
    leader_epoch: int = -1
    member_id: str = ""
    binding: OffsetSpan | None = None
    """Record with the topic id of the broker's text."""


def store(services: CommitServices, group: CommittingGroup, changes: Sequence[StoredChange]) -> None:
    """Start one append if the changes fit. `stored` waits for it."""
    changes = [each for each in changes if each.change or each.binding]
    if changes:
        _append_all(services, group, _records(services, group, changes), changes)


def _records(services: CommitServices, group: CommittingGroup, changes: Sequence[StoredChange]) -> list[Entry]:
    time_ms = services.timers.wall_ms()
    records: list[Entry] = []
    for each in changes:
        if each.change.put:
            _add(records, group, each.topic_partition, each.change.put, range_value(_value(each, time_ms)))
        if each.binding:
            value = _value(each, time_ms)._replace(metadata=BINDING)
            _add(records, group, each.topic_partition, (each.binding,), range_value(value))
    for each in changes:
        _add(records, group, each.topic_partition, each.change.removed, None)
    return records


def _add(
    records: list[Entry],
    group: CommittingGroup,
    topic_partition: TopicPartition,
    spans: Iterable[OffsetSpan],
    value: bytes | None,
) -> None:
    group_id, (topic, partition) = group.group_id, topic_partition
    for start, end in spans:
        records.append((RangeKey(group_id, topic, partition, start, end - 1), value))


def _append_all(
    services: CommitServices, group: CommittingGroup, records: Sequence[Entry], changes: Sequence[StoredChange]
) -> None:
    """Split records over appends, each of which may be the last one stored."""
    name, most = len(group.group_id), services.held.append_bytes
    if len(records) <= FEW and name <= FEW_BYTES and max([len(value or b"") for _, value in records]) <= FEW_BYTES:
        _append(services, group, records, changes)
        return
    start = size = 0
    for at, (key, value) in enumerate(records):
        record = RECORD_BYTES + name + len(value or b"") + (len(key.topic) if isinstance(key, RangeKey) else 0)
        if size and size + record > most:
            _append(services, group, records[start:at], changes)
            start, size = at, 0
        size += record
    _append(services, group, records[start:], changes)


def store_marker(services: CommitServices, group: CommittingGroup) -> None:
    """Start storing the group record. `stored` waits for it."""
    group.has_marker = True
    group.is_marker_seen = False
    value = group_value(services.timers.wall_ms())
    _append(services, group, [(GroupKey(group.group_id), value)], (), is_group_record=True)


def end_group(services: CommitServices, group: CommittingGroup) -> None:
    """Start storing tombstones for all records of the group."""
    changes = [StoredChange(partition, held, held.ended()) for partition, held in group.partitions.items()]
    records: list[Entry] = []
    for each in changes:
        _add(records, group, each.topic_partition, each.change.removed, None)
    _append_all(services, group, [*records, (GroupKey(group.group_id), None)], changes)


def _append(
    services: CommitServices,
    group: CommittingGroup,
    records: Sequence[Entry],
    changes: Iterable[StoredChange],
    *,
    is_group_record: bool = False,
) -> None:
    append = services.journal.append(records)
    group.appends[append] = None
    began = services.timers.now()

    def settled() -> None:
        services.figures.append_s.observe(services.timers.now() - began)
        _settled(group, append, changes, is_group_record)

    append.on_settled(settled, services.state_owner)


def _settled(
    group: CommittingGroup, append: Promise[None], changes: Iterable[StoredChange], is_group_record: bool
) -> None:
    group.appends.pop(append, None)
    try:
        append.result()
        group.is_marker_stored = group.is_marker_stored or is_group_record
    except JournalRefused:
        group.has_marker = group.has_marker and not is_group_record
        for each in changes:
            each.held.not_stored(each.change, each.binding)


async def stored(services: CommitServices, group: CommittingGroup) -> ErrorCode:
    deadline = services.timers.now() + RESPONSE_MAX_S
    for append in list(group.appends):
        if not (append.done or await settled_by(services.timers, deadline, append)):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = outcome_of(append)
        if code != ErrorCode.NONE:
            return code
    return ErrorCode.NONE


def outcome_of(append: Promise[None]) -> ErrorCode:
    try:
        append.result()
    except JournalRefused as refused:
        is_denied = refused.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED  # of the proxy's own identity
        return ErrorCode.INVALID_REQUEST if is_denied else ErrorCode.COORDINATOR_NOT_AVAILABLE
    return NO_ERROR


async def stored_or_reported(services: CommitServices, group: CommittingGroup) -> bool:
    """Return False and log it on failure (commits/README.md rule 22)."""
    if await stored(services, group) == ErrorCode.NONE:
        return True
    services.services.notes("ranges-not-ended", group=group.group_id, reason="the topic takes no records now")
    return False


def _value(each: StoredChange, time_ms: int) -> RangeValue:
    return RangeValue(each.held.topic_id, each.leader_epoch, each.held.committed, time_ms, each.member_id)
