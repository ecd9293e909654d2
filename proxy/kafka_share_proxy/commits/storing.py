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
    state: PartitionCommits
    change: RangeChange
    leader_epoch: int = -1
    member_id: str = ""
    binding: OffsetSpan | None = None
    """Record with the topic id of the broker's text."""


def store(services: CommitServices, group: CommittingGroup, changes: Sequence[StoredChange]) -> None:
    """Start one append if the changes fit. `outcome_of_appends` waits for it."""
    changes = [stored_change for stored_change in changes if stored_change.change or stored_change.binding]
    if changes:
        _append_all(services, group, _records(services, group, changes), changes)


def _records(services: CommitServices, group: CommittingGroup, changes: Sequence[StoredChange]) -> list[Entry]:
    time_ms = services.timers.wall_ms()
    records: list[Entry] = []
    for stored_change in changes:
        if stored_change.change.put:
            _add(
                records,
                group,
                stored_change.topic_partition,
                stored_change.change.put,
                range_value(_value(stored_change, time_ms)),
            )
        if stored_change.binding:
            value = _value(stored_change, time_ms)._replace(metadata=BINDING)
            _add(records, group, stored_change.topic_partition, (stored_change.binding,), range_value(value))
    for stored_change in changes:
        _add(records, group, stored_change.topic_partition, stored_change.change.removed, None)
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
    group_id_length, bytes_max = len(group.group_id), services.held.append_bytes
    if (
        len(records) <= FEW
        and group_id_length <= FEW_BYTES
        and max([len(value or b"") for _, value in records]) <= FEW_BYTES
    ):
        _append(services, group, records, changes)
        return
    start = size = 0
    for index, (key, value) in enumerate(records):
        record_bytes = (
            RECORD_BYTES + group_id_length + len(value or b"") + (len(key.topic) if isinstance(key, RangeKey) else 0)
        )
        if size and size + record_bytes > bytes_max:
            _append(services, group, records[start:index], changes)
            start, size = index, 0
        size += record_bytes
    _append(services, group, records[start:], changes)


def store_marker(services: CommitServices, group: CommittingGroup) -> None:
    """Start storing the group record. `outcome_of_appends` waits for it."""
    group.has_marker = True
    group.is_marker_seen = False
    value = group_value(services.timers.wall_ms())
    _append(services, group, [(GroupKey(group.group_id), value)], (), is_group_record=True)


def end_group(services: CommitServices, group: CommittingGroup) -> None:
    """Start storing tombstones for all records of the group."""
    changes = [StoredChange(partition, state, state.ended()) for partition, state in group.partitions.items()]
    records: list[Entry] = []
    for stored_change in changes:
        _add(records, group, stored_change.topic_partition, stored_change.change.removed, None)
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
    started_at = services.timers.now()

    def settled() -> None:
        services.figures.append_s.observe(services.timers.now() - started_at)
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
        for stored_change in changes:
            stored_change.state.not_stored(stored_change.change, stored_change.binding)


async def outcome_of_appends(services: CommitServices, group: CommittingGroup) -> ErrorCode:
    """Wait until the appends of the group have ended. Return the first error, also if they take too long."""
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
    if await outcome_of_appends(services, group) == ErrorCode.NONE:
        return True
    services.base.notes("ranges-not-ended", group=group.group_id, reason="the topic takes no records now")
    return False


def _value(stored_change: StoredChange, time_ms: int) -> RangeValue:
    return RangeValue(
        stored_change.state.topic_id,
        stored_change.leader_epoch,
        stored_change.state.committed,
        time_ms,
        stored_change.member_id,
    )
