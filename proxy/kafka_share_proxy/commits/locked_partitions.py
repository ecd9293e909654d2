"""Work on partitions of a group under their locks, with known committed offsets (commits/README.md rules 10 and 14)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.commits.broker_offsets import request_committed
from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.requested_commits import RequestedCommit
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.commits.storing import StoredChange, outcome_of_appends, store
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.waiting import settled_by
from kafka_share_proxy.offsets.commit_text import (
    VERSION,
    CommitText,
    CommitTextError,
    commit_text_version,
    parse_commit_text,
)
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.values import TopicPartition

T = TypeVar("T")

LOCK_MAX_S = 10.0
"""Seconds of waiting for a lock, after which the client has to retry."""


class PartitionBusy(ProxyError):
    """Another commit of the partition has been in flight for longer than LOCK_MAX_S."""


WHOLE_GROUP = TopicPartition("", -1)
"""Lock key of a whole group, held exclusively by a request that ends it. Sorts before all partitions."""


async def with_locks(
    services: CommitServices,
    group_id: str,
    partitions: Collection[TopicPartition],
    needs_exclusive: Callable[[TopicPartition], bool],
    work: Callable[[], Awaitable[T]],
) -> T:
    """Run `work` under the locks of these partitions. Raises PartitionBusy.

    If `needs_exclusive` changes during the wait, all locks are acquired again, exclusively.
    """
    modes = {partition: needs_exclusive(partition) for partition in sorted(partitions)}
    locks, keys = services.locks, _keys(group_id, {WHOLE_GROUP: False, **modes})
    if locks.enter(keys):
        try:
            return await work()
        finally:
            locks.leave(keys)
    for _ in range(2):
        with locks.queued(_keys(group_id, {WHOLE_GROUP: False, **modes})) as grants:
            has_waited = await _wait_for_locks(services, grants)
            if not has_waited or all(
                is_exclusive or not needs_exclusive(partition) for partition, is_exclusive in modes.items()
            ):
                return await work()
        modes = dict.fromkeys(modes, True)
    raise AssertionError("exclusive locks are always enough")


async def with_whole_group(services: CommitServices, group_id: str, work: Callable[[], Awaitable[T]]) -> T:
    """Run `work` while no other request works on the group. Raises PartitionBusy."""
    with services.locks.queued(_keys(group_id, {WHOLE_GROUP: True})) as grants:
        await _wait_for_locks(services, grants)
        return await work()


async def _wait_for_locks(services: CommitServices, grants: Iterable[Promise[None]]) -> bool:
    """True if any lock was not granted immediately. Raises PartitionBusy."""
    has_waited = False
    deadline = services.timers.now() + LOCK_MAX_S
    for grant in grants:
        if not grant.done:
            has_waited = True
            if not await settled_by(services.timers, deadline, grant):
                raise PartitionBusy("another commit of the partition is on its way for too long")
    return has_waited


def _keys(group_id: str, modes: Mapping[TopicPartition, bool]) -> dict[Hashable, bool]:
    return {(group_id, *partition): is_exclusive for partition, is_exclusive in modes.items()}


async def load_partitions(
    services: CommitServices, connection: Connection, group: CommittingGroup, commits: Iterable[RequestedCommit]
) -> dict[TopicPartition, ErrorCode]:
    """Drop ranges of recreated topics and fetch unknown committed offsets. Return the errors.

    Afterwards the topic holds nothing that a rewind has dropped.
    """
    partitions_with_ids = [
        (requested.topic_partition, requested.topic_id)
        for requested in commits
        if requested.topic_partition is not None
    ]
    drops = [
        StoredChange(partition, state := group.state_of(partition), state.topic_is(topic_id))
        for partition, topic_id in partitions_with_ids
    ]
    store(services, group, drops)
    errors = await load_committed(services, connection, group, [partition for partition, _ in partitions_with_ids])
    forwarded = [
        each for each, _ in partitions_with_ids if errors.get(each) in {None, ErrorCode.UNSTABLE_OFFSET_COMMIT}
    ]
    errors |= await _stored_before(services, group, forwarded)
    if not any(group.state_of(partition).unsure for partition, _ in partitions_with_ids):
        return errors
    repeats = [
        StoredChange(partition, state := group.state_of(partition), state.repeat_unsure())
        for partition, _ in partitions_with_ids
    ]
    return errors | await store_first(services, group, repeats)


async def load_committed(
    services: CommitServices, connection: Connection, group: CommittingGroup, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return the errors by partition. Raises UpstreamLost.

    Ranges in the broker's metadata are stored before this returns (commits/README.md rule 17).
    """
    unknown = [partition for partition in partitions if not group.state_of(partition).is_committed_known]
    if not unknown:
        return {}
    errors: dict[TopicPartition, ErrorCode] = {}
    changes = []
    for partition, offset in (await request_committed(connection, group.group_id, unknown)).items():
        if offset.error_code != ErrorCode.NONE:
            errors[partition] = offset.error_code
            continue
        state = group.state_of(partition)
        text = text_of(offset.metadata)
        change = state.learn_committed(offset.offset, offset.leader_epoch, () if text is None else text.ranges)
        changes.append(StoredChange(partition, state, change))
    return errors | await store_first(services, group, changes)


async def store_first(
    services: CommitServices, group: CommittingGroup, changes: Sequence[StoredChange]
) -> dict[TopicPartition, ErrorCode]:
    """Store changes before a commit is forwarded. Return the errors."""
    changes = [each for each in changes if each.change]
    store(services, group, changes)
    for each in changes:
        each.state.is_stored_first = True
    return await _stored_before(services, group, [each.topic_partition for each in changes])


async def _stored_before(
    services: CommitServices, group: CommittingGroup, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Wait for appends that no commit may overtake, also those of a request that no longer waits. Return the errors.

    Without a confirmation the committed offset is requested again, and what the broker's metadata holds is stored then.
    """
    waiting = [partition for partition in partitions if group.state_of(partition).is_stored_first]
    if not waiting:
        return {}
    code = None
    try:
        code = await outcome_of_appends(services, group)
    finally:
        for partition in waiting:
            state = group.state_of(partition)
            state.is_stored_first = code != ErrorCode.NONE
            if state.is_stored_first:
                state.forget_committed()
    return {} if code == ErrorCode.NONE else dict.fromkeys(waiting, code)


def text_of(metadata: str | None) -> CommitText | None:
    """Return the text in the metadata, or None if it has none or a malformed one."""
    if commit_text_version(metadata) != VERSION:
        return None
    try:
        return parse_commit_text(metadata or "")
    except CommitTextError:
        return None  # text of another application, or committed without a proxy: left as it is
