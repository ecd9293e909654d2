"""The share partition around acquire and acknowledge (sharegroups/README.md rules 18, 35, 51, 54)."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.model.offset_runs import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, LockIndex
from kafka_share_proxy.sharegroups.model.partition import SharePartition, Transition, WindowStatistics
from kafka_share_proxy.sharegroups.model.snapshot import ShareSnapshot
from kafka_share_proxy.wire.errors import LocalProtocolError

from tests.sharegroups.model.play import ACCEPT, REJECT, RELEASE, Play


class TestSessionEnd:
    def test_what_a_member_holds_becomes_free_with_its_count(self) -> None:
        """3.6: the count is kept, so the next delivery is the second."""
        play = Play((0, 9), (10, 19))
        play.poll(5)
        play.poll(5, member="bob")
        play.release("ann")
        assert play.state == [(0, 9, AVAILABLE), (10, 19, ACQUIRED)]
        assert play.poll(5, member="bob") == [(0, 9, 2)]

    def test_a_member_that_holds_nothing_changes_nothing(self) -> None:
        play = Play((0, 9))
        play.poll()
        assert play.partition.decide_release("bob", play.settings) is None
        assert play.partition.decide_release_all(play.settings) is not None
        assert play.partition.decide_release_all(play.settings) is None, "what is in transition is not released twice"

    def test_used_up_deliveries_are_archived(self) -> None:
        play = Play((0, 9), delivery_count_limit=2)
        for _ in range(2):
            play.poll()
            play.release()
        assert play.window == (10, 9)

    def test_a_leader_move_releases_all_waiters(self) -> None:
        play = Play((0, 9))
        for member in ("ann", "bob", "cid"):
            play.poll(3, member=member, exact=True)
        play.release()
        assert play.state == [(0, 9, AVAILABLE)]
        assert play.partition.locks() == []

    def test_acknowledged_records_are_left_alone(self) -> None:
        play = Play((0, 9))
        play.poll()
        transition = play.decide((5, 9, ACCEPT))
        assert isinstance(transition, Transition)
        play.release("ann")
        play.partition.apply(transition)
        assert play.state == [(0, 4, AVAILABLE), (5, 9, ACKNOWLEDGED)]


class TestLockTimeout:
    def test_an_ended_lock_frees_the_records_for_others(self) -> None:
        play = Play((0, 9))
        play.poll()
        play.wait(29.9)
        assert play.poll(member="bob") == []
        play.wait(0.1)
        assert play.poll(member="bob") == [(0, 9, 2)]

    def test_used_up_deliveries_are_archived(self) -> None:
        play = Play((0, 9), delivery_count_limit=2)
        for _ in range(2):
            play.poll()
            play.wait(30.0)
        assert play.window == (10, 9)

    def test_it_holds_in_memory_before_it_is_stored(self) -> None:
        play = Play((0, 9))
        play.poll()
        expired = play.partition.index.expired(30.0)
        transition = play.partition.expire(expired[play.partition], play.settings, play.now)
        assert isinstance(transition, Transition)
        assert transition.changes == ((0, 9, AVAILABLE, 1),)
        assert play.partition.next_fetch_offset() == 0
        assert play.partition.snapshot().batches == ((0, 9, AVAILABLE, 1),)

    def test_parts_of_a_split_delivery_end_together_and_renewed_ones_later(self) -> None:
        play = Play((0, 9))
        play.poll()
        play.ack((4, 4, ACCEPT))
        play.now = 20.0
        play.ack((8, 9, 4))
        play.wait(10.0)
        assert play.state == [(0, 3, AVAILABLE), (4, 4, ACKNOWLEDGED), (5, 7, AVAILABLE), (8, 9, ACQUIRED)]
        play.wait(20.0)
        assert play.state == [(0, 3, AVAILABLE), (4, 4, ACKNOWLEDGED), (5, 9, AVAILABLE)]

    def test_nothing_to_expire_gives_nothing(self) -> None:
        assert Play((0, 9)).partition.expire([], Play().settings, 0.0) is None

    def test_partitions_that_share_an_index_find_their_own_locks(self) -> None:
        index = LockIndex()
        plays = [Play((0, 9), partition=SharePartition(0, locks=index, key=name)) for name in ("a", "b")]
        for play in plays:
            play.poll()
        assert {partition.key for partition in index.expired(30.0)} == {"a", "b"}


class TestLogStart:
    def test_a_window_after_the_log_start_is_empty(self) -> None:
        play = Play((0, 9))
        play.poll()
        play.partition.move_log_start(15)
        assert play.window == (15, 14)
        assert play.partition.next_fetch_offset() == 15
        assert play.ack((0, 9, ACCEPT)) is None, "acknowledging records deleted meanwhile gives no error"

    def test_it_never_moves_back(self) -> None:
        play = Play((5, 9))
        play.partition.move_log_start(3)
        assert play.window == (5, 4)

    def test_a_delivery_across_the_log_start_continues_with_the_rest(self) -> None:
        play = Play((0, 9))
        play.poll()
        play.partition.move_log_start(4)
        assert play.state == [(4, 9, ACQUIRED)]
        play.wait(30.0)
        assert play.poll(log=[(0, 9)]) == [(4, 9, 2)]

    def test_settled_records_right_after_the_log_start_are_skipped(self) -> None:
        play = Play((0, 9), max_record_locks=10)
        play.poll()
        play.ack((4, 9, ACCEPT))
        play.partition.move_log_start(4)
        assert play.window == (10, 9)
        assert play.partition.acquirable_from(play.settings) is not None

    def test_a_transition_across_the_log_start_settles_what_is_left(self) -> None:
        play = Play((0, 9))
        play.poll()
        transition = play.decide((2, 7, RELEASE))
        assert isinstance(transition, Transition)
        play.partition.move_log_start(4)
        play.partition.apply(transition)
        assert play.state == [(4, 7, AVAILABLE), (8, 9, ACQUIRED)]

    def test_a_transition_below_the_log_start_settles_nothing(self) -> None:
        play = Play((0, 9), (10, 19))
        play.poll(5), play.poll(5)
        accepted, released = play.decide((0, 4, ACCEPT)), play.decide((5, 9, RELEASE))
        assert isinstance(accepted, Transition)
        assert isinstance(released, Transition)
        play.partition.move_log_start(10)
        play.partition.apply(accepted)
        play.partition.revert(released, 40.0, play.settings)
        assert play.state == [(10, 19, ACQUIRED)]


class TestLogEnd:
    def test_lost_records_are_forgotten_and_read_again(self) -> None:
        """10.6.140: never loop on offsets that the log no longer has."""
        play = Play((0, 9), (10, 19))
        play.poll(5), play.poll(5)
        play.partition.move_log_end(14)
        assert play.state == [(0, 13, ACQUIRED)]
        assert play.partition.next_fetch_offset() == 14

    def test_a_start_offset_beyond_the_log_goes_to_its_end(self) -> None:
        play = Play.reloaded(100, [(105, 109, ACKNOWLEDGED, 1)])
        play.partition.move_log_end(50)
        assert play.window == (50, 49)
        assert play.partition.next_fetch_offset() == 50

    def test_a_log_that_ends_after_the_window_changes_nothing(self) -> None:
        play = Play((0, 9))
        play.poll()
        play.partition.move_log_end(10)
        assert play.state == [(0, 9, ACQUIRED)]


class TestSnapshot:
    def test_held_records_are_stored_as_they_were_before_this_delivery(self) -> None:
        play = Play((0, 4), (5, 9), (10, 14))
        play.poll()
        play.ack((5, 9, RELEASE))
        play.poll()
        play.ack((2, 2, ACCEPT))
        assert play.partition.snapshot() == ShareSnapshot(0, 0, 1, ((2, 2, ACKNOWLEDGED, 1), (5, 9, AVAILABLE, 1)))

    def test_it_shows_given_transitions_as_applied_and_no_others(self) -> None:
        play = Play((0, 9))
        play.poll()
        first, second = play.decide((0, 3, ACCEPT)), play.decide((4, 9, REJECT))
        assert isinstance(first, Transition)
        assert isinstance(second, Transition)
        snapshot = play.partition.snapshot
        assert snapshot() == ShareSnapshot(0, 0, 0, ())
        assert snapshot(first) == ShareSnapshot(4, 0, 0, ())
        assert snapshot(second) == ShareSnapshot(0, 0, 6, ((4, 9, ARCHIVED, 1),))
        assert snapshot(first, second) == ShareSnapshot(10, 0, 0, ())
        assert play.state == [(0, 9, ACQUIRED)]

    def test_neighbours_that_are_alike_are_stored_as_one(self) -> None:
        play = Play((0, 4), (5, 9), (10, 14))
        play.poll(size=5)
        play.ack((5, 7, ACCEPT), (8, 14, ACCEPT))
        assert play.partition.snapshot().batches == ((5, 14, ACKNOWLEDGED, 1),)

    def test_a_reload_makes_held_records_free_with_the_last_stored_count(self) -> None:
        """7.5."""
        play = Play((0, 9), (10, 19))
        play.poll()
        play.ack((5, 9, RELEASE))
        play.poll()
        play.ack((15, 19, ACCEPT))
        again = Play(*[(0, 9), (10, 19)], partition=SharePartition.from_snapshot(play.partition.snapshot()))
        assert again.window == (0, 19)
        assert again.poll() == [(0, 4, 1), (5, 9, 2), (10, 14, 1)]

    def test_a_leading_run_of_settled_batches_moves_the_start_offset_on_load(self) -> None:
        play = Play.reloaded(5, [(5, 9, ACKNOWLEDGED, 1), (10, 12, ARCHIVED, 1), (13, 14, AVAILABLE, 1)])
        assert play.window == (13, 14)
        assert Play.reloaded(5, [(5, 9, ACKNOWLEDGED, 1)]).window == (10, 9)
        assert Play.reloaded(5, []).window == (5, 4)

    @pytest.mark.parametrize("batches", [[(4, 6, 0, 1)], [(7, 6, 0, 1)], [(5, 9, 0, 1), (9, 12, 2, 1)]])
    def test_a_snapshot_that_makes_no_sense_is_refused(self, batches: list[tuple[int, int, int, int]]) -> None:
        with pytest.raises(ValueError, match="state batch"):
            SharePartition.from_snapshot(ShareSnapshot(5, 0, 0, tuple(batches)))

    @pytest.mark.parametrize("state", [-1, 1, 5, 8])
    def test_a_state_that_is_never_stored_is_refused(self, state: int) -> None:
        with pytest.raises(ValueError, match="state batch"):
            SharePartition.from_snapshot(ShareSnapshot(5, 0, 0, ((5, 6, state, 1),)))


class TestResponses:
    def test_statistics_and_locks_show_the_content(self) -> None:
        play = Play((0, 9), (10, 19))
        play.poll(10)
        play.poll(4, member="bob", exact=True)
        play.ack((2, 3, ACCEPT), (4, 4, RELEASE))
        play.decide((5, 6, ACCEPT))
        assert play.partition.statistics() == WindowStatistics(
            in_flight=20, available=7, acquired=11, pending=2, delivery_complete=2
        )
        assert [(lock.first, lock.last, lock.member_id) for lock in play.partition.locks()] == [
            (0, 1, "ann"), (5, 6, "ann"), (7, 9, "ann"), (10, 13, "bob"),
        ]  # fmt: skip

    def test_a_transition_is_settled_once(self) -> None:
        play = Play((0, 9))
        play.poll()
        transition = play.decide((0, 9, ACCEPT))
        assert isinstance(transition, Transition)
        play.partition.apply(transition)
        with pytest.raises(LocalProtocolError):
            play.partition.apply(transition)
        with pytest.raises(LocalProtocolError):
            play.partition.revert(transition, 0.0, play.settings)
        assert play.window == (10, 9)

    def test_runs_do_not_pile_up_when_records_are_acknowledged_out_of_order(self) -> None:
        play = Play((0, 499))
        play.poll()
        for offset in [*range(1, 500, 2), *range(2, 500, 2)]:
            assert play.ack((offset, offset, ACCEPT)) is None
        assert len(play.partition.runs) == 2
        play.ack((0, 0, ACCEPT))
        assert play.window == (500, 499)
        assert len(play.partition.index) == 0
