"""All share groups served by this process: members, settings, sessions, share partitions. Pure.

Theory of operation. Handlers look things up here, let the machines decide, take the decisions through the journal and
apply them. A share partition's locks belong to sessions at one node, its leader; when the leader moves they are
released once, and a session that ends at the old node touches nothing at the new one (sharegroups/README.md rule 23).
A share partition that nobody uses rests as the bytes that were stored of it, and is made from them when somebody asks
for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from proxy.sharegroups.model.deadlines import Deadlines
from proxy.sharegroups.model.group import ShareGroup
from proxy.sharegroups.model.locks import LockIndex
from proxy.sharegroups.model.partition import SharePartition, Transition
from proxy.sharegroups.model.resting import RestingShares
from proxy.sharegroups.model.sessions import Session, ShareSessions
from proxy.sharegroups.model.settings import BrokerShareLimits, GroupSettings, effective
from proxy.sharegroups.model.snapshot import SNAPSHOT_BYTES_MAX, ShareSnapshot, offsets_in
from proxy.wire.values import UNKNOWN_NODE, TopicIdPartition

NOTHING_READ = -1
"""In place of an offset."""

REST_STEP_S, REST_STEPS = 1.0, 60
"""Loaded share partitions are looked at in turns of so many steps: one that nobody asked for in a whole turn rests."""

READ_BYTES_FIRST = 1 << 18
READ_BYTES_MIN = 1 << 16
"""Where reading ahead begins, and the least of it: a slow member must not have megabytes read for every record."""

RECORD_OVERHEAD = 128
"""What a record batch with one snapshot takes beside the snapshot and the group id: its header and the key's rest."""


class ShareKey(NamedTuple):
    """One share partition: a topic partition as one group has it."""

    group_id: str
    topic_id: bytes
    partition: int


