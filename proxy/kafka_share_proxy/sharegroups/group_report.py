"""Reports on share groups that no broker offers: locks with owners and deadlines, and what blocks the start offset.

Plain values for JSON. Times are in seconds from or until now. Offset ranges are inclusive. Long lists are cut, and the
report contains the number of entries left out.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from math import inf
from operator import itemgetter
from typing import Any

from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.sharegroups.model.acknowledging import RELEASE
from kafka_share_proxy.sharegroups.model.coordinator import NOTHING_READ, Change, Share, ShareKey
from kafka_share_proxy.sharegroups.model.group import MemberDescription, ShareGroup
from kafka_share_proxy.sharegroups.model.partition import Lock, SharePartition, Wait
from kafka_share_proxy.sharegroups.model.queue_settings import BY_KEY, QueueSettings
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.state_writes import Outcome
from kafka_share_proxy.wire.errors import ErrorCode

PARTITIONS_MAX = 1_000
"""Maximum number of partitions in the report of one group, those blocked longest first."""
LOCKS_MAX = 1_000
"""Maximum number of locks in the report of one group, those held longest first."""

BLOCKED_KEYS_MAX = 20
"""Maximum number of blocked keys in the report of one group."""

STEP = 500
"""Number of groups or share partitions per step."""

View = dict[str, Any]


def groups(services: ShareServices) -> Generator[None, None, View]:
    """Return all share groups held here by id, one line each. Other requests may run between two steps."""
    lines: dict[str, View] = {}
    for count, (group_id, group) in enumerate(sorted(services.coordinator.groups.items())):
        if count % STEP == STEP - 1:
            yield
        lines[group_id] = {"group": group_id, "state": group.state, "members": len(group.members), "partitions": 0}
        lines[group_id] |= {"acquired": 0, "renewed": 0, "delayed": 0, "blocked": 0, "dead_letters_waiting": 0}
        lines[group_id] |= {"oldest_blocked_s": None}
    for count, (key, share) in enumerate(list(services.coordinator.shares())):
        if count % STEP == STEP - 1:
            yield
        if key.group_id in lines:
            _add(lines[key.group_id], share, services.timers.now())
    return {"groups": list(lines.values()), "resting_partitions": services.coordinator.resting}


def _add(line: View, share: Share, now: float) -> None:
    line["partitions"] += 1
    for lock in share.partition.locks():
        line["acquired"] += lock.last - lock.first + 1
        line["renewed"] += lock.last - lock.first + 1 if lock.renewals else 0
    line["dead_letters_waiting"] += share.partition.dead_letters_waiting()
    line["delayed"] += sum(wait.last - wait.first + 1 for wait in share.partition.waiting())
    line["blocked"] += share.partition.blocked_records()
    share.note_oldest(now)
    if share.oldest != NOTHING_READ:
        blocked = round(now - share.oldest_since, 3)
        line["oldest_blocked_s"] = max(blocked, line["oldest_blocked_s"] or 0.0)


def group(services: ShareServices, group_id: str, *, only_loaded: bool = False) -> View | None:
    """Return one share group with its members, partitions and locks. None if it is not held here.

    `only_loaded`: leave out share partitions at rest instead of loading them.
    """
    share_group = services.coordinator.group(group_id)
    if share_group is None:
        return None
    now = services.timers.now()
    shares = sorted(services.coordinator.loaded_of(group_id), key=itemgetter(0))
    if not only_loaded:
        keys = sorted(services.coordinator.keys_of(group_id))
        shares = [(key, share) for key in keys if (share := services.coordinator.share(key)) is not None]
    partitions = [_partition(services, key, share, now) for key, share in shares]
    partitions.sort(key=lambda each: -(each["oldest_blocked_s"] or 0.0))
    locks = sorted(
        ((lock, key) for key, share in shares for lock in share.partition.locks()), key=lambda pair: pair[0].acquired_at
    )
    lock_totals: dict[str, tuple[int, int]] = {}
    for lock, _ in locks:
        records, renewals = lock_totals.get(lock.member_id, (0, 0))
        lock_totals[lock.member_id] = records + lock.last - lock.first + 1, max(renewals, lock.renewals)
    return {
        "group": group_id,
        "state": share_group.state,
        "epoch": share_group.epoch,
        "settings": _settings(services, group_id),
        "members": [
            _member(services, share_group, member, lock_totals, now) for member in share_group.describe().members
        ],
        "partitions": partitions[:PARTITIONS_MAX],
        "partitions_left_out": max(len(partitions) - PARTITIONS_MAX, 0),
        "locks": [_lock(services, key, lock, now) for lock, key in locks[:LOCKS_MAX]],
        "locks_left_out": max(len(locks) - LOCKS_MAX, 0),
        "dead_letters": _dead_letters(services, group_id),
    } | _waiting(services, shares, now)


def _waiting(services: ShareServices, shares: Sequence[tuple[ShareKey, Share]], now: float) -> View:
    """Return the records that wait for their redelivery, those that are due first."""
    waiting = sorted(
        ((wait, key) for key, share in shares for wait in share.partition.waiting()), key=lambda pair: pair[0].due
    )
    return {
        "delayed": [_delayed(services, key, wait, now) for wait, key in waiting[:LOCKS_MAX]],
        "delayed_left_out": max(len(waiting) - LOCKS_MAX, 0),
        "blocked_keys": _blocked_keys(services, shares, now),
    }


def _blocked_keys(services: ShareServices, shares: Sequence[tuple[ShareKey, Share]], now: float) -> list[View]:
    """Return the keys of an ordered group for which most records wait, by their hash."""
    keys = sorted(
        ((blocked_key, key, share) for key, share in shares for blocked_key in share.partition.blocked()),
        key=lambda entry: -entry[0].waiting,
    )
    return [
        {
            "topic": _topic_name(services, key.topic_id),
            "partition": key.partition,
            "key_hash": f"{blocked_key.hash:016x}",
            "behind_offset": blocked_key.blocking_offset,
            "waiting": blocked_key.waiting,
            "since_s": round(now - share.oldest_since, 3) if blocked_key.blocking_offset == share.oldest else None,
        }
        for blocked_key, key, share in keys[:BLOCKED_KEYS_MAX]
    ]


def _dead_letters(services: ShareServices, group_id: str) -> View | None:
    """Return the group's topic for dead letters, and why it cannot be written. None without a topic."""
    queue, writer = services.coordinator.settings(group_id).queue, services.dead_letters
    if queue is None or queue.dead_letters is None or writer is None:
        return None
    figures = services.figures.of(group_id)
    topic = queue.dead_letters.topic
    return {
        "topic": topic,
        "copies_records": queue.dead_letters.copies_records,
        "written": figures.dead_letters,
        "not_written_because": writer.unwritable.get(topic),
    }


