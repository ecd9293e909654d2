"""Redelivery delay: its length, which records wait, their due times over a failover (sharegroups/README.md 80-84)."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.sharegroups.model.broker_limits import BrokerShareLimits
from kafka_share_proxy.sharegroups.model.coordinator import Share, ShareCoordinator, ShareKey
from kafka_share_proxy.sharegroups.model.offset_runs import AVAILABLE, DELAYED, OffsetRun
from kafka_share_proxy.sharegroups.model.partition import SharePartition, Transition
from kafka_share_proxy.sharegroups.model.queue_partition import QueuePartition
from kafka_share_proxy.sharegroups.model.queue_settings import RedeliveryDelay, effective
from kafka_share_proxy.sharegroups.model.redelivery import (
    NAMED_MAX,
    OUTDATED_MAX,
    DelayedRuns,
    NamedDelay,
    chance_of,
    delay_s,
    named_delays_mistake,
)
from kafka_share_proxy.sharegroups.model.snapshot import SNAPSHOT_BYTES_MAX, ShareSnapshot

from tests.sharegroups.model.play import ACCEPT, REJECT, RELEASE, Play

KEY = ShareKey("g", b"t" * 16, 0)
WALL_S = 1_800_000_000.5


class Clock:
    """Monotonic and wall time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.wall_s = WALL_S

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.wall_s += seconds

    def runs(self) -> DelayedRuns:
        return DelayedRuns(lambda: self.now, lambda: self.wall_s, lambda _: 0.5)


class Delayed(Play):
    """A queue with a delay of 10 s that doubles, up to 60 s, unless settings say otherwise."""

    def __init__(self, *log: tuple[int, int], **stored: str) -> None:
        settings: dict[str, Any] = {"delivery_count_limit": 5}
        super().__init__(*log, **settings)
        values = {"share.redelivery.delay.ms": "10000", "share.redelivery.delay.max.ms": "60000"} | stored
        queue = effective(values)
        assert queue is not None
        self.clock = Clock()
        self.delayed = self.clock.runs()
        self.partition: QueuePartition = QueuePartition.of(self.partition, queue, self.delayed)

    def wait(self, seconds: float) -> None:
        self.clock.wait(seconds)
        for runs in self.delayed.take(self.clock.now).values():
            self.partition.redeliver(runs)
        super().wait(seconds)

    @property
    def waits(self) -> list[tuple[int, int, int, float]]:
        return self.partition.waiting()


class TestLength:
    @pytest.mark.parametrize(("deliveries", "seconds"), [(1, 10), (2, 20), (3, 40), (4, 60), (25, 60)])
    def test_the_delay_grows_with_each_delivery_up_to_its_maximum(self, deliveries: int, seconds: float) -> None:
        assert delay_s(RedeliveryDelay(10, 60, 2), deliveries, 0.5) == seconds

    @pytest.mark.parametrize(("chance", "seconds"), [(0, 9), (0.5, 10), (1, 11)])
    def test_the_delay_deviates_by_a_tenth(self, chance: float, seconds: float) -> None:
        assert delay_s(RedeliveryDelay(10, 60, 1), 3, chance) == pytest.approx(seconds)

    def test_no_delay_is_longer_than_15_minutes(self) -> None:
        assert delay_s(RedeliveryDelay(900, 900, 100), 25, 1.0) == 900

    def test_records_deviate_differently(self) -> None:
        chances = {
            chance_of(OffsetRun(object(), offset, offset, DELAYED, count)) for offset in range(50) for count in (1, 2)
        }
        assert len(chances) == 100
        assert 0 <= min(chances) < 0.1
        assert 0.9 < max(chances) < 1


