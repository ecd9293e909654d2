"""Random events for groups with redelivery delay, also changed and switched off (sharegroups/README.md rules 80-84).

Invariants in addition to those of `tests/support/storm.py`, for groups whose settings stay:

- a record that was released, or whose lock expired, is not acquired before its due time, also after a takeover;
- it waits no longer than its due time, after a takeover at most a second longer, and alarms are not late;
- the end of a session and a moved leader free records without delay.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from kafka_share_proxy.sharegroups.model.coordinator import Change, ShareCoordinator, ShareKey
from kafka_share_proxy.sharegroups.model.partition import Transition
from kafka_share_proxy.sharegroups.model.queue_settings import DELAY
from kafka_share_proxy.sharegroups.model.redelivery import JITTER, STORED_AGAIN_S, DelayedRuns
from kafka_share_proxy.sharegroups.model.snapshot import AVAILABLE, ShareSnapshot
from kafka_share_proxy.sharegroups.state.state_writes import Outcome
from kafka_share_proxy.wire.errors import ErrorCode

from tests.sharegroups.model.world import Chooser
from tests.support import storm
from tests.support.storm import RELEASE, Held, Partition
from tests.support.storm_admin import AdminStorm

FIRST_S, MULTIPLIER, MAX_S = 4.0, 2.0, 12.0
SETTINGS = {
    DELAY: str(round(FIRST_S * 1000)),
    "share.redelivery.delay.max.ms": str(round(MAX_S * 1000)),
    "share.redelivery.delay.multiplier": str(MULTIPLIER),
}
WALL_S = 1_700_000_000.25
"""Seconds since 1970 when a storm begins: not a whole number, because stored due times are."""
EPSILON_S = 1e-6
Place = tuple[ShareKey, int, int]
"""Share partition, its life, and offset."""


class Due(NamedTuple):
    """When a record is available again."""

    earliest: float
    latest: float


class DelayedStorm(AdminStorm):
    """Storm over groups with a delay. The settings of the last one are changed."""

    def __init__(self, chooser: Chooser, *, groups: int = 3, partitions: int = 2, members: int = 3, limit: int = 4):
        self.due: dict[Place, Due] = {}
        self.waits = 0
        """Number of delays that ended."""
        self._released: dict[Place, float | None] = {}
        """When a release was decided that is not confirmed yet. None: it frees the record without delay."""
        self._is_without_delay = False
        super().__init__(chooser, groups=groups, partitions=partitions, members=members, limit=limit)
        for group_id in self.groups:
            self._store(group_id, SETTINGS)
            self._confirm_all()
        self.actions += [self.switch] * 2

    def make_coordinator(self) -> ShareCoordinator:
        return ShareCoordinator(self.limits, DelayedRuns(lambda: self.now, lambda: WALL_S + self.now))

    # What may happen

    def switch(self) -> None:
        """Change the delay of the last group, or switch it off."""
        group_id = self.groups[-1]
        delay = ("0", "1000", SETTINGS[DELAY])[self.chooser.number(0, 2)]
        if group_id not in self.changes.settings:
            self._store(group_id, {**self.coordinator.stored_settings(group_id), **SETTINGS, DELAY: delay})

    def pass_exactly(self, seconds: float) -> None:
        super().pass_exactly(seconds)
        self._redeliver()
        if self.calm:
            self._confirm_all()
            super().pass_exactly(2 * MAX_S)
            self._redeliver()

    def _redeliver(self) -> None:
        self.coordinator.redeliver(self.now)
        for place, due in list(self.due.items()):
            if due.latest <= self.now:
                del self.due[place]
                self.waits += 1

    # What is seen

    def fetch_as(
        self, partition: Partition, member: str, count: int, record_limit: bool, batch_size: int = 4
    ) -> list[int]:
        offsets = super().fetch_as(partition, member, count, record_limit, batch_size)
        for offset in offsets:
            due = self.due.pop(self._place(partition, offset), None)
            if due is not None and self._is_steady(partition):
                assert due.earliest <= self.now + EPSILON_S, f"{offset} was acquired at {self.now}, and waits: {due}"
        return offsets

    def check_state(self) -> None:
        super().check_state()
        for partition in self.partitions:
            share = self.coordinator.share(partition.key)
            if share is not None and self._is_steady(partition):
                waiting = {o: w.due for w in share.partition.waiting() for o in range(w.first, w.last + 1)}
                self._check_waiting(partition, waiting, share.partition.start_offset)

    def _check_waiting(self, partition: Partition, waiting: dict[int, float], start: int) -> None:
        """Compare the waiting records: `waiting` are those of the coordinator, with their due times."""
        least = self.reported[partition.key.group_id].least
        for offset, at in waiting.items():
            due = self.due.get(self._place(partition, offset))
            assert due is not None or at <= self.now + STORED_AGAIN_S, f"{offset} waits until {at} without a reason"
            if due is not None:
                assert due.earliest - EPSILON_S <= at <= due.latest + EPSILON_S, f"{offset} waits until {at}, not {due}"
        for (key, lives, offset), due in self.due.items():
            if (key, lives) == (partition.key, partition.lives) and start <= offset < partition.end:
                is_over = offset in partition.final or partition.count[offset] >= least or offset in partition.maybe
                assert offset in waiting or is_over or due.earliest <= self.now, f"{offset} does not wait: {due}"

    def comparable(self, snapshot: ShareSnapshot) -> Any:
        """Nothing is stored when a record becomes due. Therefore due times are not compared, nor the batches."""
        states = {
            offset: (state, count)
            for first, last, state, count in snapshot.batches
            for offset in range(first, last + 1)
            if (state, count) != (AVAILABLE, 0)
        }
        return snapshot.start_offset, snapshot.state_epoch, states

    def _next_end(self) -> float:
        steady = [due.latest for place, due in self.due.items() if self._still_waits(place)]
        return min([super()._next_end(), *(latest + EPSILON_S for latest in steady)], default=inf)

    def _still_waits(self, place: Place) -> bool:
        loaded = {key: share.partition for key, share in self.coordinator.loaded_of(place[0].group_id)}
        waits = loaded[place[0]].waiting() if place[0] in loaded else ()
        return any(each.first <= place[2] <= each.last for each in waits)

    # How

    def _is_steady(self, partition: Partition) -> bool:
        return partition.key.group_id != self.groups[-1]

    def _place(self, partition: Partition, offset: int) -> Place:
        return partition.key, partition.lives, offset

    def _bounds(self, partition: Partition, offset: int, since: float) -> Due:
        delay = min(MAX_S, FIRST_S * MULTIPLIER ** (partition.count[offset] - 1))
        return Due(since + delay * (1 - JITTER), since + delay * (1 + JITTER))

    def _write_all(self, changes: list[Change]) -> None:
        self._is_without_delay = True
        super()._write_all(changes)
        self._is_without_delay = False

    def _write(self, partition: Partition, transition: Transition, kinds: dict[int, int]) -> None:
        for offset, kind in kinds.items():
            if kind == RELEASE:
                self._released[self._place(partition, offset)] = None if self._is_without_delay else self.now
        super()._write(partition, transition, kinds)

    def _reported(
        self, partition: Partition, by: tuple[ShareCoordinator, int], kinds: dict[int, int], outcome: Outcome
    ) -> None:
        places = {(partition.key, by[1], offset): offset for offset in kinds}
        since = {place: self._released.pop(place, None) for place in places}
        is_current = by[0] is self.coordinator and not self._lost and by[1] == partition.lives
        if is_current and outcome[partition.key] == ErrorCode.NONE:
            for place, at in since.items():
                if at is not None:
                    due = self._bounds(partition, places[place], at)
                    self.due[place] = due._replace(latest=max(due.latest, self.now + STORED_AGAIN_S))
        super()._reported(partition, by, kinds, outcome)

    def _free(self, partition: Partition, is_free: Callable[[Held], bool]) -> bool:
        """Free expired locks only. Return True if any record was freed."""
        for offset, held in partition.held.items():
            if not held.pending and is_free(held):
                self.due[self._place(partition, offset)] = self._bounds(partition, offset, self.now)
        return super()._free(partition, is_free)

    def _adopt(self, partition: Partition, stored: ShareSnapshot | None) -> None:
        before = partition.lives
        super()._adopt(partition, stored)
        due_s = {} if stored is None else stored.due_s or {}
        batches = () if stored is None else stored.batches
        waiting = {o: due_s[first] for first, last, _, _ in batches if first in due_s for o in range(first, last + 1)}
        known = {place: self.due.pop(place) for place in list(self.due) if place[0] == partition.key}
        for offset, until in waiting.items():
            place, at = self._place(partition, offset), until - WALL_S
            since = self._released.get((partition.key, before, offset))
            due = known.get(place) if since is None else self._bounds(partition, offset, since)
            if at > self.now:
                self.due[place] = Due(at - 1 if due is None else due.earliest, at)


def run(chooser: Chooser, steps: int, **sizes: int) -> DelayedStorm:
    """Run one storm. A failure is raised with the end of its story."""
    finished_storm = storm.run(chooser, steps, DelayedStorm, **sizes)
    assert isinstance(finished_storm, DelayedStorm)
    return finished_storm
