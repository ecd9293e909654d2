"""Random events for groups with key order, also switched off and on (sharegroups/README.md rules 74-79).

Invariants in addition to those of `tests/support/storm.py`:

- while a group is ordered, no record is acquired before all earlier ones with its key are settled;
- if it was ordered since its state began, only one record of a key is held, and records are settled in offset order;
- blocked records are those with an earlier unsettled record of their key, and all records are settled in the end.
"""

from __future__ import annotations

from array import array
from collections import defaultdict

from kafka_share_proxy.sharegroups.model.acquiring import ReadRecords
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator, ShareKey
from kafka_share_proxy.sharegroups.model.offset_runs import AVAILABLE, BLOCKED, SETTLED
from kafka_share_proxy.sharegroups.model.partition import SharePartition
from kafka_share_proxy.sharegroups.model.queue_partition import QueuePartition
from kafka_share_proxy.sharegroups.model.queue_settings import BY_KEY, ORDERING, SCAN_RECORDS
from kafka_share_proxy.sharegroups.state.state_writes import Outcome
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records.order_keys import RecordKeys

from tests.sharegroups.model.world import Chooser
from tests.support import storm
from tests.support.storm import FINAL, Partition
from tests.support.storm_admin import AdminStorm

NO_KEY = 0
KEYS = 4


class OrderedStorm(AdminStorm):
    """Storm over ordered groups. The last one is switched, the others are ordered from the beginning."""

    def __init__(self, chooser: Chooser, *, groups: int = 3, partitions: int = 2, members: int = 3, limit: int = 4):
        self.keys: defaultdict[ShareKey, list[int]] = defaultdict(list)
        """Key of each offset, from NO_KEY to KEYS."""
        self.settles: dict[tuple[ShareKey, int, int], int] = {}
        """Last settled offset by share partition, its life and key."""
        super().__init__(chooser, groups=groups, partitions=partitions, members=members, limit=limit)
        for group_id in self.groups:
            self._store(group_id, {ORDERING: BY_KEY})
            self._confirm_all()
        self.actions += [self.switch] * 2

    # What may happen

    def produce(self) -> None:
        super().produce()
        for partition in self.partitions:
            keys = self.keys[partition.key]
            keys += [self.chooser.number(NO_KEY, KEYS) for _ in range(len(keys), partition.end)]

    def read(self, partition: Partition, head: int) -> ReadRecords:
        keyed = [(offset, key) for offset, key in enumerate(self.keys[partition.key]) if key != NO_KEY]
        keys = RecordKeys(array("q", [offset for offset, _ in keyed]), array("Q", [key for _, key in keyed]))
        return super().read(partition, head)._replace(keys=keys)

    def switch(self) -> None:
        """Switch key order of the last group off or on, or change the width of a window."""
        group_id = self._some_group()
        after = {**self.coordinator.stored_settings(group_id)}
        if group_id == self.groups[-1]:
            after[ORDERING] = ("none", BY_KEY)[self.chooser.number(0, 1)]
        after[SCAN_RECORDS] = ("100", "10000")[self.chooser.number(0, 1)]
        if group_id not in self.changes.settings:
            self._store(group_id, after)

    # What is seen

    def fetch_as(
        self, partition: Partition, member: str, count: int, record_limit: bool, batch_size: int = 4
    ) -> list[int]:
        share = self.coordinator.share(partition.key)
        before = set() if share is None else _unsettled(share.partition, partition.end)
        offsets = super().fetch_as(partition, member, count, record_limit, batch_size)
        if self._is_ordered(partition):
            for offset in offsets:
                self._check_acquired(partition, offset, before)
        return offsets

    def _check_acquired(self, partition: Partition, offset: int, unsettled: set[int]) -> None:
        """`unsettled`: offsets that the coordinator regards as unsettled, before the acquire."""
        keys, least = self.keys[partition.key], self.reported[partition.key.group_id].least
        if keys[offset] == NO_KEY:
            return
        same = [each for each, key in enumerate(keys) if key == keys[offset] and each != offset]
        for each in same:
            if partition.first <= each < offset and each not in partition.final | dict.fromkeys(partition.maybe):
                assert each not in partition.held, f"{offset} was acquired while {each} is held"
                assert partition.count[each] >= least, f"{offset} was acquired before {each}"
                assert each not in unsettled, f"{offset} was acquired before {each}, which can be delivered again"
            if partition.key.group_id != self.groups[-1]:
                assert each not in partition.held, f"{offset} and {each} of one key are held"

    def _reported(
        self, partition: Partition, by: tuple[ShareCoordinator, int], kinds: dict[int, int], outcome: Outcome
    ) -> None:
        super()._reported(partition, by, kinds, outcome)
        is_current = by[0] is self.coordinator and not self._lost and by[1] == partition.lives
        if is_current and outcome[partition.key] == ErrorCode.NONE and partition.key.group_id != self.groups[-1]:
            for offset in sorted(offset for offset, kind in kinds.items() if kind in FINAL):
                self._check_settled(partition, offset)

    def _check_settled(self, partition: Partition, offset: int) -> None:
        key = self.keys[partition.key][offset]
        if key != NO_KEY:
            life = (partition.key, partition.lives, key)
            assert self.settles.get(life, -1) < offset, f"{offset} was settled after {self.settles[life]}"
            self.settles[life] = offset

    def check_state(self) -> None:
        super().check_state()
        for partition in self.partitions:
            share = self.coordinator.share(partition.key)
            if share is not None and isinstance(share.partition, QueuePartition) and share.partition.order is not None:
                self._check_blocked(self.keys[partition.key], share.partition, share.partition.order.known_to)

    def _check_blocked(self, keys: list[int], partition: QueuePartition, known_to: int) -> None:
        """Among the free offsets with known keys, exactly those after an unsettled one of their key are blocked."""
        checked: set[int] = set()
        blocked = 0
        for run in partition.runs:
            for offset in range(run.first, min(run.last + 1, known_to)):
                waits = keys[offset] in checked
                if run.state in (AVAILABLE, BLOCKED):
                    assert waits == (run.state == BLOCKED), f"{offset} in {run}"
                if not run.state & SETTLED and keys[offset] != NO_KEY:
                    blocked += waits
                    checked.add(keys[offset])
        assert partition.blocked_records() == blocked, "number of records that wait for their key"

    def drain(self) -> None:
        super().drain()
        for partition in self.partitions:
            share = self.coordinator.share(partition.key)
            assert share is not None
            assert share.partition.blocked_records() == 0

    # How

    def _is_ordered(self, partition: Partition) -> bool:
        share = self.coordinator.share(partition.key)
        return share is not None and share.partition.needs_keys


def _unsettled(partition: SharePartition, end: int) -> set[int]:
    """Return the offsets from the start offset on that are not settled."""
    settled = {offset for run in partition.runs if run.state & SETTLED for offset in range(run.first, run.last + 1)}
    return set(range(partition.start_offset, end)) - settled


def run(chooser: Chooser, steps: int, **sizes: int) -> OrderedStorm:
    """Run one storm. A failure is raised with the end of its story."""
    finished_storm = storm.run(chooser, steps, OrderedStorm, **sizes)
    assert isinstance(finished_storm, OrderedStorm)
    return finished_storm