class TestWhoWaits:
    def test_a_released_record_is_available_again_after_its_delay(self) -> None:
        play = Delayed((0, 9))
        play.poll()
        play.ack((0, 9, RELEASE))
        assert play.waits == [(0, 9, 1, 10.0)]
        assert play.poll() == []
        play.wait(9.9)
        assert play.poll() == []
        play.wait(0.1)
        assert play.poll() == [(0, 9, 2)]

    def test_a_record_with_an_expired_lock_waits_as_well(self) -> None:
        play = Delayed((0, 9))
        play.poll()
        play.wait(30)
        assert play.waits == [(0, 9, 1, 40.0)]

    def test_the_second_delay_of_a_record_is_longer(self) -> None:
        play = Delayed((0, 0))
        play.poll()
        play.ack((0, 0, RELEASE))
        play.wait(10)
        play.poll()
        play.ack((0, 0, RELEASE))
        assert play.waits == [(0, 0, 2, 30.0)]

    def test_the_end_of_a_session_or_a_moved_leader_frees_records_without_delay(self) -> None:
        play = Delayed((0, 9))
        play.poll()
        play.release("ann")
        assert play.poll() == [(0, 9, 2)]
        play.release()
        assert play.poll() == [(0, 9, 3)]

    def test_other_records_do_not_wait(self) -> None:
        play = Delayed((0, 9), (10, 19))
        play.poll(10)
        play.ack((0, 4, RELEASE), (5, 9, ACCEPT))
        assert play.poll() == [(10, 19, 1)]
        assert play.partition.start_offset == 0

    def test_a_record_at_its_delivery_limit_is_archived_without_delay(self) -> None:
        play = Delayed((0, 0))
        play.set(delivery_count_limit=2)
        play.poll()
        play.ack((0, 0, RELEASE))
        play.wait(10)
        play.poll()
        play.ack((0, 0, RELEASE))
        assert (play.waits, play.partition.start_offset) == ([], 1)

    def test_accepted_and_rejected_records_do_not_wait(self) -> None:
        play = Delayed((0, 9))
        play.poll()
        play.ack((0, 4, ACCEPT), (5, 9, REJECT))
        assert (play.waits, len(play.delayed)) == ([], 0)

    def test_a_refused_write_gives_the_record_back_to_its_holder(self) -> None:
        play = Delayed((0, 9))
        play.poll()
        decided = play.decide((0, 9, RELEASE))
        assert isinstance(decided, Transition)
        play.partition.revert(decided, play.now, play.settings)
        assert (play.waits, len(play.delayed)) == ([], 0)
        assert play.ack((0, 9, ACCEPT)) is None

    def test_after_a_refused_write_a_record_whose_lock_has_ended_waits(self) -> None:
        play = Delayed((0, 9))
        play.poll()
        decided = play.decide((0, 9, RELEASE))
        assert isinstance(decided, Transition)
        play.clock.wait(31)
        play.partition.revert(decided, 31.0, play.settings)
        assert play.waits == [(0, 9, 1, 41.0)]

    def test_a_release_that_is_not_stored_yet_when_it_is_due_waits_on(self) -> None:
        play = Delayed((0, 0), **{"share.redelivery.delay.ms": "1"})
        play.poll()
        decided = play.decide((0, 0, RELEASE))
        assert isinstance(decided, Transition)
        play.wait(1)
        assert play.poll() == []
        play.partition.apply(decided)
        play.wait(1)
        assert play.poll() == [(0, 0, 2)]

    def test_records_that_the_log_loses_wait_no_longer(self) -> None:
        play = Delayed((0, 9), (10, 19))
        play.poll()
        play.ack((0, 19, RELEASE))
        play.partition.move_log_start(10)
        assert play.waits == [(10, 19, 1, 10.0)]
        play.partition.move_log_end(10)
        assert (play.waits, len(play.delayed)) == ([], 0)

    def test_a_waiting_record_keeps_its_share_partition_loaded(self) -> None:
        play = Delayed((0, 9))
        play.poll()
        assert play.partition.is_held()
        play.ack((0, 9, RELEASE))
        assert play.partition.is_held()
        play.wait(10)
        assert not play.partition.is_held()


