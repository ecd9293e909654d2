"""Which groups commit individually, as every proxy knows them: from the topic of ranges, whoever owns it.

Theory of operation. A `durable.tail.Tail` reads the topic; of its records only the marks of groups count here. What is
known is read by the walk over requests (`early_looks`), in C: a dict of group ids, and the partitions of the topic of
which it is *uncertain* which groups they have. A partition is uncertain

- while it is loaded: requests of its groups wait (`is_known` says None). Where that takes longer than PASS_AFTER_S,
  they are taken for groups without ranges until it is loaded;
- while it cannot be read here, or has more groups than are remembered: all of its groups are taken for known, so that
  their commits go to the owner.

Without the identity or the rights that the topic asks for nothing is known and nothing waits (`off`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import trio

from proxy.brokers.internal_topics import TopicRefused
from proxy.commits.state_records import INDIVIDUAL_COMMITS, GroupKey, decode_key, group_time_ms, is_range_key
from proxy.durable.hosted_state import lacks_identity
from proxy.durable.state_partitions import state_partition
from proxy.durable.tail import Tail
from proxy.loop.interfaces import Notes
from proxy.loop.promise import Promise
from proxy.wire.errors import ProxyError

GROUPS_MAX = 100_000
"""Groups remembered; of the partition with one more, all groups go to their owner."""
GROUP_CHARACTERS_MAX = 16_000_000
"""Characters of their ids, likewise: an id may have 32 KiB."""
PASS_AFTER_S = 30.0
"""Plain commits wait no longer for a topic that cannot be read: then they pass."""
LOOK_S = 1.0
"""Between two looks at how long that has taken."""


class FollowedGroups:
    """See described_state.Follower."""

    def __init__(self, notes: Notes, clock: Callable[[], float] = trio.current_time) -> None:
        self.groups: dict[str, int] = {}
        """Group id -> the partition of the topic that holds its mark. The walk over requests looks in here itself."""
        self.uncertain: dict[int, bool] = {}
        """Partitions of which it is not known which groups they have -> whether all are taken for known."""
        self.off = ""
        """What the proxy lacks to read the topic; empty: nothing."""
        self.overflowing: set[int] = set()
        """Partitions that have more groups than are remembered."""
        self._notes = notes
        self._clock = clock
        self._tail: Tail | None = None
        self._characters = 0
        self._loading_since: float | None = None
        self._gave_up = False
        self._waiters: list[Promise[None]] = []

    def is_known(self, group_id: str) -> bool | None:
        """Whether all commits of a group go to its owner; None: that is not known yet."""
        if group_id in self.groups:
            return True
        if not self.uncertain:
            return False
        certainty = self.uncertain.get(state_partition(group_id), False)
        return certainty or (None if state_partition(group_id) in self.uncertain else False)

    def changed(self) -> Promise[None]:
        """Settled when more is known; whoever stops waiting says so (`forget_waiter`)."""
        promise: Promise[None] = Promise()
        self._waiters.append(promise)
        return promise

    def forget_waiter(self, promise: Promise[None]) -> None:
        """Nobody waits for it any more."""
        if promise in self._waiters:
            self._waiters.remove(promise)

    def mark(self, group_id: str) -> None:
        """The owner has stored that a group commits individually; its own tail need not say so first."""
        partition = state_partition(group_id)
        if group_id in self.groups or partition in self.overflowing:
            return
        if len(self.groups) >= GROUPS_MAX or self._characters + len(group_id) > GROUP_CHARACTERS_MAX:
            self._overflow(partition)
        else:
            self.groups[group_id] = partition
            self._characters += len(group_id)

    # The tail

    async def run(self, tail: Tail) -> None:
        """Follow the topic until cancelled."""
        self._tail = tail
        tail.on_read, tail.on_trouble = self._read, self._troubled
        self._look()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tail.run)
            while True:
                await trio.sleep(LOOK_S)
                self._look()

    def apply(self, key: bytes, value: bytes | None) -> None:
        """See described_state.Follower."""
        if is_range_key(key) or INDIVIDUAL_COMMITS.is_keep_alive(key):
            return
        named = decode_key(key)
        assert isinstance(named, GroupKey)  # noqa: S101  # ranges are told apart before
        if value is None:
            self._unmark(named.group_id)
        else:
            group_time_ms(value)  # of a version that is known here
            self.mark(named.group_id)

    def forget(self, partitions: Collection[int]) -> None:
        """See described_state.Follower."""
        gone = set(partitions)
        self.overflowing -= gone
        for group_id in [name for name, partition in self.groups.items() if partition in gone]:
            self._unmark(group_id)
        self._look()

    def _unmark(self, group_id: str) -> None:
        if self.groups.pop(group_id, None) is not None:
            self._characters -= len(group_id)

    def _overflow(self, partition: int) -> None:
        self._notes("commit-groups-too-many", partition=partition, groups=len(self.groups), groups_max=GROUPS_MAX)
        self.forget([partition])
        self.overflowing.add(partition)
        self._look()

    def _read(self) -> None:
        self.off = ""
        self._look()

    def _troubled(self, error: ProxyError) -> None:
        if lacks_identity(error) or isinstance(error, TopicRefused):
            self.off = str(error)
            self._look()

    # What is not known

    def _look(self) -> None:
        """Which partitions are uncertain now."""
        unreadable: Collection[int] = () if self._tail is None else self._tail.unreadable
        found = dict.fromkeys((*unreadable, *self.overflowing), True)
        loading = [] if self.off else [p for p in INDIVIDUAL_COMMITS.all if p not in found and not self._is_loaded(p)]
        self._be_patient(loading)
        if not self._gave_up:
            found.update(dict.fromkeys(loading, False))
        if found != self.uncertain:
            self.uncertain.clear()
            self.uncertain.update(found)
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.set(None)

    def _is_loaded(self, partition: int) -> bool:
        return self._tail is None or self._tail.is_loaded(partition)

    def _be_patient(self, loading: Collection[int]) -> None:
        """For a bounded time."""
        now = self._clock()
        if not loading:
            self._loading_since = None
            if self._gave_up:
                self._gave_up = False
                self._notes("commit-groups-known")
        elif self._loading_since is None:
            self._loading_since = now
        elif not self._gave_up and now - self._loading_since >= PASS_AFTER_S:
            self._gave_up = True
            reason = "plain commits pass, also those of groups with ranges: they may be delivered again"
            self._notes("commit-groups-not-known", reason=reason, partitions=len(loading))