def _delayed(services: ShareServices, key: ShareKey, wait: Wait, now: float) -> View:
    return {
        "topic": _topic_name(services, key.topic_id),
        "partition": key.partition,
        "first": wait.first,
        "last": wait.last,
        "delivery_count": wait.delivery_count,
        "due_in_s": round(max(wait.due - now, 0.0), 3),
    }


def knows_member(services: ShareServices, group_id: str, member_id: str) -> bool:
    """Return True if a member of that id is in the group, or holds records of it (a former member may)."""
    share_group = services.coordinator.group(group_id)
    if share_group is not None and member_id in share_group.members:
        return True
    loaded = services.coordinator.loaded_of(group_id)
    return any(lock.member_id == member_id for _, share in loaded for lock in share.partition.locks())


def held_records(services: ShareServices, group_id: str, member_id: str) -> int:
    """Return the number of records that a member holds."""
    loaded = services.coordinator.loaded_of(group_id)
    locks = (lock for _, share in loaded for lock in share.partition.locks() if lock.member_id == member_id)
    return sum(lock.last - lock.first + 1 for lock in locks)


def release(services: ShareServices, group_id: str, member_id: str) -> tuple[int, Promise[Outcome]] | None:
    """Release all records that a member holds. Return their number, and a promise of the durable outcome.

    The member stays in the group. Its later acknowledgements of these records are refused (121). None if the group is
    not held here.
    """
    coordinator = services.coordinator
    if coordinator.group(group_id) is None:
        return None
    settings = coordinator.settings(group_id)
    changes: list[Change] = []
    for key, share in coordinator.loaded_of(group_id):
        transition = share.partition.decide_release(member_id, settings)
        if transition is not None:
            transition.acknowledge_types = (RELEASE,) * len(transition.runs)
            transition.is_forced = True
            if services.audit is not None:
                services.audit.forced_release(key, member_id, transition)
            changes.append((key, transition))
    records = sum(last - first + 1 for _, transition in changes for first, last, _, _ in transition.changes)
    services.notes("share-locks-released", group=group_id, member=member_id, records=records)
    return records, services.writes.write(changes)