@dataclass(slots=True)
class Share:
    """A loaded share partition."""

    partition: SharePartition
    node_id: int
    """The leader whose clients hold its locks."""
    read_at: float = -inf
    """When an upstream Fetch of its head was last answered."""
    read_upto: int = NOTHING_READ
    """The offset behind what that Fetch brought."""
    used: bool = True
    """Whether somebody has asked for it since the last look for idle ones."""
    read_bytes: int = READ_BYTES_FIRST
    """Bytes to ask for next: twice as many where members use up what was read, half where they do not."""

    oldest: int = NOTHING_READ
    """The oldest offset in flight: the start offset waits for it."""
    oldest_since: float = -inf

    def note_oldest(self, now: float) -> None:
        """Something was acquired or settled: remember since when the oldest offset in flight is the oldest."""
        partition = self.partition
        oldest = partition.start_offset if partition.end_offset >= partition.start_offset else NOTHING_READ
        if oldest != self.oldest:
            self.oldest, self.oldest_since = oldest, now

    def size_read(self, offset: int, now: float, age_s: float, bytes_max: int) -> int:
        """Bytes to ask for in a read from this offset on; what is read ahead and not used in time is read again."""
        if self.read_upto != NOTHING_READ:
            if offset < self.read_upto:
                self.read_bytes = max(self.read_bytes // 2, READ_BYTES_MIN)
            elif now - self.read_at < age_s:
                self.read_bytes *= 2
        self.read_bytes = min(self.read_bytes, bytes_max)
        return self.read_bytes


Change = tuple[ShareKey, Transition]
"""A decided change of a share partition, to be written and then applied."""


class ShareCoordinator:
    """The one owner of share state in this process. All times are `now`, monotonic seconds."""

    def __init__(self, limits: BrokerShareLimits) -> None:
        self.limits = limits
        self.sessions = ShareSessions(limits.group_share_max_share_sessions)
        self._groups: dict[str, ShareGroup] = {}
        self._stored: dict[str, dict[str, str]] = {}
        self._settings: dict[str, GroupSettings] = {}
        self._default = effective({}, limits)
        self._locks = LockIndex()
        self._deadlines = Deadlines()
        """When the first member's session of each group may end; groups without members are not in it."""
        self._ends_at = self._deadlines.not_later_than
        """Once for all groups: there may be many of them."""
        self._shares: dict[ShareKey, Share] = {}
        self._loaded: dict[str, set[ShareKey]] = {}
        """The loaded ones of each group."""
        self._resting = RestingShares()
        self._record_bytes = SNAPSHOT_BYTES_MAX
        self._rest_at = -inf
        self._to_rest: list[ShareKey] = []
        """What this turn has not looked at yet."""
        self._rest_step = 1
        self._groups_of: dict[TopicIdPartition, dict[str, Share]] = {}

    # Groups and their settings

    @property
    def groups(self) -> Mapping[str, ShareGroup]:
        """The share groups held here, by id."""
        return self._groups

    def group(self, group_id: str) -> ShareGroup | None:
        """A share group held here."""
        return self._groups.get(group_id)

    def add_group(self, group_id: str) -> ShareGroup:
        """Hold a new group; the one that is held already if it is."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ShareGroup(group_id, self._ends_at)
        return group

    def remove_group(self, group_id: str) -> tuple[ShareKey, ...]:
        """Forget a group, its sessions and share partitions (not its settings); gives the keys whose state is gone."""
        group = self._groups.pop(group_id, None)
        if group is not None:
            group.dead = True
            self._deadlines.forget(group_id)
        self.sessions.end_group(group_id)
        keys = self.keys_of(group_id)
        for key in keys:
            self.remove_share(key)
        return keys

    def settings(self, group_id: str) -> GroupSettings:
        """What holds for a group, held or not."""
        return self._settings.get(group_id, self._default)

    def stored_settings(self, group_id: str) -> Mapping[str, str]:
        """What was set for a group by name; groups need not exist to have settings."""
        return self._stored.get(group_id, {})

    def groups_with_settings(self) -> tuple[str, ...]:
        """Group ids that have settings of their own, sorted."""
        return tuple(sorted(self._stored))

    def store_settings(self, group_id: str, values: Mapping[str, str]) -> None:
        """Replace what is set for a group; checked by the caller (`settings.check_stored`). Holds from now on."""
        if values:
            self._stored[group_id] = dict(values)
            self._settings[group_id] = effective(values, self.limits)
        else:
            self._stored.pop(group_id, None)
            self._settings.pop(group_id, None)

    # Share partitions

    def share(self, key: ShareKey) -> Share | None:
        """A share partition; loaded now if it rests."""
        share = self._shares.get(key)
        if share is None:
            return self._load(key)
        share.used = True
        return share

    def shares(self) -> Iterator[tuple[ShareKey, Share]]:
        """All loaded share partitions."""
        return iter(self._shares.items())

    def keys_of(self, group_id: str) -> tuple[ShareKey, ...]:
        """The share partitions of a group, resting ones as well."""
        resting = [ShareKey(group_id, *place) for place in self._resting.of_group(group_id)]
        return (*self._loaded.get(group_id, ()), *resting)

    def loaded_of(self, group_id: str) -> list[tuple[ShareKey, Share]]:
        """The loaded share partitions of a group."""
        return [(key, self._shares[key]) for key in self._loaded.get(group_id, ())]

    def topics(self) -> set[tuple[str, bytes]]:
        """(group id, topic id) of all share partitions; walks over all of them that are loaded."""
        return {(key.group_id, key.topic_id) for key in self._shares}.union(self._resting.topics())

    @property
    def resting(self) -> int:
        """How many share partitions rest."""
        return len(self._resting)

    def holds(self, group_id: str, member_id: str, topic_id: bytes, partition: int) -> bool:
        """Whether a member holds records of a share partition; one that rests is held by nobody."""
        share = self._shares.get(ShareKey(group_id, topic_id, partition))
        return share is not None and share.partition.is_held_by(member_id)

    def rest(self, key: ShareKey, value: bytes) -> None:
        """Hold a share partition as what was stored of it (an encoded `ShareSnapshot`)."""
        self._resting.put(*key, value)

    def clear(self) -> None:
        """Hold nothing any more: the state is somebody else's, or is to be read anew."""
        for group in self._groups.values():
            group.dead = True
        for held in (self._groups, self._stored, self._settings, self._shares, self._loaded, self._groups_of):
            held.clear()
        self._resting.clear()
        self._to_rest.clear()
        self._deadlines = Deadlines()
        self._ends_at = self._deadlines.not_later_than
        self.sessions = ShareSessions(self.limits.group_share_max_share_sessions)
        self._locks = LockIndex()

    def _load(self, key: ShareKey) -> Share | None:
        value = self._resting.take(*key)
        if value is None:
            return None
        snapshot = ShareSnapshot.decode(value)
        partition = SharePartition.from_snapshot(snapshot, locks=self._locks, key=key)
        return self.add_share(key, partition, UNKNOWN_NODE)

    def rest_idle(self) -> None:
        """Put to rest what nobody asked for since the last call, unless a member holds something of it."""
        for key in list(self._shares):
            self._rest_if_idle(key)

    def rest_some(self, now: float) -> float:
        """The next step of a turn over all loaded share partitions, and when the one after it is due.

        A whole turn at once would keep everybody waiting.
        """
        if now < self._rest_at or not self._shares:
            return self._rest_at if self._shares else inf
        self._rest_at = now + REST_STEP_S
        if not self._to_rest:
            self._to_rest = list(self._shares)
            self._rest_step = len(self._to_rest) // REST_STEPS + 1
        for _ in range(min(len(self._to_rest), self._rest_step)):
            self._rest_if_idle(self._to_rest.pop())
        return self._rest_at

    def _rest_if_idle(self, key: ShareKey) -> None:
        share = self._shares.get(key)
        if share is None:
            return
        if share.used or share.partition.is_held():
            share.used = False
            return
        value = share.partition.snapshot().encode()
        self.remove_share(key)
        self.rest(key, value)

    def groups_of(self, topic_id: bytes, partition: int) -> Mapping[str, Share]:
        """The share partitions of one topic partition, by group id."""
        return self._groups_of.get(TopicIdPartition(topic_id, partition), {})

    def new_partition(self, key: ShareKey, start_offset: int, state_epoch: int = 0) -> SharePartition:
        """A share partition that begins here; `add_share` loads it once it is stored."""
        return SharePartition(start_offset, state_epoch, locks=self._locks, key=key)

    def add_share(self, key: ShareKey, partition: SharePartition, node_id: int) -> Share:
        """Load a share partition, in place of one that is loaded."""
        self._resting.take(*key)
        partition.offsets_max = self._offsets_max(key)
        share = Share(partition, node_id)
        self._shares[key] = share
        self._loaded.setdefault(key.group_id, set()).add(key)
        self._groups_of.setdefault(TopicIdPartition(key.topic_id, key.partition), {})[key.group_id] = share
        return share

    def bound_records(self, record_bytes: int) -> None:
        """A record batch with one snapshot may not become larger from now on, and the snapshot SNAPSHOT_BYTES_MAX."""
        self._record_bytes = min(record_bytes, SNAPSHOT_BYTES_MAX)
        for key, share in self._shares.items():
            share.partition.offsets_max = self._offsets_max(key)

    def _offsets_max(self, key: ShareKey) -> int:
        return offsets_in(self._record_bytes - RECORD_OVERHEAD - len(key.group_id.encode()))

    def remove_share(self, key: ShareKey) -> None:
        """Forget a share partition; harmless when it is not held."""
        self._resting.take(*key)
        if self._shares.pop(key, None) is None:
            return
        loaded = self._loaded[key.group_id]
        loaded.discard(key)
        if not loaded:
            del self._loaded[key.group_id]
        place = TopicIdPartition(key.topic_id, key.partition)
        del self._groups_of[place][key.group_id]
        if not self._groups_of[place]:
            del self._groups_of[place]

    def move_leader(self, key: ShareKey, node_id: int) -> Change | None:
        """The view names this leader: if it is another than before, all locks are released, once."""
        share = self.share(key)
        if share is None or share.node_id == node_id:
            return None
        share.node_id = node_id
        transition = share.partition.decide_release_all(self.settings(key.group_id))
        return None if transition is None else (key, transition)

    def release(self, session: Session) -> list[Change]:
        """A session has ended: its member's locks at that node are released (sharegroups/README.md rule 18)."""
        group_id, member_id, node_id = session.key
        settings = self.settings(group_id)
        changes = []
        for place in session.partitions:
            key = ShareKey(group_id, place.topic_id, place.partition)
            share = self._shares.get(key)
            if share is None or share.node_id != node_id:
                continue
            transition = share.partition.decide_release(member_id, settings)
            if transition is not None:
                changes.append((key, transition))
        return changes

    # Time

    def expire(self, now: float) -> list[Change]:
        """Members without heartbeat leave, locks past their deadline end; gives what is to be written.

        The records are available again at once: memory first, the write follows (sharegroups/README.md rule 35).
        """
        for group_id in self._deadlines.take(now):
            group = self._groups[group_id]
            group.expire(now)
            self._deadlines.not_later_than(group_id, group.next_deadline())
        changes: list[Change] = []
        for partition, expired in self._locks.expired(now).items():
            key: ShareKey = partition.key
            share = self._shares.get(key)
            if share is None or share.partition is not partition:
                continue  # unloaded meanwhile, its locks with it
            transition = partition.expire(expired, self.settings(key.group_id))
            if transition is not None:
                changes.append((key, transition))
        return changes

    def next_deadline(self) -> float:
        """When `expire` has something to do next; it may turn out to be too early, never too late."""
        return min(self._deadlines.next(), self._locks.next_deadline())

    def next_lock_deadline(self) -> float:
        """When the next acquisition lock may end."""
        return self._locks.next_deadline()
