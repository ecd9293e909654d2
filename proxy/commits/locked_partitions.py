"""Work on partitions of a group while nobody moves their marks (commits/README.md rules 10 and 14)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from proxy.brokers.interfaces import Connection
from proxy.commits.asked_commits import AskedCommit
from proxy.commits.broker_offsets import ask_committed
from proxy.commits.held_state import CommittingGroup
from proxy.commits.services import CommitServices
from proxy.commits.storing import StoredChange, store, stored
from proxy.loop.promise import Promise
from proxy.loop.waiting import settled_by
from proxy.offsets.commit_text import VERSION, CommitText, CommitTextError, commit_text_version, parse_commit_text
from proxy.wire.errors import ErrorCode, ProxyError
from proxy.wire.values import TopicPartition

T = TypeVar("T")

LOCK_MAX_S = 10.0
"""Whoever waits longer for a partition is told to come again: somebody's broker does not answer."""


class PartitionBusy(ProxyError):
    """Another commit of a partition has been on its way for too long."""


WHOLE_GROUP = TopicPartition("", -1)
"""Shared by whoever works on a partition of the group; alone by whoever ends the group. Stands before all others."""


async def with_locks(
    services: CommitServices,
    group_id: str,
    places: Collection[TopicPartition],
    needs_alone: Callable[[TopicPartition], bool],
    work: Callable[[], Awaitable[T]],
) -> T:
    """What `work` gives, done while this request has the locks of these places.

    A lock is had alone where `needs_alone` says so. That may change while it is waited for: then all are had alone.

    Raises PartitionBusy.
    """
    modes = {place: needs_alone(place) for place in sorted(places)}
    locks, wanted = services.locks, _keys(group_id, {WHOLE_GROUP: False, **modes})
    if locks.enter(wanted):
        try:
            return await work()
        finally:
            locks.leave(wanted)
    for _ in range(2):
        with locks.asked(_keys(group_id, {WHOLE_GROUP: False, **modes})) as turns:
            has_waited = await _waited(services, turns)
            if not has_waited or all(is_alone or not needs_alone(place) for place, is_alone in modes.items()):
                return await work()
        modes = dict.fromkeys(modes, True)
    raise AssertionError("alone is always enough")


async def with_whole_group(services: CommitServices, group_id: str, work: Callable[[], Awaitable[T]]) -> T:
    """What `work` gives, done while nobody else works on any partition of the group. Raises PartitionBusy."""
    with services.locks.asked(_keys(group_id, {WHOLE_GROUP: True})) as turns:
        await _waited(services, turns)
        return await work()


async def _waited(services: CommitServices, turns: Iterable[Promise[None]]) -> bool:
    """Wait for these turns; whether any had not come yet."""
    has_waited = False
    deadline = services.timers.now() + LOCK_MAX_S
    for turn in turns:
        if not turn.done:
            has_waited = True
            if not await settled_by(services.timers, deadline, turn):
                raise PartitionBusy("another commit of the partition is on its way for too long")
    return has_waited


def _keys(group_id: str, modes: Mapping[TopicPartition, bool]) -> dict[Hashable, bool]:
    return {(group_id, *place): is_alone for place, is_alone in modes.items()}


async def look_at_partitions(
    services: CommitServices, connection: Connection, group: CommittingGroup, found: Iterable[AskedCommit]
) -> dict[TopicPartition, ErrorCode]:
    """Ranges of topics that were made anew go, and the marks that are not known are asked for (`know_marks`).

    Gives why something cannot be committed now. What a rewind has dropped is no longer in the topic when this ends.
    """
    placed = [(asked.place, asked.topic_id) for asked in found if asked.place is not None]
    lost = [StoredChange(place, held := group.of(place), held.topic_is(topic_id)) for place, topic_id in placed]
    store(services, group, lost)
    troubles = await know_marks(services, connection, group, [place for place, _ in placed])
    if not any(group.of(place).unsure for place, _ in placed):
        return troubles
    again = [StoredChange(place, held := group.of(place), held.said_again()) for place, _ in placed]
    return troubles | await _troubles_storing(services, group, again)


async def know_marks(
    services: CommitServices, connection: Connection, group: CommittingGroup, places: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Ask for the marks that are not known; where the broker does not tell one, why. Raises UpstreamLost.

    Ranges that stand in the broker's metadata are in the topic before this ends: a commit would overwrite them there
    (commits/README.md rule 17).
    """
    unknown = [place for place in places if not group.of(place).is_mark_known]
    if not unknown:
        return {}
    troubles: dict[TopicPartition, ErrorCode] = {}
    changes = []
    for place, told in (await ask_committed(connection, group.group_id, unknown)).items():
        if told.error_code != ErrorCode.NONE:
            troubles[place] = told.error_code
            continue
        held = group.of(place)
        text = text_of(told.metadata)
        change = held.broker_says(told.offset, told.leader_epoch, () if text is None else text.ranges)
        changes.append(StoredChange(place, held, change))
    return troubles | await _troubles_storing(services, group, changes)


async def _troubles_storing(
    services: CommitServices, group: CommittingGroup, changes: Sequence[StoredChange]
) -> dict[TopicPartition, ErrorCode]:
    """Have the changes stored, and wait for that; the partitions of which it failed."""
    changes = [each for each in changes if each.change]
    store(services, group, changes)
    code = await stored(services, group) if changes else ErrorCode.NONE
    return {} if code == ErrorCode.NONE else {each.place: code for each in changes}


def text_of(metadata: str | None) -> CommitText | None:
    """The text of ranges in metadata at the broker, if it is one that can be read here."""
    if commit_text_version(metadata) != VERSION:
        return None
    try:
        return parse_commit_text(metadata or "")
    except CommitTextError:
        return None  # somebody else's, or committed past the proxies: it stays what it is
