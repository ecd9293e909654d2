"""Permitted changes of an acknowledgement (sharegroups/README.md rules 39-43 and 46-49)."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.model.acknowledging import check_shape
from kafka_share_proxy.sharegroups.model.offset_runs import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE
from kafka_share_proxy.sharegroups.model.partition import Refusal, Transition
from kafka_share_proxy.wire.errors import ErrorCode

from tests.sharegroups.model.play import ACCEPT, GAP, REJECT, RELEASE, RENEW, Play

INVALID_REQUEST, INVALID_RECORD_STATE = 42, 121


class TestShape:
    """Judged without any state (sharegroups/README.md rule 40)."""

    @pytest.mark.parametrize(
        "batches",
        [
            [(5, 3, [1])],
            [(0, 5, [1]), (3, 8, [1])],
            [(0, 5, [])],
            [(0, 1, [1, 1, 1])],
            [(0, 2, [1, 1])],
            [(0, 0, [5])],
            [(0, 0, [-1])],
            [(0, 1, [1, 9])],
            [(0, 1, [-1, 1])],
            [(0, 0, [RENEW])],
            [(0, 1, [1, RENEW])],
            [(0, 0, [1]), (1, 1, [7])],
        ],
    )
    def test_bad_shapes_are_invalid_requests(self, batches: list[tuple[int, int, list[int]]]) -> None:
        refusal = check_shape(batches, False)
        assert refusal is not None
        assert refusal.error == INVALID_REQUEST

    @pytest.mark.parametrize(
        ("batches", "renew"),
        [
            ([], False),
            ([(0, 5, [1])], False),
            ([(0, 5, [1]), (5, 8, [2])], False),
            ([(0, 3, [0, 1, 2, 3])], False),
            ([(0, 0, [RENEW])], True),
            ([(0, 1, b"\1\4")], True),
        ],
    )
    def test_good_shapes_pass(self, batches: list[tuple[int, int, list[int]]], renew: bool) -> None:
        assert check_shape(batches, renew) is None

    def test_the_shape_is_judged_before_the_state(self) -> None:
        play = Play((0, 9))
        play.poll()
        assert play.ack((50, 40, ACCEPT)) == INVALID_REQUEST
        assert play.ack((0, 0, 9)) == INVALID_REQUEST


class TestTypes:
    @pytest.mark.parametrize(
        ("acknowledge_type", "state"),
        [(GAP, ARCHIVED), (ACCEPT, ACKNOWLEDGED), (RELEASE, AVAILABLE), (REJECT, ARCHIVED)],
    )
    def test_each_type_has_its_state(self, acknowledge_type: int, state: int) -> None:
        play = Play((0, 9))
        play.poll()
        assert play.ack((5, 9, acknowledge_type)) is None
        assert play.state == [(0, 4, ACQUIRED), (5, 9, state)]

    def test_every_offset_takes_its_own_state(self) -> None:
        """10.1.34."""
        play = Play((0, 9))
        play.poll()
        assert play.ack((1, 4, [ACCEPT, RELEASE, REJECT, GAP])) is None
        assert play.state == [(0, 0, ACQUIRED), (1, 1, ACKNOWLEDGED), (2, 2, AVAILABLE), (3, 4, ARCHIVED), (5, 9, 1)]

    def test_types_may_come_as_bytes(self) -> None:
        play = Play((0, 2))
        play.poll()
        decided = play.partition.decide_acknowledge("ann", [(0, 2, b"\1\1\3")], False, play.settings, 0.0)
        assert isinstance(decided, Transition)
        assert decided.changes == ((0, 1, ACKNOWLEDGED, 1), (2, 2, ARCHIVED, 1))

    def test_the_last_delivery_is_archived_when_released(self) -> None:
        """10.1.11."""
        play = Play((0, 9), (10, 19), delivery_count_limit=2)
        for _ in range(2):
            play.poll(5)
            play.ack((0, 9, RELEASE))
        assert play.window == (10, 9)
        assert play.poll() == [(10, 19, 1)]

    def test_a_batch_may_cover_several_deliveries(self) -> None:
        play = Play((0, 4), (5, 9), (10, 14))
        play.poll(15, size=5)
        assert play.ack((0, 14, ACCEPT)) is None
        assert play.window == (15, 14)

    def test_an_empty_list_of_batches_changes_nothing(self) -> None:
        play = Play((0, 4))
        decided = play.decide()
        assert isinstance(decided, Transition)
        assert decided.changes == ()


class TestBounds:
    """sharegroups/README.md rule 41."""

    def test_acknowledgements_below_the_start_offset_are_accepted_silently(self) -> None:
        play = Play((0, 9))
        play.poll()
        assert play.ack((0, 9, ACCEPT)) is None
        assert play.ack((0, 9, ACCEPT)) is None

    def test_repeating_is_refused_while_the_start_offset_has_not_passed(self) -> None:
        """10.1.33."""
        play = Play((0, 9))
        play.poll()
        assert play.ack((5, 9, ACCEPT)) is None
        assert play.ack((5, 9, ACCEPT)) == INVALID_RECORD_STATE
        assert play.ack((0, 4, ACCEPT)) is None
        assert play.ack((5, 9, ACCEPT)) is None

    def test_a_batch_across_the_start_offset_applies_to_what_is_left(self) -> None:
        play = Play((0, 9))
        play.poll()
        play.partition.move_log_start(4)
        assert play.ack((0, 9, ACCEPT)) is None
        assert play.window == (10, 9)

    def test_per_offset_types_across_the_start_offset_stay_in_step(self) -> None:
        play = Play((0, 5))
        play.poll()
        play.partition.move_log_start(2)
        assert play.ack((0, 5, [REJECT, REJECT, ACCEPT, RELEASE, ACCEPT, RELEASE])) is None
        assert play.state == [(3, 3, AVAILABLE), (4, 4, ACKNOWLEDGED), (5, 5, AVAILABLE)]

    def test_beyond_the_last_tracked_offset_is_an_invalid_request(self) -> None:
        """10.1.32."""
        play = Play((0, 9))
        play.poll()
        assert play.ack((0, 10, ACCEPT)) == INVALID_REQUEST
        assert play.ack((20, 25, ACCEPT)) == INVALID_REQUEST

    def test_with_nothing_tracked_it_is_an_invalid_state(self) -> None:
        play = Play((5, 9))
        assert play.ack((5, 9, ACCEPT)) == INVALID_RECORD_STATE
        play.poll()
        play.ack((5, 9, ACCEPT))
        assert play.ack((10, 12, ACCEPT)) == INVALID_RECORD_STATE

    def test_with_nothing_tracked_but_the_start_offset_inside_it_is_beyond_the_end(self) -> None:
        play = Play((5, 9))
        play.poll()
        play.ack((5, 9, ACCEPT))
        assert play.ack((8, 12, ACCEPT)) == INVALID_REQUEST

    def test_an_unread_hole_in_front_is_not_tracked(self) -> None:
        play = Play.reloaded(10, [(20, 24, 0, 1)], (10, 24))
        assert play.ack((10, 12, ACCEPT)) == INVALID_RECORD_STATE
        play.poll(at=20, log=[(20, 24)])
        assert play.ack((20, 24, ACCEPT)) is None

    def test_a_batch_that_ends_in_an_unread_hole_goes_beyond_what_was_acquired(self) -> None:
        play = Play.reloaded(10, [(10, 14, 0, 1), (20, 24, 0, 1)], (10, 14))
        play.poll(at=10, log=[(10, 14)])
        assert play.ack((10, 17, ACCEPT)) == INVALID_REQUEST

    def test_holes_between_are_ignored(self) -> None:
        play = Play((0, 4), (10, 14))
        play.poll(5)
        play.poll(log=[(10, 14)])
        assert play.ack((0, 14, ACCEPT)) is None
        assert play.window == (15, 14)


class TestOwnership:
    def test_another_members_records_are_refused_and_untouched(self) -> None:
        """10.1.29."""
        play = Play((0, 9))
        play.poll()
        assert play.ack((0, 9, ACCEPT), member="bob") == INVALID_RECORD_STATE
        assert play.ack((0, 9, ACCEPT), member="ann") is None

    def test_one_offset_that_is_not_held_fails_all_of_the_partition(self) -> None:
        """10.1.31."""
        play = Play((0, 9))
        play.poll()
        play.ack((7, 7, ACCEPT))
        assert play.ack((0, 6, ACCEPT), (7, 9, ACCEPT)) == INVALID_RECORD_STATE
        assert play.ack((0, 9, ACCEPT)) == INVALID_RECORD_STATE
        assert play.state == [(0, 6, ACQUIRED), (7, 7, ACKNOWLEDGED), (8, 9, ACQUIRED)]

    def test_free_records_are_refused(self) -> None:
        play = Play((0, 9))
        play.poll()
        play.ack((0, 9, RELEASE))
        assert play.ack((0, 9, ACCEPT)) == INVALID_RECORD_STATE

    def test_after_the_lock_ended_it_is_too_late(self) -> None:
        play = Play((0, 9))
        play.poll()
        play.wait(30.0)
        assert play.ack((0, 9, ACCEPT)) == INVALID_RECORD_STATE
        assert play.poll(member="bob") == [(0, 9, 2)]

    def test_a_stale_acknowledgement_of_the_same_member_counts_for_the_new_delivery(self) -> None:
        """6.3: the server cannot tell them apart."""
        play = Play((0, 9))
        play.poll()
        play.wait(30.0)
        play.poll()
        assert play.ack((0, 9, ACCEPT)) is None

    def test_two_batches_that_meet_in_one_offset_are_refused(self) -> None:
        play = Play((0, 9))
        play.poll()
        assert play.ack((0, 5, ACCEPT), (5, 9, ACCEPT)) == INVALID_RECORD_STATE
        assert play.state == [(0, 9, ACQUIRED)]


class TestTransitions:
    """Nothing holds before it is stored (sharegroups/README.md rules 42, 43)."""

    def test_nothing_moves_before_apply(self) -> None:
        play = Play((0, 9))
        play.poll()
        transition = play.decide((0, 9, ACCEPT))
        assert isinstance(transition, Transition)
        assert play.window == (0, 9)
        play.partition.apply(transition)
        assert play.window == (10, 9)

    def test_records_in_transition_cannot_be_acknowledged_again(self) -> None:
        play = Play((0, 9))
        play.poll()
        play.decide((0, 4, ACCEPT))
        for acknowledge_type in range(5):
            refusal = play.decide((4, 9, acknowledge_type))
            assert isinstance(refusal, Refusal)
            assert refusal.error is ErrorCode.INVALID_RECORD_STATE
        assert play.ack((5, 9, ACCEPT)) is None

    def test_the_start_offset_waits_for_a_transition_in_front(self) -> None:
        play = Play((0, 9))
        play.poll()
        front = play.decide((0, 4, ACCEPT))
        behind = play.decide((5, 9, ACCEPT))
        assert isinstance(front, Transition)
        assert isinstance(behind, Transition)
        play.partition.apply(behind)
        assert play.window == (0, 9)
        play.partition.apply(front)
        assert play.window == (10, 9)

    def test_a_revert_gives_the_records_back_with_the_old_lock(self) -> None:
        play = Play((0, 9))
        play.poll()
        play.now = 10.0
        transition = play.decide((0, 9, [ACCEPT] * 5 + [RELEASE] * 5))
        assert isinstance(transition, Transition)
        play.partition.revert(transition, 20.0, play.settings)
        assert play.state == [(0, 9, ACQUIRED)]
        assert [lock.deadline for lock in play.partition.locks()] == [30.0, 30.0]
        play.wait(20.0)
        assert play.state == [(0, 9, AVAILABLE)]

    @pytest.mark.parametrize(("limit", "state"), [(5, AVAILABLE), (2, ARCHIVED)])
    def test_a_lock_that_ended_meanwhile_frees_the_records_on_revert(self, limit: int, state: int) -> None:
        play = Play((0, 4), (5, 9), delivery_count_limit=limit)
        play.poll()
        play.ack((5, 9, RELEASE))
        play.poll()
        transition = play.decide((5, 9, ACCEPT))
        assert isinstance(transition, Transition)
        play.wait(30.0)
        assert play.state == [(0, 4, AVAILABLE), (5, 9, ACQUIRED)]
        play.partition.revert(transition, play.now, play.settings)
        assert play.state[-1] == (5, 9, state) or play.state == [(0, 9, state)]

    @pytest.mark.parametrize(("now", "state"), [(29.9, ACQUIRED), (30.0, AVAILABLE)])
    def test_a_revert_checks_the_lock_itself(self, now: float, state: int) -> None:
        """Also if ended locks were not collected yet."""
        play = Play((0, 9))
        play.poll()
        transition = play.decide((0, 9, ACCEPT))
        assert isinstance(transition, Transition)
        play.partition.revert(transition, now, play.settings)
        assert play.state == [(0, 9, state)]
        assert len(play.partition.index) == (state == ACQUIRED)

    def test_a_lock_that_ended_meanwhile_does_not_matter_on_apply(self) -> None:
        play = Play((0, 9))
        play.poll()
        transition = play.decide((0, 9, ACCEPT))
        assert isinstance(transition, Transition)
        play.wait(30.0)
        play.partition.apply(transition)
        assert play.window == (10, 9)

    def test_a_refusal_undoes_the_changes_of_the_same_request(self) -> None:
        play = Play((0, 9))
        play.poll()
        assert play.ack((0, 4, ACCEPT), (5, 20, ACCEPT)) == INVALID_REQUEST
        assert play.ack((0, 9, ACCEPT)) is None


class TestRenew:
    def test_a_renewal_restarts_the_full_lock(self) -> None:
        """10.2.45, in seconds: lock 2.0, renewed at 1.2, still held at 2.4, free at 3.2."""
        play = Play((0, 0), lock_duration_s=2.0)
        play.poll()
        play.wait(1.2)
        assert play.ack((0, 0, RENEW)) is None
        play.wait(1.2)
        assert play.poll(member="bob") == []
        play.wait(0.8)
        assert play.poll(member="bob") == [(0, 0, 2)]

    def test_a_renewal_takes_the_duration_in_force_now(self) -> None:
        """10.2.47."""
        play = Play((0, 9), lock_duration_s=15.0)
        play.poll()
        play.set(lock_duration_s=25.0)
        play.now = 10.0
        play.ack((0, 9, RENEW))
        assert [lock.deadline for lock in play.partition.locks()] == [35.0]

    def test_a_renewal_stores_nothing_and_counts_no_delivery(self) -> None:
        """10.2.48."""
        play = Play((0, 9))
        play.poll()
        before = play.partition.snapshot()
        decided = play.decide((0, 9, RENEW))
        assert isinstance(decided, Transition)
        assert decided.changes == ()
        assert play.partition.snapshot() == before
        lock = play.partition.locks()[0]
        assert (lock.delivery_count, lock.renewals, lock.member_id) == (1, 1, "ann")

    def test_a_part_may_be_renewed_while_the_rest_keeps_its_time(self) -> None:
        play = Play((0, 9))
        play.poll()
        play.now = 20.0
        assert play.ack((3, 5, RENEW)) is None
        assert [(lock.first, lock.last, lock.deadline) for lock in play.partition.locks()] == [
            (0, 2, 30.0), (3, 5, 50.0), (6, 9, 30.0),
        ]  # fmt: skip
        play.wait(10.0)
        assert play.state == [(0, 2, AVAILABLE), (3, 5, ACQUIRED), (6, 9, AVAILABLE)]

    def test_types_may_be_mixed(self) -> None:
        """10.2.42."""
        play = Play((0, 9))
        play.poll()
        play.now = 10.0
        assert play.ack((0, 9, [ACCEPT, RENEW] * 5)) is None
        assert play.partition.statistics().acquired == 5
        assert {lock.deadline for lock in play.partition.locks()} == {40.0}

    def test_renewals_are_not_limited_and_hold_back_the_start_offset(self) -> None:
        play = Play((0, 0), (1, 9))
        play.poll()
        play.ack((1, 9, ACCEPT))
        for _ in range(100):
            play.wait(29.0)
            assert play.ack((0, 0, RENEW)) is None
        assert play.window == (0, 9)
        assert play.partition.locks()[0].renewals == 100

    def test_renewals_in_front_of_a_refused_batch_stay(self) -> None:
        """5.2: other changes of the partition are undone, renewals are not."""
        play = Play((0, 9))
        play.poll()
        play.now = 10.0
        assert play.ack((0, 2, RENEW), (3, 4, ACCEPT), (20, 20, ACCEPT)) == INVALID_REQUEST
        assert [(lock.first, lock.deadline) for lock in play.partition.locks()] == [(0, 40.0), (3, 30.0)]
        assert play.state == [(0, 9, ACQUIRED)]

    def test_a_renewed_offset_may_be_accepted_by_the_next_batch(self) -> None:
        play = Play((0, 9))
        play.poll()
        assert play.ack((0, 4, RENEW), (4, 9, ACCEPT)) is None
        assert play.state == [(0, 3, ACQUIRED), (4, 9, ACKNOWLEDGED)]
        assert play.ack((0, 3, RENEW), (3, 3, RENEW)) is None
        assert play.ack((0, 3, RENEW), (3, 3, RENEW), (3, 3, ACCEPT)) is None
        assert play.state == [(0, 2, ACQUIRED), (3, 9, ACKNOWLEDGED)]
        assert len(play.partition.index) == 1

    def test_what_follows_a_renewed_boundary_is_not_forgotten(self) -> None:
        play = Play((0, 9))
        play.poll()
        assert play.ack((0, 2, RENEW), (2, 3, ACCEPT)) is None
        assert play.state == [(0, 1, ACQUIRED), (2, 3, ACKNOWLEDGED), (4, 9, ACQUIRED)]

    @pytest.mark.parametrize("case", ["expired", "other member", "acknowledged", "in transition", "disabled"])
    def test_what_cannot_be_renewed_is_an_invalid_state(self, case: str) -> None:
        """10.2.46, 49."""
        play = Play((0, 4), (5, 9))
        play.poll()
        member = "ann"
        if case == "expired":
            play.wait(30.0)
        elif case == "other member":
            member = "bob"
        elif case == "acknowledged":
            play.ack((5, 9, ACCEPT))
        elif case == "in transition":
            play.decide((5, 9, ACCEPT))
        else:
            play.set(renew_enabled=False)
        assert play.ack((5, 9, RENEW), member=member) == INVALID_RECORD_STATE

    def test_when_renewing_is_disabled_an_accept_of_the_same_partition_is_rolled_back(self) -> None:
        """10.2.49."""
        play = Play((0, 9))
        play.poll()
        play.set(renew_enabled=False)
        assert play.ack((0, 4, ACCEPT), (5, 9, RENEW)) == INVALID_RECORD_STATE
        assert play.state == [(0, 9, ACQUIRED)]

    def test_renew_without_permission_is_an_invalid_request(self) -> None:
        """10.2.43: version 1, or IsRenewAck false."""
        play = Play((0, 9))
        play.poll()
        assert play.ack((0, 9, RENEW), renew=False) == INVALID_REQUEST
        assert play.partition.locks()[0].renewals == 0