def refused(outcome: Outcome) -> list[str]:
    """Return the reasons why a release is not durable. Empty if all of it is."""
    return sorted({code.name for code in outcome.values() if code != ErrorCode.NONE})


def _settings(services: ShareServices, group_id: str) -> View:
    settings = services.coordinator.settings(group_id)
    return {
        "lock_duration_s": settings.lock_duration_s,
        "session_timeout_s": settings.session_timeout_s,
        "delivery_count_limit": settings.delivery_count_limit,
        "max_record_locks": settings.max_record_locks,
        "renew_enabled": settings.renew_enabled,
        "isolation_level": "read_committed" if settings.read_committed else "read_uncommitted",
    } | _queue_settings(settings.queue)


def _queue_settings(queue: QueueSettings | None) -> View:
    """Return the settings that only queues have. Empty for other groups."""
    if queue is None:
        return {}
    ordering = {"ordering": BY_KEY, "ordering_scan_records": queue.scan_records} if queue.is_ordered else {}
    delay = queue.redelivery
    if delay is None:
        return ordering
    return ordering | {
        "redelivery_delay_s": delay.first_s,
        "redelivery_delay_max_s": delay.max_s,
        "redelivery_delay_multiplier": delay.multiplier,
    }


def _member(
    services: ShareServices,
    share_group: ShareGroup,
    member: MemberDescription,
    lock_totals: Mapping[str, tuple[int, int]],
    now: float,
) -> View:
    acquired, renewals_most = lock_totals.get(member.member_id, (0, 0))
    return {
        "member": member.member_id,
        "client_id": member.client_id,
        "client_host": member.client_host.removeprefix("/"),
        "rack": member.rack_id,
        "epoch": member.member_epoch,
        "topics": list(member.topics),
        "assigned": {
            _topic_name(services, topic_id): list(parts) for topic_id, parts in sorted(member.assignment.items())
        },
        "session_ends_in_s": round(share_group.members[member.member_id].deadline - now, 3),
        "acquired": acquired,
        "renewals_most": renewals_most,
    }


def _partition(services: ShareServices, key: ShareKey, share: Share, now: float) -> View:
    partition = share.partition
    statistics = partition.statistics()
    share.note_oldest(now)
    return {
        "topic": _topic_name(services, key.topic_id),
        "partition": key.partition,
        "leader": share.node_id,
        "start_offset": partition.start_offset,
        "end_offset": partition.end_offset,
        "available": statistics.available,
        "acquired": statistics.acquired,
        "being_acknowledged": statistics.pending,
        "dead_letters_waiting": partition.dead_letters_waiting(),
        "delayed": sum(wait.last - wait.first + 1 for wait in partition.waiting()),
        "blocked": partition.blocked_records(),
        "settled_behind": statistics.delivery_complete,
    } | _oldest(partition, share, now)


def _oldest(partition: SharePartition, share: Share, now: float) -> View:
    """Return the offset that blocks the start offset, since when, and which member holds it."""
    if share.oldest == NOTHING_READ:
        return {"oldest_unsettled": None, "oldest_blocked_s": None, "oldest_held_by": None, "oldest_renewals": None}
    holder = next((lock for lock in partition.locks() if lock.first <= share.oldest <= lock.last), None)
    return {
        "oldest_unsettled": share.oldest,
        "oldest_blocked_s": round(now - share.oldest_since, 3),
        "oldest_held_by": None if holder is None else holder.member_id,
        "oldest_renewals": None if holder is None else holder.renewals,
    }


def _lock(services: ShareServices, key: ShareKey, lock: Lock, now: float) -> View:
    return {
        "topic": _topic_name(services, key.topic_id),
        "partition": key.partition,
        "first": lock.first,
        "last": lock.last,
        "member": lock.member_id,
        "delivery_count": lock.delivery_count,
        "held_s": round(now - lock.acquired_at, 3),
        "ends_in_s": None if lock.deadline == -inf else round(lock.deadline - now, 3),
        "renewals": lock.renewals,
    }


def _topic_name(services: ShareServices, topic_id: bytes) -> str:
    """Return the topic's name, or its id in hex if the name has not been looked up since the start."""
    topic = services.topology.topic_by_id(topic_id)
    return topic_id.hex() if topic is None else topic.name
