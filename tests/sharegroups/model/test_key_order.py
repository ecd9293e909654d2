"""Key order against a reference that knows nothing of windows, and case by case (sharegroups/README.md rules 74-79)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_share_proxy.sharegroups.model.acquiring import ReadRecords
from kafka_share_proxy.sharegroups.model.key_order import BlockedKey, KeyOrder
from kafka_share_proxy.sharegroups.model.offset_runs import AVAILABLE, BLOCKED
from kafka_share_proxy.sharegroups.model.partition import Refusal, SharePartition
from kafka_share_proxy.sharegroups.model.queue_partition import QueuePartition, partition_of
from kafka_share_proxy.sharegroups.model.queue_settings import effective
from kafka_share_proxy.sharegroups.model.redelivery import DelayedRuns
from kafka_share_proxy.wire.records.order_keys import RecordKeys

from tests.sharegroups.model.play import ACCEPT, REJECT, RELEASE
from tests.sharegroups.model.world import Batch, Settings

ORDERED = {"share.ordering": "key"}


@dataclass
class Ordered:
    """A share partition with key order over a log of keys, one character for each offset; "." has no key."""

    log: str
    stored: dict[str, str] = field(default_factory=lambda: dict(ORDERED))
    batch: int = 1_000
    limit: int = 5
    locks: int = 2000
    now: float = 0.0

    def __post_init__(self) -> None:
        self.delayed = DelayedRuns(lambda: self.now, lambda: self.now)
        self.partition: SharePartition = self.converted(SharePartition(0))

    def converted(self, partition: SharePartition) -> SharePartition:
        return partition_of(partition, effective(self.stored), self.delayed)

    @property
    def settings(self) -> Settings:
        return Settings(max_record_locks=self.locks, delivery_count_limit=self.limit)

    @property
    def keys(self) -> RecordKeys:
        keyed = [(offset, ord(key)) for offset, key in enumerate(self.log) if key != "."]
        return RecordKeys(array("q", [offset for offset, _ in keyed]), array("Q", [key for _, key in keyed]))

    def batches(self, start: int, end: int | None = None) -> list[Batch]:
        last = len(self.log) if end is None else end
        firsts = range(0, last, self.batch)
        candidates = [Batch(first, min(first + self.batch, last) - 1) for first in firsts]
        return [each for each in candidates if each.last_offset >= start]

    def poll(
        self, records: int = 500, *, member: str = "ann", exact: bool = False, aborted: Sequence[tuple[int, int]] = ()
    ) -> list[int]:
        """Read from the next offset until something is acquired or nothing can be; the offsets."""
        for _ in range(len(self.log) + 2):
            if self.partition.acquirable_from(self.settings) is None:
                return []
            offset = self.partition.next_fetch_offset()
            read = ReadRecords(offset, self.batches(offset), aborted, self.keys)
            got = self.partition.acquire(member, read, records, 500, exact, self.settings, self.now)
            if got.ranges or self.partition.next_fetch_offset() == offset:
                return [each for first, last, _ in got.ranges for each in range(first, last + 1)]
        raise AssertionError("the scan does not end")

    def ack(self, first: int, last: int, kind: int = ACCEPT, member: str = "ann") -> bool:
        decided = self.partition.decide_acknowledge(member, [(first, last, [kind])], True, self.settings, self.now)
        if isinstance(decided, Refusal):
            return False
        self.partition.apply(decided)
        return True

    def reload(self) -> None:
        """A takeover: only what is stored is known."""
        queue = QueuePartition.from_snapshot(self.partition.snapshot())
        self.partition = self.converted(queue)

    def expire(self) -> None:
        self.now += 31
        for runs in self.partition.index.expired(self.now).values():
            transition = self.partition.expire(runs, self.settings, self.now)
            if transition is not None:
                self.partition.apply(transition)


class TestDelivery:
    def test_the_second_record_of_a_key_waits_until_the_first_is_settled(self) -> None:
        play = Ordered("abab")
        assert play.poll() == [0, 1]
        assert play.poll() == []
        play.ack(1, 1)
        assert play.poll() == [3]
        play.ack(0, 0)
        assert play.poll() == [2]

    @pytest.mark.parametrize("exact", [False, True])
    def test_both_acquire_modes_keep_the_order(self, exact: bool) -> None:
        play = Ordered("abcab")
        assert play.poll(exact=exact) == [0, 1, 2]
        play.ack(0, 2)
        assert play.poll(exact=exact) == [3, 4]

    def test_a_released_record_blocks_its_key(self) -> None:
        play = Ordered("aa")
        play.poll()
        play.ack(0, 0, RELEASE)
        assert play.poll() == [0]
        assert play.poll(member="ben") == []

    def test_a_rejected_record_frees_its_key(self) -> None:
        play = Ordered("aa")
        play.poll()
        play.ack(0, 0, REJECT)
        assert play.poll() == [1]

    def test_an_archived_record_frees_its_key_at_the_delivery_limit(self) -> None:
        play = Ordered("aa", limit=2)
        for _ in range(2):
            assert play.poll() == [0]
            play.ack(0, 0, RELEASE)
        assert play.poll() == [1]

    def test_records_without_a_key_are_not_ordered(self) -> None:
        play = Ordered("...a.a")
        assert play.poll() == [0, 1, 2, 3, 4]

    def test_records_of_aborted_transactions_block_nothing(self) -> None:
        play = Ordered("aba")
        assert play.poll(aborted=[(0, 0)]) == [1, 2]
        assert play.partition.start_offset == 1

    def test_a_record_that_waits_for_its_redelivery_blocks_its_key(self) -> None:
        play = Ordered("aab", stored=ORDERED | {"share.redelivery.delay.ms": "10000"})
        assert play.poll() == [0, 2]
        play.ack(0, 0, RELEASE)
        assert play.poll() == []
        play.now += 20
        for runs in play.delayed.take(play.now).values():
            play.partition.redeliver(runs)  # type: ignore[attr-defined]
        assert play.poll() == [0]

    def test_a_compacted_record_frees_its_key(self) -> None:
        play = Ordered("aab")
        play.poll()
        play.ack(0, 0, RELEASE)
        read = ReadRecords(0, [Batch(1, 2)], (), play.keys)
        got = play.partition.acquire("ann", read, 500, 500, False, play.settings, 0.0)
        assert [each[:2] for each in got.ranges] == [(1, 1)]

    def test_renewing_keeps_the_key(self) -> None:
        play = Ordered("aa")
        play.poll()
        play.now = 29.0
        play.ack(0, 0, 4)
        play.now = 31.0
        assert play.partition.index.expired(31.0) == {}
        assert play.poll(member="ben") == []


class TestScan:
    def test_other_keys_continue_after_a_hot_key(self) -> None:
        play = Ordered("a" * 5000 + "b")
        assert play.poll() == [0, 5000]

    def test_the_scan_ends_at_its_limit_and_continues_when_the_start_moves(self) -> None:
        play = Ordered("a" * 150 + "bcd", stored=ORDERED | {"share.ordering.scan.records": "151"})
        assert play.poll() == [0, 150]
        assert play.poll() == []
        play.ack(0, 0)
        assert play.poll() == [1, 151]

    def test_settled_records_do_not_count_towards_what_a_snapshot_can_store(self) -> None:
        play = Ordered("a" * 30 + "".join(map(chr, range(1_000, 1_080))), batch=10)
        play.partition.offsets_max = 60
        acquired, at_most = [0], 60
        assert play.poll(1) == [0]
        while offsets := play.poll(10):
            acquired += offsets
            play.ack(offsets[0], offsets[-1])
            unsettled = play.partition.end_offset + 1 - (len(acquired) - 1)
            assert unsettled + len(play.partition.runs) <= at_most + len(offsets)
        assert acquired == [0, *range(30, 110)]

    def test_records_settled_one_by_one_are_bounded_by_what_a_snapshot_can_store(self) -> None:
        play = Ordered("".join("a" + chr(1_000 + each) for each in range(100)), batch=10)
        play.partition.offsets_max = 60
        assert play.poll(1, exact=True) == [0]
        while offsets := play.poll(1, exact=True):
            play.ack(offsets[0], offsets[-1])
            assert len(play.partition.snapshot().batches) <= 60
        assert play.partition.end_offset + 1 < len(play.log)

    def test_locked_records_stay_within_the_limit_of_the_group(self) -> None:
        play = Ordered("abcdefghij" * 30, locks=100, batch=10)
        play.stored |= {"share.ordering": "key"}
        offsets = play.poll(records=5)
        while more := play.poll(records=5):
            offsets += more
        assert offsets == list(range(10))

    def test_blocked_records_count_as_blocked_with_their_hottest_key(self) -> None:
        play = Ordered("aabba")
        play.poll()
        partition = play.partition
        assert isinstance(partition, QueuePartition)
        assert partition.blocked_records() == 3
        assert [(each.blocking_offset, each.waiting) for each in partition.blocked()] == [(0, 2), (2, 1)]


class TestKnowledge:
    def test_after_a_takeover_keys_are_read_from_the_start_offset(self) -> None:
        play = Ordered("abab", batch=1)
        play.poll()
        play.ack(0, 0, RELEASE)
        play.reload()
        assert play.partition.next_fetch_offset() == 0
        assert play.poll() == [0, 1]
        assert play.poll() == []

    def test_a_live_switch_leaves_locks_and_orders_what_follows(self) -> None:
        play = Ordered("aabb", stored={}, batch=1)
        assert play.poll(2) == [0, 1]
        play.stored = dict(ORDERED)
        play.partition = play.converted(play.partition)
        assert play.poll() == [2]
        play.ack(1, 1, RELEASE)
        assert play.poll() == []
        play.ack(0, 0)
        assert play.poll() == [1]

    def test_after_a_changed_isolation_level_keys_are_learned_again(self) -> None:
        play = Ordered("aab", batch=1)
        assert play.poll(1, aborted=[(0, 0)]) == [1]
        play.partition.forget_keys()
        assert play.partition.next_fetch_offset() == play.partition.start_offset
        assert play.poll() == [2]

    def test_a_switch_back_frees_blocked_records(self) -> None:
        play = Ordered("aab")
        play.poll()
        play.stored = {}
        play.partition = play.converted(play.partition)
        assert play.poll() == [1]

    def test_the_log_start_frees_keys_after_it(self) -> None:
        play = Ordered("aaab")
        play.poll()
        play.partition.move_log_start(2)
        assert play.poll() == [2]

    def test_a_truncated_log_is_read_again(self) -> None:
        play = Ordered("aab")
        play.poll()
        play.partition.move_log_end(1)
        assert play.partition.next_fetch_offset() == 1
        play.log = "ac"
        assert play.poll() == [1]


def test_the_hottest_keys_come_first() -> None:
    order = KeyOrder(0)
    order.add(RecordKeys(array("q", range(8)), array("Q", [7, 1, 2, 7, 3, 7, 1, 3])))
    assert order.hottest() == [BlockedKey(7, 0, 2), BlockedKey(1, 1, 1), BlockedKey(3, 4, 1)]


class Reference:
    """What key order promises, by record: nothing of windows, runs or batches."""

    def __init__(self, log: str) -> None:
        self.log = log
        self.settled: set[int] = set()
        self.held: dict[int, str] = {}
        self.settles: dict[str, list[int]] = {}
        self.early: set[int] = set()
        """Held since before the group was ordered."""

    def acquired(self, offset: int, member: str) -> None:
        assert offset not in self.settled, "delivered again after it was settled"
        assert offset not in self.held, "held by two members"
        key = self.log[offset]
        if key != ".":
            before = [n for n in range(offset) if self.log[n] == key and n not in self.settled]
            assert before == [], f"{offset} was delivered although {before} is not settled"
        self.held[offset] = member

    def settle(self, offset: int) -> None:
        del self.held[offset]
        self.settled.add(offset)
        order = self.settles.setdefault(self.log[offset], [])
        assert self.log[offset] == "." or not order or order[-1] < offset, "settled out of order"
        order.append(offset)

    def free(self, offset: int) -> None:
        del self.held[offset]


def run(seed: int, log: str, steps: int, **options: Any) -> None:
    """Random members on one log, until everything is settled."""
    dice = Random(seed)
    play, says = Ordered(log, limit=1_000, **options), Reference(log)
    for _ in range(steps):
        chance = dice.random()
        held = sorted(says.held)
        if chance < 0.4 or not held:
            member = dice.choice(["ann", "ben", "cat"])
            for offset in play.poll(dice.randrange(1, 8), member=member, exact=dice.random() < 0.5):
                says.acquired(offset, member)
        elif chance < 0.85:
            offset = dice.choice(held)
            kind = dice.choice([ACCEPT, ACCEPT, ACCEPT, RELEASE, REJECT])
            assert play.ack(offset, offset, kind, says.held[offset])
            (says.free if kind == RELEASE else says.settle)(offset)
        elif chance < 0.9:
            play.expire()
            says.held.clear()
        elif chance < 0.95:
            member = dice.choice(["ann", "ben", "cat"])
            transition = play.partition.decide_release(member, play.settings)
            if transition is not None:
                play.partition.apply(transition)
            says.held = {offset: owner for offset, owner in says.held.items() if owner != member}
        else:
            play.reload()
            says.held.clear()
    for _ in range(4 * len(log) + 4):
        for offset, member in sorted(says.held.items()):
            assert play.ack(offset, offset, ACCEPT, member)
            says.settle(offset)
        for offset in play.poll(member="dan"):
            says.acquired(offset, "dan")
    assert says.settled == set(range(len(log))), "some records starve"
    assert play.partition.start_offset == len(log)
    partition = play.partition
    assert isinstance(partition, QueuePartition)
    assert partition.order is not None
    assert (partition.blocked_records(), partition.order.locked, partition.order.unsettled) == (0, 0, 0)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32),
    st.text("aaabbcd.", min_size=1, max_size=60),
    st.integers(1, 12),
    st.sampled_from([{}, {"share.ordering.scan.records": "100"}]),
)
def test_any_history_keeps_the_order_of_every_key_and_delivers_everything(
    seed: int, log: str, batch: int, stored: dict[str, str]
) -> None:
    run(seed, log, 80, batch=batch, stored=ORDERED | stored)


def test_blocked_is_a_separate_state() -> None:
    play = Ordered("aa")
    play.poll(1)
    assert [run.state for run in play.partition.runs if run.state in (AVAILABLE, BLOCKED)] == [BLOCKED]
