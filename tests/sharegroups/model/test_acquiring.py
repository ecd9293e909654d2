"""Which offsets a fetch acquires (sharegroups/README.md rules 28-34 and 38)."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from kafka_share_proxy.sharegroups.model.acquiring import NOTHING, ReadRecords, throttle_from
from kafka_share_proxy.sharegroups.model.offset_runs import OFFSETS_MAX, UNREAD
from kafka_share_proxy.sharegroups.model.partition import SharePartition
from kafka_share_proxy.sharegroups.model.snapshot import SNAPSHOT_BYTES_MAX

from tests.sharegroups.model.play import ACCEPT, GAP, RELEASE, Play
from tests.sharegroups.model.world import Batch, Settings

INVALID_RECORD_STATE = 121


class TestFreshOffsets:
    def test_a_small_batch_size_stays_within_the_in_flight_batches(self, monkeypatch) -> None:
        """Each is work: a client that requests batches of one record gets larger ones if there are very many."""
        monkeypatch.setattr("kafka_share_proxy.sharegroups.model.acquiring.CUTS_MAX", 10)
        singles = [(offset, offset) for offset in range(100)]
        acquired_ranges = Play(*singles).poll(100, size=1)
        assert [first for first, _, _ in acquired_ranges[1:]] == [last + 1 for _, last, _ in acquired_ranges[:-1]]
        assert (acquired_ranges[0][0], acquired_ranges[-1][1]) == (0, 99)
        assert 5 < len(acquired_ranges) <= 12

    def test_a_batch_size_of_nothing_is_one_of_a_record(self) -> None:
        """It may come from any client."""
        singles = [(offset, offset) for offset in range(4)]
        for size in (0, -7):
            assert Play(*singles).poll(4, size=size) == [(offset, offset, 1) for offset in range(4)]

    def test_a_first_fetch_gets_the_whole_log_batch_with_count_1(self) -> None:
        play = Play((0, 9))
        assert play.poll(5) == [(0, 9, 1)]
        assert play.window == (0, 9)
        assert play.partition.next_fetch_offset() == 10

    def test_record_limit_is_strict_and_the_rest_of_the_log_batch_is_free(self) -> None:
        play = Play((0, 9))
        assert play.poll(5, exact=True) == [(0, 4, 1)]
        assert play.window == (0, 9)
        assert play.partition.next_fetch_offset() == 5
        assert play.poll(5, member="bob", exact=True) == [(5, 9, 1)]

    def test_max_records_reaches_to_the_end_of_the_log_batch_it_falls_into(self) -> None:
        play = Play((0, 4), (5, 19), (20, 34))
        assert play.poll(10) == [(0, 19, 1)]

    def test_more_than_batch_size_is_cut_where_log_batches_begin(self) -> None:
        assert Play((0, 4), (5, 19), (20, 34)).poll(10, size=2) == [(0, 4, 1), (5, 19, 1)]
        singles = [(offset, offset) for offset in range(8)]
        assert Play(*singles).poll(5, size=1) == [(offset, offset, 1) for offset in range(5)]
        assert Play((0, 1), (2, 3), (4, 5), (6, 7)).poll(8, size=3) == [(0, 3, 1), (4, 7, 1)]

    def test_record_limit_ignores_batch_size(self) -> None:
        assert Play((10, 14), (15, 19), (20, 24)).poll(20, size=2, exact=True) == [(10, 24, 1)]

    def test_holes_between_log_batches_are_acquired_like_records(self) -> None:
        play = Play((0, 4), (10, 14))
        assert play.poll() == [(0, 14, 1)]
        assert play.ack((0, 4, ACCEPT), (5, 9, GAP), (10, 14, ACCEPT)) is None
        assert play.window == (15, 14)

    def test_a_budget_that_ends_in_a_hole_ends_there(self) -> None:
        assert Play((0, 4), (10, 14)).poll(7) == [(0, 6, 1)]

    def test_a_start_offset_inside_a_log_batch_begins_there(self) -> None:
        play = Play((5, 14), (15, 20))
        play.partition.move_log_start(8)
        assert play.poll(size=5) == [(8, 14, 1), (15, 20, 1)]

    def test_a_log_batch_below_the_start_offset_is_skipped(self) -> None:
        play = Play((2, 9), (10, 16))
        play.partition.move_log_start(12)
        assert play.poll(at=2) == [(12, 16, 1)]
        assert play.last is not None
        assert (play.last.first_batch, play.last.last_batch) == (1, 1)

    def test_an_empty_window_begins_where_the_log_has_records(self) -> None:
        play = Play((7, 9))
        play.partition.start_offset, play.partition.end_offset = 3, 2
        assert play.poll(at=3) == [(7, 9, 1)]
        assert play.window == (7, 9)

    def test_nothing_is_acquired_without_records_or_budget(self) -> None:
        play = Play((0, 9))
        assert play.poll(0) == []
        assert play.last == NOTHING
        assert Play().poll() == []

    def test_data_below_the_start_offset_acquires_nothing(self) -> None:
        play = Play((0, 9))
        play.partition.move_log_start(10)
        assert play.poll(at=0) == []


class TestWindow:
    def test_the_window_is_full_at_the_log_batch_that_reaches_the_cap(self) -> None:
        play = Play((10, 14), (15, 24), (25, 29), (30, 32), max_record_locks=20)
        assert play.poll() == [(10, 29, 1)]
        assert play.partition.acquirable_from(play.settings) is None
        assert play.poll(at=30) == []

    def test_the_cap_is_passed_by_the_rest_of_a_log_batch(self) -> None:
        play = Play((0, 14), (15, 24), max_record_locks=10)
        assert play.poll() == [(0, 14, 1)]

    def test_what_is_free_inside_a_full_window_goes_out_but_the_window_does_not_grow(self) -> None:
        play = Play((10, 14), (15, 24), (25, 29), (30, 32), max_record_locks=20)
        play.poll()
        assert play.ack((15, 19, RELEASE)) is None
        assert play.partition.next_fetch_offset() == 15
        assert play.poll() == [(15, 19, 2)]
        assert play.ack((29, 29, RELEASE)) is None
        assert play.poll() == [(29, 29, 2)]
        assert play.poll() == []

    def test_settled_records_make_room_only_when_the_start_offset_moves(self) -> None:
        play = Play((0, 9), (10, 19), max_record_locks=10)
        play.poll()
        assert play.ack((5, 9, ACCEPT)) is None
        assert play.partition.acquirable_from(play.settings) is None
        assert play.ack((0, 4, ACCEPT)) is None
        assert play.poll() == [(10, 19, 1)]

    def test_a_lower_cap_holds_for_the_next_acquire(self) -> None:
        play = Play(*[(offset, offset) for offset in range(30)], max_record_locks=20)
        play.poll(10)
        play.set(max_record_locks=12)
        assert play.poll() == [(10, 11, 1)]


class TestStorable:
    """No window becomes larger than can be stored, whatever its members do with its records."""

    def test_a_log_batch_that_is_too_wide_is_given_out_in_parts(self) -> None:
        play = Play((0, 59_999), max_record_locks=10**6)
        assert play.poll() == [(0, OFFSETS_MAX - 1, 1)]
        assert play.partition.acquirable_from(play.settings) is None
        assert play.poll(at=OFFSETS_MAX) == []
        assert play.ack((0, 9, ACCEPT)) is None
        assert play.poll() == [(OFFSETS_MAX, OFFSETS_MAX + 9, 1)]

    @pytest.mark.parametrize("exact", [False, True])
    def test_every_record_in_its_own_state_can_be_stored(self, exact: bool) -> None:
        """60,000 records in one log batch, alternately accepted and released: 1.2 MB as a whole."""
        play, largest = Play((0, 59_999)), 0
        for _ in range(100_000):
            acquired_ranges = play.poll(60_000, exact=exact)
            if not acquired_ranges:
                break
            for first, last, count in acquired_ranges:
                types = [ACCEPT if count > 1 or offset % 2 else RELEASE for offset in range(first, last + 1)]
                assert play.ack((first, last, types)) is None
            snapshot = play.partition.snapshot()
            largest = max(largest, len(snapshot.encode()))
        assert play.window == (60_000, 59_999)
        assert 200_000 < largest <= SNAPSHOT_BYTES_MAX

    def test_records_after_a_wide_hole_are_acquired(self) -> None:
        """Compaction left nothing for a million offsets: the window begins anew where records are."""
        play = Play((0, 9), (1_000_000, 1_000_009))
        for _ in range(100):
            for first, last, _ in play.poll():
                assert play.ack((first, last, ACCEPT)) is None
        assert play.window == (1_000_010, 1_000_009)

    def test_a_window_that_may_become_less_does_not_grow(self) -> None:
        play = Play((0, 99), (100, 199))
        play.poll(100)
        play.partition.offsets_max = 50
        assert play.partition.acquirable_from(play.settings) is None
        assert play.ack((0, 98, ACCEPT)) is None
        assert play.poll() == [(100, 148, 1)]


class TestAgain:
    def test_released_records_come_first_and_then_new_ones(self) -> None:
        play = Play((0, 9), (10, 19))
        play.poll(5)
        assert play.ack((0, 9, RELEASE)) is None
        assert play.poll() == [(0, 9, 2), (10, 19, 1)]

    def test_record_limit_gives_released_ones_first_then_fresh_ones(self) -> None:
        """10.5.118: of ten records the even ones are accepted, the odd ones released."""
        play = Play((0, 19))
        play.poll(10, exact=True)
        assert play.ack((0, 9, [ACCEPT, RELEASE] * 5)) is None
        expected = [(offset, offset, 2) for offset in range(1, 10, 2)]
        assert play.poll(10, exact=True) == [*expected, (10, 14, 1)]
        assert play.poll(10, exact=True) == [(15, 19, 1)]

    def test_batch_optimized_tests_max_records_between_deliveries_only(self) -> None:
        play = Play((0, 4), (5, 9), (10, 14))
        for _ in range(3):
            play.poll(5)
        play.release()
        assert play.poll(6) == [(0, 4, 2), (5, 9, 2)]

    def test_record_limit_counts_exactly_among_released_records(self) -> None:
        play = Play((0, 4), (5, 9))
        play.poll(5), play.poll(5)
        play.release()
        assert play.poll(7, exact=True) == [(0, 4, 2), (5, 6, 2)]
        assert play.poll(7, exact=True) == [(7, 9, 2)]

    def test_counts_that_differ_make_entries_of_their_own(self) -> None:
        play = Play((0, 9))
        play.poll()
        assert play.ack((4, 5, RELEASE)) is None
        assert play.poll() == [(4, 5, 2)]
        play.release()
        assert play.poll() == [(0, 3, 2), (4, 5, 3), (6, 9, 2)]

    def test_entries_of_two_deliveries_are_not_joined(self) -> None:
        play = Play((0, 4), (5, 9))
        play.poll(5), play.poll(5)
        play.release()
        assert play.poll() == [(0, 4, 2), (5, 9, 2)]

    def test_only_the_part_that_was_read_is_acquired_again(self) -> None:
        play = Play((0, 4), (5, 9))
        play.poll()
        play.release()
        assert play.poll(log=[(0, 4)]) == [(0, 4, 2)]
        assert play.poll() == [(5, 9, 2)]

    def test_a_new_delivery_is_cut_off_from_what_is_still_free_of_the_last(self) -> None:
        play = Play((0, 4), (5, 9))
        assert play.poll(3, exact=True, log=[(0, 4)]) == [(0, 2, 1)]
        assert play.poll(3, exact=True) == [(3, 4, 1), (5, 5, 1)]
        assert play.partition.next_fetch_offset() == 6

    def test_records_that_are_being_acknowledged_are_not_acquired(self) -> None:
        play = Play((0, 9), (10, 14))
        play.poll(5)
        play.decide((0, 4, RELEASE))
        assert play.partition.next_fetch_offset() == 10
        assert play.poll(at=0) == [(10, 14, 1)]

    def test_several_members_share_one_log_batch(self) -> None:
        play = Play((0, 9))
        assert play.poll(4, exact=True) == [(0, 3, 1)]
        assert play.poll(4, member="bob", exact=True) == [(4, 7, 1)]
        assert play.poll(4, member="cid") == [(8, 9, 1)]


class TestSlices:
    @pytest.mark.parametrize(
        ("released", "first_batch", "last_batch"),
        [((0, 4), 0, 0), ((5, 5), 1, 1), ((4, 5), 0, 1), ((12, 14), 2, 2), ((9, 9), 1, 1)],
    )
    def test_the_log_batches_from_the_first_to_the_last_acquired_offset_are_sent(
        self, released: tuple[int, int], first_batch: int, last_batch: int
    ) -> None:
        play = Play((0, 4), (5, 9), (10, 14))
        play.poll()
        play.ack((*released, RELEASE))
        play.poll(at=0)
        assert play.last is not None
        assert (play.last.first_batch, play.last.last_batch) == (first_batch, last_batch)
        assert play.last.acquired == released[1] - released[0] + 1

    def test_the_lock_ends_after_the_duration_in_force_now(self) -> None:
        play = Play((0, 9))
        play.now = 7.0
        play.set(lock_duration_s=15.0)
        play.poll()
        assert play.last is not None
        assert play.last.lock_deadline == 22.0


def sizes(play: Play, polls: int) -> list[tuple[int, int]]:
    """(first offset, records) of successive polls, all released each time."""
    acquired_sizes = []
    for _ in range(polls):
        ranges = play.poll()
        if not ranges:
            break
        acquired_sizes.append((ranges[0][0], sum(last - first + 1 for first, last, _ in ranges)))
        play.release()
    return acquired_sizes


class TestThrottling:
    def test_limit_5_of_100_records(self) -> None:
        play = Play((0, 99), delivery_count_limit=5)
        expected = [(0, 100), (0, 100), (0, 100), (0, 50)]
        expected += [(offset, 1) for offset in range(50)]
        expected += [(50, 50)]
        expected += [(offset, 1) for offset in range(50, 100)]
        assert sizes(play, 500) == expected
        assert play.window == (100, 99)

    def test_limit_10_of_512_records(self) -> None:
        expected = [(0, 512)] * 5 + [(0, 256), (0, 128), (0, 64), (0, 32)]
        expected += [(offset, 1) for offset in range(32)] + [(32, 32)] + [(offset, 1) for offset in range(32, 64)]
        expected += [(64, 64), (64, 32)] + [(offset, 1) for offset in range(64, 96)]
        assert sizes(Play((0, 511), delivery_count_limit=10), len(expected)) == expected

    def test_limit_10_of_500_records(self) -> None:
        assert [size for _, size in sizes(Play((0, 499), delivery_count_limit=10), 10)] == (
            [500] * 5 + [250, 125, 62, 31, 1]
        )

    def test_limit_3_of_100_records(self) -> None:
        """Seen on a real broker: 100, 100, then singly."""
        assert sizes(Play((0, 99), delivery_count_limit=3), 4) == [(0, 100), (0, 100), (0, 1), (1, 1)]

    def test_limit_2_isolates_nothing(self) -> None:
        assert sizes(Play((0, 511), delivery_count_limit=2), 5) == [(0, 512), (0, 512)]

    @pytest.mark.parametrize(("limit", "size"), [(5, 100), (10, 64), (2, 9), (3, 10), (7, 33), (4, 1)])
    def test_every_offset_is_delivered_exactly_as_often_as_the_limit_says(self, limit: int, size: int) -> None:
        play = Play((0, size - 1), delivery_count_limit=limit)
        delivered = [0] * size
        for _ in range(limit * size + 1):
            for first, last, count in play.poll():
                for offset in range(first, last + 1):
                    delivered[offset] += 1
                    assert delivered[offset] == count
            play.release()
        assert delivered == [limit] * size
        assert play.window == (size, size - 1)

    @pytest.mark.parametrize(("limit", "first"), [(2, 2), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4), (10, 5)])
    def test_throttling_begins_at_half_the_limit_rounded_up(self, limit: int, first: int) -> None:
        assert throttle_from(limit) == first

    def test_a_throttled_delivery_is_not_mixed_with_others(self) -> None:
        stored = [(15, 19, 0, 2), (20, 22, 4, 3), (26, 30, 0, 3)]
        play = Play.reloaded(5, stored, (7, 19), (20, 27))
        assert play.poll() == [(7, 14, 1), (15, 19, 3), (23, 25, 1)]
        assert play.partition.next_fetch_offset() == 26
        assert play.poll() == [(26, 27, 4)]

    def test_half_quarter_then_singly_and_the_rest_by_its_own_counts(self) -> None:
        play = Play.reloaded(5, [(15, 34, 0, 4)], (15, 34), delivery_count_limit=7)
        assert play.poll() == [(15, 24, 5)]
        play.wait(31)
        assert play.poll() == [(15, 19, 6)]
        play.wait(31)
        for offset in range(15, 20):
            assert play.poll() == [(offset, offset, 7)]
        assert play.poll() == [(20, 24, 6)]
        assert play.poll() == [(25, 34, 5)]

    def test_a_record_on_its_last_attempt_is_delivered_alone(self) -> None:
        play = Play.reloaded(15, [(15, 34, 0, 2)], (15, 34))
        play.poll()
        play.ack((17, 17, RELEASE), (20, 20, RELEASE))
        assert play.poll() == [(17, 17, 4), (20, 20, 4)]
        play.release()
        assert play.poll() == [(15, 16, 4)]
        assert play.poll() == [(17, 17, 5)]

    def test_a_held_record_of_high_count_throttles_nothing(self) -> None:
        play = Play.reloaded(15, [(15, 19, 0, 1)], (15, 19))
        play.poll()
        play.ack((15, 15, RELEASE))
        assert play.poll() == [(15, 15, 3)]
        play.ack((16, 19, RELEASE))
        assert play.poll(at=15) == [(16, 19, 3)]

    def test_two_members_get_a_last_attempt_apart_from_its_neighbour(self) -> None:
        """10.5.130: one-record batches, one held; the other goes out alone up to its last attempt."""
        play = Play((0, 0), (1, 1))
        play.poll(1)
        for count in range(1, 6):
            assert play.poll(2, member="bob") == [(1, 1, count)]
            play.release("bob")
        assert play.poll(2, member="bob") == []
        play.release("ann")
        assert play.poll(2, member="bob") == [(0, 0, 2)]

    def test_a_lower_limit_archives_at_the_next_release(self) -> None:
        """10.5.131: L lowered from 5 to 3 after two deliveries."""
        play = Play((0, 0))
        for _ in range(2):
            play.poll()
            play.release()
        play.set(delivery_count_limit=3)
        assert play.poll() == [(0, 0, 3)]
        play.release()
        assert play.poll() == []
        assert play.window == (1, 0)

    def test_a_higher_limit_allows_more_deliveries(self) -> None:
        """10.5.132: L raised from 3 to 5 after two deliveries."""
        play = Play((0, 0), delivery_count_limit=3)
        for _ in range(2):
            play.poll()
            play.release()
        play.set(delivery_count_limit=5)
        counts = []
        for _ in range(5):
            counts += [count for _, _, count in play.poll()]
            play.release()
        assert counts == [3, 4, 5]


class TestUnreadHoles:
    """Holes that a reload left inside the window are read again as if they were new."""

    STORED = ((21, 30, 2, 2), (41, 50, 4, 1))

    def test_a_hole_in_front_of_what_is_stored_is_read_first(self) -> None:
        play = Play.reloaded(11, self.STORED, (11, 20), (21, 30), (31, 60))
        assert play.partition.next_fetch_offset() == 11
        assert play.poll() == [(11, 20, 1), (31, 40, 1), (51, 60, 1)]
        assert play.window == (11, 60)

    def test_a_hole_is_acquired_up_to_the_budget_in_whole_log_batches(self) -> None:
        play = Play.reloaded(11, [(21, 30, 0, 2), (31, 40, 4, 1)], (11, 20), (21, 30))
        assert play.poll(8) == [(11, 20, 1)]
        assert play.window == (11, 40)
        assert play.partition.next_fetch_offset() == 21

    def test_a_log_batch_never_reaches_over_the_next_stored_batch(self) -> None:
        play = Play.reloaded(10, [(15, 30, 4, 1)], (10, 30))
        assert play.poll(1) == [(10, 14, 1)]
        assert play.partition.next_fetch_offset() == 31

    def test_record_limit_counts_the_records_of_holes(self) -> None:
        play = Play.reloaded(11, self.STORED, (16, 35), (36, 60))
        assert play.poll(20, exact=True) == [(16, 20, 1), (31, 40, 1), (51, 55, 1)]
        assert play.window == (16, 60)
        assert play.partition.next_fetch_offset() == 56

    def test_holes_of_the_log_inside_the_window_are_acquired(self) -> None:
        play = Play.reloaded(10, [(15, 20, 2, 2), (30, 40, 4, 1)], (10, 20), (30, 50))
        assert play.poll() == [(10, 14, 1), (21, 29, 1), (41, 50, 1)]
        assert play.window == (10, 50)

    def test_a_hole_that_proves_empty_is_not_read_again(self) -> None:
        """Kafka would fetch offset 10 repeatedly when everything after the hole is held."""
        play = Play.reloaded(10, [(20, 24, 0, 1)], (20, 24))
        assert play.poll() == [(20, 24, 2)]
        assert play.window == (20, 24)
        play = Play.reloaded(10, [(15, 19, 0, 1), (30, 34, 2, 1)], (15, 19), (30, 39))
        play.poll(1)
        assert play.partition.next_fetch_offset() == 20
        assert play.poll(1) == [(35, 39, 1)]
        assert play.partition.next_fetch_offset() == 40

    def test_the_start_offset_stops_at_a_hole(self) -> None:
        play = Play.reloaded(10, [(10, 14, 2, 1), (20, 24, 2, 1)], (10, 24))
        assert play.window == (15, 24)
        assert play.poll() == [(15, 19, 1)]
        play.ack((15, 19, ACCEPT))
        assert play.window == (25, 24)

    def test_part_of_a_hole_may_be_read_and_the_rest_stays(self) -> None:
        play = Play.reloaded(0, [(20, 24, 2, 1)], (0, 4))
        assert play.poll() == [(0, 4, 1)]
        assert play.state == [(0, 4, 1), (5, 19, UNREAD), (20, 24, 2)]
        assert play.partition.next_fetch_offset() == 5


class TestCompaction:
    def test_free_records_no_longer_in_the_log_are_archived(self) -> None:
        play = Play((0, 4), (5, 9), (10, 14))
        play.poll(size=5)
        play.release()
        play.log = play.log[1:]
        assert play.poll() == [(5, 9, 2), (10, 14, 2)]
        assert play.window == (5, 14)

    def test_held_records_are_left_to_their_holder(self) -> None:
        play = Play((0, 4), (5, 9), (10, 14))
        play.poll(size=5)
        play.ack((5, 9, RELEASE))
        play.log = play.log[2:]
        assert play.poll(at=5) == []
        assert play.state == [(0, 4, 1), (5, 9, 4), (10, 14, 1)]
        assert play.partition.statistics().delivery_complete == 5

    def test_a_delivery_may_vanish_in_part(self) -> None:
        play = Play((0, 4), (5, 9))
        play.poll()
        play.release()
        assert play.poll(log=[(5, 9)]) == [(5, 9, 2)]
        assert play.window == (5, 9)

    def test_a_full_window_of_vanished_records_does_not_block(self) -> None:
        play = Play((0, 9), max_record_locks=10)
        play.poll()
        play.release()
        assert play.poll(log=[(50, 54)]) == [(50, 54, 1)]
        assert play.window == (50, 54)


class TestAborted:
    def test_records_of_aborted_transactions_are_archived_and_cut_out(self) -> None:
        play = Play((0, 4), (5, 9), (10, 10), (11, 14))
        assert play.poll(aborted=[(5, 9)]) == [(0, 4, 1), (10, 14, 1)]
        assert play.last is not None
        assert play.last.acquired == 10
        assert play.state == [(0, 4, 1), (5, 9, 4), (10, 14, 1)]
        assert play.ack((5, 9, ACCEPT)) == INVALID_RECORD_STATE

    def test_when_all_was_aborted_nothing_is_acquired_and_the_start_offset_moves(self) -> None:
        play = Play((0, 4), (5, 9))
        assert play.poll(aborted=[(0, 9)]) == []
        assert play.window == (10, 9)
        assert not play.partition.index.expired(100.0)

    def test_several_aborted_ranges_split_one_entry(self) -> None:
        play = Play((0, 9), (10, 19), (20, 29), (30, 39))
        assert play.poll(aborted=[(0, 9), (20, 29)]) == [(10, 19, 1), (30, 39, 1)]

    def test_aborted_ranges_across_entries_are_cut_out_of_each(self) -> None:
        play = Play((0, 3), (4, 7), (8, 11), (12, 15))
        assert play.poll(size=1, aborted=[(4, 7)]) == [(0, 3, 1), (8, 11, 1), (12, 15, 1)]
        play = Play((0, 3), (4, 7), (8, 11), (12, 15), (16, 19))
        assert play.poll(size=8, aborted=[(0, 3), (8, 15)]) == [(4, 7, 1), (16, 19, 1)]
        play = Play((0, 3), (4, 7), (8, 11), (12, 15))
        assert play.poll(size=8, aborted=[(4, 11)]) == [(0, 3, 1), (12, 15, 1)]

    def test_an_aborted_record_released_under_read_uncommitted_is_archived_later(self) -> None:
        play = Play((0, 4), (5, 9))
        assert play.poll() == [(0, 9, 1)]
        play.release()
        assert play.poll(aborted=[(0, 4)]) == [(5, 9, 2)]
        assert play.window == (5, 9)

    def test_what_another_member_holds_stays_his(self) -> None:
        play = Play((0, 4), (5, 9))
        play.poll(5)
        assert play.poll(member="bob", at=0, aborted=[(0, 4)]) == [(5, 9, 1)]
        assert play.ack((0, 4, ACCEPT)) is None


def test_a_record_locked_by_itself_is_small() -> None:
    """A million of them fit into 300 MB, the allocator's part included (`python -m tests.bench.share_engine`)."""
    records, settings = 10_000, Settings(max_record_locks=10_000)
    partition = SharePartition(10_000_000)
    reads = [ReadRecords(n, [Batch(n, n)]) for n in range(10_000_000, 10_000_000 + records)]
    gc.collect()
    tracemalloc.start()
    try:
        for read in reads:
            assert partition.acquire("member", read, 1, 1, True, settings, read.fetch_offset * 1e-4).acquired == 1
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used / records < 240