class TestNamed:
    """A member names the delay of a release."""

    def released(self, play: Delayed, *delays: NamedDelay) -> Transition:
        decided = play.decide((0, 4, RELEASE), (5, 7, [RELEASE, ACCEPT, REJECT]), (8, 9, RELEASE))
        assert isinstance(decided, Transition)
        play.partition.name_delays(decided, delays, play.now)
        return decided

    def test_the_named_delay_holds_instead_of_that_of_the_group(self) -> None:
        play = Delayed((0, 9))
        play.poll()
        decided = self.released(play, NamedDelay(0, 4, 3.0), NamedDelay(5, 7, 500.0))
        assert [change[2] for change in decided.changes] == [run.target for run in decided.runs]
        snapshot = play.partition.snapshot(decided)
        assert snapshot.due_s == {0: 1_800_000_004, 5: 1_800_000_501, 8: 1_800_000_011}
        play.partition.apply(decided)
        assert play.waits == [(0, 4, 1, 3.0), (5, 5, 1, 500.0), (8, 9, 1, 10.0)]

    def test_a_named_delay_of_0_releases_the_record_immediately(self) -> None:
        play = Delayed((0, 9))
        play.poll()
        play.partition.apply(self.released(play, NamedDelay(0, 4, 0.0)))
        assert play.waits == [(5, 5, 1, 10.0), (8, 9, 1, 10.0)]
        assert play.poll() == [(0, 4, 2)]

    def test_a_named_delay_does_not_extend_the_deliveries(self) -> None:
        play = Delayed((0, 9))
        play.set(delivery_count_limit=2)
        play.poll()
        play.release("ann")
        play.poll()
        play.partition.apply(self.released(play, NamedDelay(0, 9, 3.0)))
        assert (play.waits, play.partition.start_offset) == ([], 10)

    def test_a_refused_write_forgets_the_named_delay(self) -> None:
        play = Delayed((0, 9))
        play.poll()
        play.partition.revert(self.released(play, NamedDelay(0, 9, 3.0)), play.now, play.settings)
        assert (play.waits, len(play.delayed)) == ([], 0)
        assert play.ack((0, 9, ACCEPT)) is None

    @pytest.mark.parametrize("seconds", [-0.001, 900.001])
    def test_a_delay_out_of_range_is_refused(self, seconds: float) -> None:
        assert named_delays_mistake([NamedDelay(0, 1, 900.0), NamedDelay(2, 3, 0.0)]) is None
        mistake = named_delays_mistake([NamedDelay(0, 1, 1.0), NamedDelay(2, 3, seconds)])
        assert mistake is not None
        assert "batch 2-3" in mistake

    def test_too_many_named_delays_are_refused(self) -> None:
        delays = [NamedDelay(offset, offset, 1.0) for offset in range(NAMED_MAX)]
        assert named_delays_mistake(delays) is None
        assert named_delays_mistake([*delays, NamedDelay(NAMED_MAX, NAMED_MAX, 1.0)]) is not None


class TestStored:
    def test_due_times_are_stored_in_whole_seconds_rounded_up(self) -> None:
        play = Delayed((0, 9), (10, 19))
        play.poll()
        play.ack((0, 4, RELEASE))
        play.clock.wait(3)
        play.now += 3
        play.ack((5, 9, RELEASE))
        snapshot = play.partition.snapshot()
        assert snapshot.batches == ((0, 4, AVAILABLE, 1), (5, 9, AVAILABLE, 1))
        assert snapshot.due_s == {0: 1_800_000_011, 5: 1_800_000_014}
        assert ShareSnapshot.decode(snapshot.encode()) == snapshot

    def test_a_change_is_stored_with_its_due_time_before_it_is_applied(self) -> None:
        play = Delayed((0, 9))
        play.poll()
        decided = play.decide((0, 9, RELEASE))
        assert isinstance(decided, Transition)
        assert play.partition.snapshot(decided).due_s == {0: 1_800_000_011}
        assert play.partition.snapshot().due_s is None

    def test_records_with_one_due_time_share_a_batch(self) -> None:
        play = Delayed((0, 9))
        play.poll()
        play.ack((0, 9, [RELEASE] * 5 + [ACCEPT] * 5))
        play.ack()
        assert play.partition.snapshot().due_s == {0: 1_800_000_011}


