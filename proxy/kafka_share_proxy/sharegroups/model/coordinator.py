"""All share groups served by this process: members, settings, sessions, share partitions. No I/O.

Handlers look up state here, let the state machines decide, write the decisions to the journal and apply them. Locks
belong to sessions at the leader (sharegroups/README.md rule 23). An idle share partition rests as its stored bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import NamedTuple, cast

from kafka_share_proxy.sharegroups.model.dead_letters import WAITING_MIN
from kafka_share_proxy.sharegroups.model.deadlines import Deadlines
from kafka_share_proxy.sharegroups.model.group import ShareGroup
from kafka_share_proxy.sharegroups.model.offset_runs import LockIndex
from kafka_share_proxy.sharegroups.model.partition import SharePartition, Transition
from kafka_share_proxy.sharegroups.model.queue_partition import (
    QueuePartition,
    class_for,
    is_for_named_delays,
    partition_of,
)
from kafka_share_proxy.sharegroups.model.queue_settings import NO_QUEUE
from kafka_share_proxy.sharegroups.model.redelivery import DelayedRuns
from kafka_share_proxy.sharegroups.model.resting import RestingShares
from kafka_share_proxy.sharegroups.model.sessions import Session, ShareSessions
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits, GroupSettings, effective
from kafka_share_proxy.sharegroups.model.snapshot import ARCHIVING, SNAPSHOT_BYTES_MAX, ShareSnapshot, offsets_in
from kafka_share_proxy.wire.values import UNKNOWN_NODE, TopicIdPartition

NOTHING_READ = -1

REST_STEP_S, REST_STEPS = 1.0, 60
"""Seconds per step, and steps per round over all loaded share partitions. One not used for a whole round rests."""

READ_BYTES_FIRST = 1 << 18
READ_BYTES_MIN = 1 << 16
"""Initial and minimum bytes of a read. A slow member must not cause megabytes to be read for every record."""

RECORD_OVERHEAD = 128
"""Bytes of a record batch with one snapshot in addition to the snapshot and the group id: its header, and the rest of
the key.
"""


class ShareKey(NamedTuple):
    """A topic-partition within one group."""

    group_id: str
    topic_id: bytes
    partition: int


@dataclass(slots=True)
class Share:
    """A loaded share partition."""

    key: ShareKey
    partition: SharePartition
    node_id: int
    """Node id of the leader whose clients hold its locks."""
    read_at: float = -inf
    """Time of the last response to an upstream Fetch of its head."""
    read_upto: int = NOTHING_READ
    """Offset after the last record of that Fetch."""
    used: bool = True
    """True if it was used since the last check for idle share partitions."""
    read_bytes: int = READ_BYTES_FIRST
    """Bytes to request next. Doubled if members consume what was read, halved if they do not."""

    oldest: int = NOTHING_READ
    """Oldest offset in flight, which blocks the start offset."""
    oldest_since: float = -inf

    def note_oldest(self, now: float) -> None:
        """Update since when the oldest offset in flight has been the oldest, after a change of the window."""
        partition = self.partition
        oldest = partition.start_offset if partition.end_offset >= partition.start_offset else NOTHING_READ
        if oldest != self.oldest:
            self.oldest, self.oldest_since = oldest, now

    def size_read(self, offset: int, now: float, age_s: float, bytes_max: int) -> int:
        """Return the bytes to request from this offset on. Records not acquired in time have to be read again."""
        if self.read_upto != NOTHING_READ:
            if offset < self.read_upto:
                self.read_bytes = max(self.read_bytes // 2, READ_BYTES_MIN)
            elif now - self.read_at < age_s:
                self.read_bytes *= 2
        self.read_bytes = min(self.read_bytes, bytes_max)
        return self.read_bytes


_NO_GROUPS: Mapping[str, Share] = {}

Change = tuple[ShareKey, Transition]
"""A decided change of a share partition, to be written and then applied."""


class ShareCoordinator:
    """The only owner of share state in this process. All times are `now`, monotonic seconds."""

    def __init__(self, limits: BrokerShareLimits, delayed: DelayedRuns | None = None) -> None:
        """`delayed`: empty, with the clocks for stored due times."""
        self.limits = limits
        self._delayed = DelayedRuns() if delayed is None else delayed
        self.on_dead_letters: Callable[[ShareKey], None] = lambda _key: None
        """Called with a share partition whose records begin to wait for their dead letters."""
        self.sessions = ShareSessions(limits.group_share_max_share_sessions)
        self._groups: dict[str, ShareGroup] = {}
        self._stored: dict[str, dict[str, str]] = {}
        self._settings: dict[str, GroupSettings] = {}
        self._default = effective({}, limits)
        self._held_back: dict[str, int] = {}
        """`max_record_locks` of groups that are handed over."""
        self.ordered: set[str] = set()
        """Groups with key order."""
        self._locks = LockIndex()
        self._deadlines = Deadlines()
        """Earliest end of a member's session by group. Groups without members are left out."""
        self._ends_at = self._deadlines.not_later_than
        """One bound method for all groups, of which there may be many."""
        self._shares: dict[ShareKey, Share] = {}
        self._loaded: dict[str, dict[ShareKey, None]] = {}
        """Share partitions of each group, in the order in which they were loaded."""
        self._resting = RestingShares()
        self._record_bytes = SNAPSHOT_BYTES_MAX
        self._rest_at = -inf
        self._to_rest: list[ShareKey] = []
        """Share partitions that the present round has not checked yet."""
        self._rest_step = 1
        self._groups_of: dict[TopicIdPartition, dict[str, Share]] = {}

    # Groups and their settings

    @property
    def groups(self) -> Mapping[str, ShareGroup]:
        return self._groups

    def group(self, group_id: str) -> ShareGroup | None:
        return self._groups.get(group_id)

    def add_group(self, group_id: str) -> ShareGroup:
        """Hold a group. Return the existing one if it is already held."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ShareGroup(group_id, self._ends_at)
        return group

    def remove_group(self, group_id: str) -> tuple[ShareKey, ...]:
        """Remove a group, its sessions and share partitions (not its settings). Return the share partitions' keys."""
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
        """Return the effective settings of a group, which need not exist."""
        return self._settings.get(group_id, self._default)

    def stored_settings(self, group_id: str) -> Mapping[str, str]:
        """Return the settings stored for a group, which need not exist."""
        return self._stored.get(group_id, {})

    def groups_with_settings(self) -> tuple[str, ...]:
        return tuple(sorted(self._stored))

    def store_settings(self, group_id: str, values: Mapping[str, str]) -> None:
        """Replace the settings of a group immediately. The caller has checked them (`settings.check_stored`)."""
        was_committed = self.settings(group_id).read_committed
        if values:
            self._stored[group_id] = dict(values)
        else:
            self._stored.pop(group_id, None)
        self._settle_settings(group_id)
        queue = self.settings(group_id).queue
        if queue is not None and queue.is_ordered:
            self.ordered.add(group_id)
        else:
            self.ordered.discard(group_id)
        for key, share in self.loaded_of(group_id):
            if queue is not None or not is_for_named_delays(share.partition):
                share.partition = self._bounded(key, self._of_settings_class(key, share.partition))
            if was_committed != self.settings(group_id).read_committed:
                share.partition.forget_keys()

    def hold_back(self, group_id: str, max_record_locks: int | None) -> None:
        """Let a group acquire less (`settings.WINDOW_CLOSED`, `settings.NOTHING_ACQUIRED`). None: as set."""
        if max_record_locks is None:
            self._held_back.pop(group_id, None)
        else:
            self._held_back[group_id] = max_record_locks
        self._settle_settings(group_id)

    def _settle_settings(self, group_id: str) -> None:
        stored, held_back = self._stored.get(group_id), self._held_back.get(group_id)
        if stored is None and held_back is None:
            self._settings.pop(group_id, None)
            return
        settings = self._default if stored is None else effective(stored, self.limits)
        self._settings[group_id] = settings if held_back is None else replace(settings, max_record_locks=held_back)

    # Share partitions

    def share(self, key: ShareKey) -> Share | None:
        """Return a share partition, loading it if it rests. None if it has no state."""
        share = self._shares.get(key)
        if share is None:
            return self._load(key)
        share.used = True
        return share

    def share_of(self, group_id: str, partition: TopicIdPartition) -> Share | None:
        """Return a share partition as `share` does. A loaded one needs no key for it."""
        share = self._groups_of.get(partition, _NO_GROUPS).get(group_id)
        if share is None:
            return self._load(ShareKey(group_id, *partition))
        share.used = True
        return share

    def shares(self) -> Iterator[tuple[ShareKey, Share]]:
        return iter(self._shares.items())

    def keys_of(self, group_id: str) -> tuple[ShareKey, ...]:
        resting = [ShareKey(group_id, *topic_partition) for topic_partition in self._resting.of_group(group_id)]
        return (*self._loaded.get(group_id, ()), *resting)

    def loaded_of(self, group_id: str) -> list[tuple[ShareKey, Share]]:
        return [(key, self._shares[key]) for key in self._loaded.get(group_id, ())]

    def topics(self) -> set[tuple[str, bytes]]:
        """Return (group id, topic id) of all share partitions, in time linear in those loaded."""
        return {(key.group_id, key.topic_id) for key in self._shares}.union(self._resting.topics())

    @property
    def resting(self) -> int:
        return len(self._resting)

    def holds(self, group_id: str, member_id: str, topic_id: bytes, partition: int) -> bool:
        """Return True if a member holds records of a share partition. No member holds records of a resting one."""
        share = self._shares.get(ShareKey(group_id, topic_id, partition))
        return share is not None and share.partition.is_held_by(member_id)

    def stored_share(self, key: ShareKey) -> bytes | None:
        """Return a share partition as it is stored (an encoded `ShareSnapshot`). A resting one stays at rest."""
        share = self._shares.get(key)
        if share is not None:
            return share.partition.snapshot().encode()
        return self._resting.get(*key)

    def progress(self, key: ShareKey) -> tuple[int, int] | None:
        """Return start offset and number of settled offsets after it. None without state. A resting share partition
        stays at rest.
        """
        share = self._shares.get(key)
        if share is not None:
            return share.partition.start_offset, share.partition.statistics().delivery_complete
        value = self._resting.get(*key)
        return None if value is None else ShareSnapshot.progress_in(value)

    def rest(self, key: ShareKey, value: bytes) -> None:
        """Hold a share partition as its stored bytes (an encoded `ShareSnapshot`)."""
        self._resting.put(*key, value)

    def clear(self) -> None:
        """Remove everything: another proxy owns the state now, or it will be loaded again."""
        for group in self._groups.values():
            group.dead = True
        for held in (
            self._groups,
            self._stored,
            self._settings,
            self._held_back,
            self._shares,
            self._loaded,
            self._groups_of,
            self.ordered,
        ):
            held.clear()
        self._resting.clear()
        self._to_rest.clear()
        self._deadlines = Deadlines()
        self._ends_at = self._deadlines.not_later_than
        self.sessions = ShareSessions(self.limits.group_share_max_share_sessions)
        self._locks = LockIndex()
        self._delayed = self._delayed.emptied()

    def _load(self, key: ShareKey) -> Share | None:
        value = self._resting.take(*key)
        if value is None:
            return None
        snapshot = ShareSnapshot.decode(value)
        partition_class = class_for(self.settings(key.group_id).queue)
        partition = partition_class.from_snapshot(snapshot, locks=self._locks, key=key)
        share = self.add_share(key, partition, UNKNOWN_NODE)
        if snapshot.due_s:
            self.queue_of(share).delay_again(snapshot.due_s)
        if any(run.state >= WAITING_MIN for run in share.partition.runs):
            self.on_dead_letters(key)
        return share

    def load_dead_letters(self, group_id: str) -> None:
        """Load the share partitions of a group whose records wait for their dead letters since before a takeover."""
        queue = self.settings(group_id).queue
        if queue is None or queue.dead_letters is None:
            return
        for key in self.keys_of(group_id):
            value = self.stored_share(key)
            if value is not None and any(batch[2] == ARCHIVING for batch in ShareSnapshot.decode(value).batches):
                self.share(key)

    def queue_of(self, share: Share) -> QueuePartition:
        """Return a share partition as a queue. A member may name a delay in a group without queue settings."""
        if not isinstance(share.partition, QueuePartition):
            queue = QueuePartition.of(share.partition, NO_QUEUE, self._delayed)
            share.partition = self._bounded(cast(ShareKey, queue.key), queue)
            return queue
        return share.partition

    def rest_idle(self) -> None:
        """Put share partitions to rest that were not used since the last call, unless a member holds their records."""
        for key in list(self._shares):
            self._rest_if_idle(key)

    def rest_some(self, now: float) -> float:
        """Check the next share partitions for idleness. Return when the following step is due.

        Checking all of them in one step would block the loop.
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
        return self._groups_of.get(TopicIdPartition(topic_id, partition), _NO_GROUPS)

    def lowest_kept_from(self, topic_id: bytes, partition: int, read_committed: bool, offset: int) -> int:
        """Return the lowest next offset of the groups with this isolation level, at most `offset`."""
        for group_id, share in self.groups_of(topic_id, partition).items():
            if self.settings(group_id).read_committed == read_committed:
                offset = min(offset, share.partition.kept_from())
        return offset

    def new_partition(self, key: ShareKey, start_offset: int, state_epoch: int = 0) -> SharePartition:
        """Create a share partition that starts at this offset. `add_share` loads it once it is stored."""
        return SharePartition(start_offset, state_epoch, locks=self._locks, key=key)

    def add_share(self, key: ShareKey, partition: SharePartition, node_id: int) -> Share:
        self._resting.take(*key)
        partition = self._of_settings_class(key, partition)
        share = Share(key, self._bounded(key, partition), node_id)
        self._shares[key] = share
        self._loaded.setdefault(key.group_id, {})[key] = None
        self._groups_of.setdefault(TopicIdPartition(key.topic_id, key.partition), {})[key.group_id] = share
        return share

    def _of_settings_class(self, key: ShareKey, partition: SharePartition) -> SharePartition:
        """Return a share partition of the class that its group's settings need."""
        partition = partition_of(partition, self.settings(key.group_id).queue, self._delayed)
        if isinstance(partition, QueuePartition):
            partition.on_dead_letters = partial(self.on_dead_letters, key)
        return partition

    def bound_records(self, record_bytes: int) -> None:
        """Limit the size of a record batch with one snapshot to `record_bytes`, and to SNAPSHOT_BYTES_MAX."""
        self._record_bytes = min(record_bytes, SNAPSHOT_BYTES_MAX)
        for key, share in self._shares.items():
            self._bounded(key, share.partition)

    def _bounded(self, key: ShareKey, partition: SharePartition) -> SharePartition:
        """Set the maximum number of offsets in the window, and return the share partition."""
        value_bytes = self._record_bytes - RECORD_OVERHEAD - len(key.group_id.encode())
        partition.offsets_max = offsets_in(value_bytes, partition.batch_bytes)
        return partition

    def remove_share(self, key: ShareKey) -> None:
        self._resting.take(*key)
        if self._shares.pop(key, None) is None:
            return
        loaded = self._loaded[key.group_id]
        loaded.pop(key, None)
        if not loaded:
            del self._loaded[key.group_id]
        topic_partition = TopicIdPartition(key.topic_id, key.partition)
        del self._groups_of[topic_partition][key.group_id]
        if not self._groups_of[topic_partition]:
            del self._groups_of[topic_partition]

    def move_leader(self, key: ShareKey, node_id: int) -> Change | None:
        """Record the leader. If it moved, release all locks, once."""
        share = self.share(key)
        if share is None or share.node_id == node_id:
            return None
        share.node_id = node_id
        transition = share.partition.decide_release_all(self.settings(key.group_id))
        return None if transition is None else (key, transition)

    def release(self, session: Session) -> list[Change]:
        """Release the locks of an ended session's member at that node (sharegroups/README.md rule 18)."""
        group_id, member_id, node_id = session.key
        settings = self.settings(group_id)
        changes = []
        for topic_partition in session.partitions:
            key = ShareKey(group_id, topic_partition.topic_id, topic_partition.partition)
            share = self._shares.get(key)
            if share is None or share.node_id != node_id:
                continue
            transition = share.partition.decide_release(member_id, settings)
            if transition is not None:
                changes.append((key, transition))
        return changes

    # Time

    def expire(self, now: float) -> list[Change]:
        """Remove members without heartbeat and expired locks. Return the changes to write.

        The records are available again immediately. The write follows (sharegroups/README.md rule 35).
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
                continue  # unloaded meanwhile, together with its locks
            transition = partition.expire(expired, self.settings(key.group_id), now)
            if transition is not None:
                changes.append((key, transition))
        return changes

    def redeliver(self, now: float) -> list[ShareKey]:
        """Make records available whose redelivery delay is over. Return their share partitions."""
        keys: list[ShareKey] = []
        for partition, runs in self._delayed.take(now).items():
            key: ShareKey = partition.key
            share = self._shares.get(key)
            if share is not None and share.partition is partition and isinstance(partition, QueuePartition):
                partition.redeliver(runs)
                keys.append(key)
        return keys

    def next_deadline(self) -> float:
        """Return when `expire` or `redeliver` is due next. It may be too early, never too late."""
        return min(self._deadlines.next(), self.next_lock_deadline())

    def next_lock_deadline(self) -> float:
        """Return when the next lock or redelivery delay ends. It may be too early, never too late."""
        return min(self._locks.next_deadline(), self._delayed.next() if self._delayed else inf)
