"""Groups that commit individually, as every proxy knows them from the topic of ranges, whichever proxy owns them.

Only records of type *group* matter here. The early check of requests (`early_matches`) reads the result in C: a dict of
group ids, and the partitions of the topic that are *uncertain*, that is, whose groups are unknown. A partition is
uncertain

- while it is loaded. Requests of its groups wait (`is_known` returns None). If loading takes longer than PASS_AFTER_S,
  they are treated as groups without ranges until it is loaded.
- while it cannot be read here, or has more groups than can be remembered. All of its groups are then treated as known,
  so that their commits go to the owner.

If the proxy lacks the identity or the rights for the topic, no group is known and no request waits (`off`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import trio

from kafka_share_proxy.brokers.internal_topics import TopicRefused
from kafka_share_proxy.commits.state_records import (
    INDIVIDUAL_COMMITS,
    RANGE_PREFIX,
    GroupKey,
    decode_key,
    group_time_ms,
    is_range_key,
)
from kafka_share_proxy.durable.ownership import lacks_identity
from kafka_share_proxy.durable.state_host import BrokerAccess
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.durable.tail import Tail
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.errors import ProxyError

GROUPS_MAX = 100_000
"""Maximum number of groups. Beyond it, all groups of the partition with the next one go to their owner."""
GROUP_CHARACTERS_MAX = 16_000_000
"""Maximum total length of the ids, with the same effect. An id may have 32 KiB."""
PASS_AFTER_S = 30.0
"""Seconds that plain commits wait for a topic that cannot be read."""
CHECK_S = 1.0
"""Seconds between two checks while partitions are loaded."""


class FollowedGroups:
    """See described_state.Follower."""

    def __init__(
        self,
        notes: Notes,
        clock: Callable[[], float] = trio.current_time,
        *,
        access: BrokerAccess | None = None,
        is_owned: Callable[[int], bool] = lambda _partition: False,
    ) -> None:
        """`access`: for the topic of ranges. None if ranges are in memory. `is_owned`: see Tail."""
        self.groups: dict[str, int] = {}
        """Partition by group id. The early check of requests reads this dict directly."""
        self.uncertain: dict[int, bool] = {}
        """True if all groups of the partition are treated as known."""
        self.off = ""
        self.overflowing: set[int] = set()
        self._notes = notes
        self._clock = clock
        self._characters = 0
        self._loading_since: float | None = None
        self._loading = trio.Event()
        """Set while partitions are loaded."""
        self._gave_up = False
        self._waiters: list[Promise[None]] = []
        self.tail: Tail | None = None
        """None if ranges are in memory."""
        if access is not None:
            self.tail = Tail(
                INDIVIDUAL_COMMITS,
                self,
                access,
                unwanted=RANGE_PREFIX,
                is_owned=is_owned,
                on_read=self._on_read,
                on_trouble=self._on_trouble,
            )
        # Clients may be served before `run` begins.
        self.uncertain.update(dict.fromkeys(self._loading_partitions(), False))

    def is_known(self, group_id: str) -> bool | None:
        """Return True if the group is marked. None while that is unknown."""
        if group_id in self.groups:
            return True
        if not self.uncertain:
            return False
        certainty = self.uncertain.get(state_partition(group_id), False)
        return certainty or (None if state_partition(group_id) in self.uncertain else False)

    def changed(self) -> Promise[None]:
        """Return a promise for the next change. Callers that stop waiting must call `forget_waiter`."""
        promise: Promise[None] = Promise()
        self._waiters.append(promise)
        return promise

    def forget_waiter(self, promise: Promise[None]) -> None:
        if promise in self._waiters:
            self._waiters.remove(promise)

    def add(self, group_id: str) -> None:
        """Add a group before this proxy's own tail reads the record."""
        partition = state_partition(group_id)
        if group_id in self.groups or partition in self.overflowing:
            return
        if len(self.groups) >= GROUPS_MAX or self._characters + len(group_id) > GROUP_CHARACTERS_MAX:
            self._overflow(partition)
        else:
            self.groups[group_id] = partition
            self._characters += len(group_id)

    # The tail

    async def run(self) -> None:
        """Follow the topic of ranges, until cancelled."""
        if self.tail is None:
            return
        self._update_uncertain()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.tail.run)
            while True:
                await self._loading.wait()
                await trio.sleep(CHECK_S)
                self._update_uncertain()

    def apply(self, key: bytes, value: bytes | None) -> None:
        if is_range_key(key) or INDIVIDUAL_COMMITS.is_keep_alive(key):
            return
        decoded = decode_key(key)
        assert isinstance(decoded, GroupKey)  # noqa: S101  # ranges were handled above
        if value is None:
            self._remove(decoded.group_id)
        else:
            group_time_ms(value)  # raises if the version is unknown
            self.add(decoded.group_id)

    def forget(self, partitions: Collection[int]) -> None:
        forgotten = set(partitions)
        self.overflowing -= forgotten
        for group_id in [name for name, partition in self.groups.items() if partition in forgotten]:
            self._remove(group_id)
        self._update_uncertain()

    def _remove(self, group_id: str) -> None:
        if self.groups.pop(group_id, None) is not None:
            self._characters -= len(group_id)

    def _overflow(self, partition: int) -> None:
        self._notes("commit-groups-too-many", partition=partition, groups=len(self.groups), groups_max=GROUPS_MAX)
        self.forget([partition])
        self.overflowing.add(partition)
        self._update_uncertain()

    def _on_read(self) -> None:
        self.off = ""
        self._update_uncertain()

    def _on_trouble(self, error: ProxyError) -> None:
        if lacks_identity(error) or isinstance(error, TopicRefused):
            self.off = str(error)
            self._update_uncertain()

    # Unknown groups

    def _update_uncertain(self) -> None:
        unreadable: Collection[int] = () if self.tail is None else self.tail.unreadable
        uncertain = dict.fromkeys((*unreadable, *self.overflowing), True)
        loading = [] if self.off else [p for p in self._loading_partitions() if p not in uncertain]
        self._note_loading(loading)
        if not self._gave_up:
            uncertain.update(dict.fromkeys(loading, False))
        if uncertain != self.uncertain:
            self.uncertain.clear()
            self.uncertain.update(uncertain)
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.set(None)

    def _loading_partitions(self) -> list[int]:
        if self.tail is None or self.tail.is_all_loaded:
            return []
        return [partition for partition in INDIVIDUAL_COMMITS.all if not self.tail.is_loaded(partition)]

    def _note_loading(self, loading: Collection[int]) -> None:
        now = self._clock()
        if not loading:
            self._loading_since = None
            self._loading = trio.Event() if self._loading.is_set() else self._loading
            if self._gave_up:
                self._gave_up = False
                self._notes("commit-groups-known")
        elif self._loading_since is None:
            self._loading_since = now
            self._loading.set()
        elif not self._gave_up and now - self._loading_since >= PASS_AFTER_S:
            self._gave_up = True
            reason = "plain commits pass, also those of groups with ranges: they may be delivered again"
            self._notes("commit-groups-not-known", reason=reason, partitions=len(loading))