class TestCoordinator:
    def coordinator(self, clock: Clock, **stored: str) -> ShareCoordinator:
        coordinator = ShareCoordinator(BrokerShareLimits(), clock.runs())
        coordinator.store_settings("g", {"share.redelivery.delay.ms": "10000"} | stored)
        return coordinator

    def loaded(self, clock: Clock, due_s: int | None) -> ShareCoordinator:
        coordinator = self.coordinator(clock)
        due = None if due_s is None else {0: due_s}
        coordinator.rest(KEY, ShareSnapshot(0, 0, 0, ((0, 4, 0, 2),), due_s=due).encode())
        return coordinator

    def test_a_stored_due_time_holds_after_a_takeover(self) -> None:
        clock = Clock()
        coordinator = self.loaded(clock, 1_800_000_020)
        share = coordinator.share(KEY)
        assert share is not None
        assert share.partition.next_fetch_offset() == 5
        assert coordinator.next_lock_deadline() == 19.5
        clock.wait(19.4)
        assert coordinator.redeliver(clock.now) == []
        clock.wait(0.1)
        assert coordinator.redeliver(clock.now) == [KEY]
        assert share.partition.next_fetch_offset() == 0

    @pytest.mark.parametrize("due_s", [None, 1_799_999_999, 1_800_000_000])
    def test_what_is_due_is_available_immediately_after_a_takeover(self, due_s: int | None) -> None:
        share = self.loaded(Clock(), due_s).share(KEY)
        assert share is not None
        assert share.partition.next_fetch_offset() == 0

    def test_a_due_time_of_a_clock_that_is_ahead_is_at_most_15_minutes_away(self) -> None:
        coordinator = self.loaded(Clock(), 1_900_000_000)
        coordinator.share(KEY)
        assert coordinator.next_lock_deadline() == 900

    def test_waiting_records_survive_a_restart_of_a_group_whose_delay_was_removed(self) -> None:
        clock = Clock()
        coordinator = self.loaded(clock, 1_800_000_020)
        coordinator.store_settings("g", {})
        share = coordinator.share(KEY)
        assert share is not None
        assert share.partition.next_fetch_offset() == 5

    def test_the_removal_of_the_delay_makes_waiting_records_available(self) -> None:
        clock = Clock()
        coordinator = self.loaded(clock, 1_800_000_020)
        share = coordinator.share(KEY)
        assert share is not None
        coordinator.store_settings("g", {})
        assert type(share.partition) is SharePartition
        assert share.partition.next_fetch_offset() == 0
        assert coordinator.redeliver(1000.0) == []

    def with_named_delay(self, clock: Clock) -> tuple[ShareCoordinator, Share]:
        """A group without delay, and a record of it with a named delay of 20 s."""
        coordinator = ShareCoordinator(BrokerShareLimits(), clock.runs())
        coordinator.rest(KEY, ShareSnapshot(0, 0, 0, ((0, 4, 0, 2),)).encode())
        share = coordinator.share(KEY)
        assert share is not None
        assert type(share.partition) is SharePartition
        coordinator.queue_of(share).delay_again({0: 1_800_000_020})
        return coordinator, share

    def test_a_named_delay_holds_in_a_group_without_delay_also_when_other_settings_change(self) -> None:
        coordinator, share = self.with_named_delay(Clock())
        coordinator.store_settings("g", {"share.auto.offset.reset": "earliest"})
        assert share.partition.next_fetch_offset() == 5
        assert coordinator.redeliver(19.5) == [KEY]
        assert share.partition.next_fetch_offset() == 0

    def test_a_named_delay_ends_with_the_state_and_the_group_is_plain_again(self) -> None:
        clock = Clock()
        coordinator, share = self.with_named_delay(clock)
        value = share.partition.snapshot().encode()
        clock.wait(20)
        coordinator.remove_share(KEY)
        coordinator.rest(KEY, value)
        again = coordinator.share(KEY)
        assert again is not None
        assert again.partition.next_fetch_offset() == 0

    def test_the_state_of_a_full_window_of_waiting_records_fits_into_a_stored_value(self) -> None:
        coordinator, share = self.with_named_delay(Clock())
        window = share.partition.offsets_max
        assert window < SharePartition(0).offsets_max
        batches = tuple((offset, offset, 0, offset % 2 + 1) for offset in range(window))
        due_s = {offset: 1_800_000_000 + offset for offset in range(window)}
        rejected = frozenset(range(window))
        stored = ShareSnapshot(0, 0, 0, batches, due_s, rejected).encode()
        assert len(stored) <= SNAPSHOT_BYTES_MAX
        coordinator.store_settings("g", {"share.redelivery.delay.ms": "1"})
        assert share.partition.offsets_max == window
        coordinator.store_settings("g", {})
        assert share.partition.offsets_max > window

    def test_an_unloaded_share_partition_is_not_woken(self) -> None:
        clock = Clock()
        coordinator = self.loaded(clock, 1_800_000_020)
        coordinator.share(KEY)
        coordinator.remove_share(KEY)
        assert coordinator.redeliver(1000.0) == []


def test_outdated_due_times_are_dropped() -> None:
    delayed = DelayedRuns()
    run = OffsetRun(object(), 0, 0, DELAYED, 1)
    for second in range(3 * OUTDATED_MAX):
        delayed.add(run, float(second))
    assert len(delayed) == 1
    assert len(delayed._heap) <= OUTDATED_MAX + 2
    assert delayed.next() == 3 * OUTDATED_MAX - 1
