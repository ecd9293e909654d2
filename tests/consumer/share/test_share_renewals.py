"""Locks of what is worked on are renewed in time, together, and no longer than that."""

from __future__ import annotations

import math

import pytest
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_holds import AcknowledgementResult, LockLostError, ShareHolds
from kafka_share_proxy.consumer.share.share_renewals import (
    CHECKED_EVERY_S,
    FETCH_WAIT,
    RENEW_AFTER,
    ShareJob,
    ShareRenewals,
)
from kafka_share_proxy.consumer.share.share_session import ShareSession
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

P0 = TopicPartition("p", 0)
NOW, LOCK_S = 1000.0, 10.0
ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW
DUE_AT = NOW + LOCK_S * RENEW_AFTER


class Play:
    """Records 0 to 9 of a partition, delivered now."""

    def __init__(self) -> None:
        self.results: list[AcknowledgementResult] = []
        self.held = ShareHolds(self.results.append)
        self.held.lock_s = LOCK_S
        self.session = ShareSession(1, epoch=1)
        self.delivery = self.held.deliver(P0, range(10), self.session, NOW + LOCK_S)
        self.renewals = ShareRenewals(self.held)
        self.lost: list[int] = []

    def begin(self, offset: int, now: float = NOW) -> ShareJob:
        return self.renewals.begin(P0, offset, self.delivery, lambda: self.lost.append(offset), now)

    def due(self, now: float) -> dict[int, AcknowledgeType]:
        self.renewals.renew_due(now)
        return dict(self.session.due.get(P0, {}))

    def respond(self, now: float, code: ErrorCode = ErrorCode.NONE) -> None:
        self.held.take_due(self.session, now)
        self.held.on_response(self.session, P0, code, now, now)
        self.renewals.on_response(self.session)


def test_a_record_in_work_is_renewed_well_before_its_lock_ends() -> None:
    play = Play()
    play.begin(3)
    assert play.renewals.wake_at(DUE_AT - 0.5) == pytest.approx(DUE_AT)
    assert play.due(DUE_AT - 0.1) == {}
    assert play.due(DUE_AT) == {3: RENEW}
    assert play.session.is_urgent
    assert play.renewals.wake_at(NOW + LOCK_S - 0.5) == NOW + LOCK_S
    play.respond(DUE_AT + 1)
    renew_at = DUE_AT + 1 + LOCK_S * RENEW_AFTER
    assert play.renewals.wake_at(renew_at - 0.5) == pytest.approx(renew_at)


def test_the_clock_is_checked_again_within_a_second_while_work_is_in_progress() -> None:
    """A timer for the end of the lock stops while the machine is suspended; the lock does not."""
    play = Play()
    assert play.renewals.wake_at(NOW) == math.inf
    play.begin(3)
    assert play.renewals.wake_at(NOW) == NOW + CHECKED_EVERY_S


def test_renewals_that_are_due_soon_are_sent_with_those_due_now() -> None:
    play = Play()
    later = play.held.deliver(P0, [20], play.session, NOW + LOCK_S + 1)
    much_later = play.held.deliver(P0, [21], play.session, NOW + LOCK_S + 5)
    play.begin(3)
    for offset, delivery in ((20, later), (21, much_later)):
        play.renewals.begin(P0, offset, delivery, lambda: None, NOW)
    assert play.due(DUE_AT) == {3: RENEW, 20: RENEW}


def test_work_that_begins_late_renews_immediately() -> None:
    play = Play()
    play.begin(3)
    assert play.due(NOW + 9) == {3: RENEW}


def test_an_expired_lock_is_not_renewed_and_is_reported_immediately() -> None:
    play = Play()
    job = play.begin(3)
    assert play.renewals.end(job, ACCEPT, NOW) is True
    assert play.due(NOW + 9) == {3: ACCEPT}
    assert play.session.is_urgent
    assert play.renewals.wake_at(NOW) == math.inf


def test_the_end_takes_the_place_of_a_renewal_that_is_due() -> None:
    play = Play()
    job = play.begin(3)
    play.due(DUE_AT)
    play.renewals.end(job, RELEASE, NOW)
    assert play.session.due == {P0: {3: RELEASE}}


def test_acknowledgements_of_the_work_are_kept() -> None:
    play = Play()
    job = play.begin(3)
    play.held.acknowledge(P0, 3, job.hold, AcknowledgeType.REJECT)
    assert play.due(NOW + 9) == {3: AcknowledgeType.REJECT}
    assert play.renewals.end(job, ACCEPT, NOW) is True
    assert play.session.due == {P0: {3: AcknowledgeType.REJECT}}
    assert play.session.is_urgent


def test_a_lock_that_is_lost_is_reported_once_and_not_renewed() -> None:
    play = Play()
    job = play.begin(3)
    play.due(DUE_AT)
    play.respond(DUE_AT, ErrorCode.INVALID_RECORD_STATE)
    assert play.lost == [3]
    assert play.due(NOW + 20) == {}
    assert play.renewals.end(job, ACCEPT, NOW) is False
    assert play.session.due.get(P0, {}) == {}
    with pytest.raises(LockLostError):
        play.begin(3)


def test_work_that_begins_after_its_lock_has_ended_is_refused() -> None:
    play = Play()
    with pytest.raises(LockLostError, match="has ended"):
        play.begin(3, NOW + LOCK_S)
    assert play.held.count == 9


def test_a_record_is_worked_on_once() -> None:
    play = Play()
    play.begin(3)
    with pytest.raises(ValueError, match="already being processed"):
        play.begin(3)


def test_no_renewal_is_sent_again_to_a_broker_without_them() -> None:
    play = Play()
    play.begin(3)
    play.due(DUE_AT)
    play.held.refuse_renewals(play.session)
    play.renewals.on_response(play.session)
    assert (play.due(NOW + 9), play.renewals.wake_at(NOW + 9), play.lost) == ({}, NOW + LOCK_S, [])
    play.due(NOW + LOCK_S)
    assert play.lost == [3], "and is held until its lock ends"


def test_a_fetch_waits_no_longer_than_renewals_allow() -> None:
    play = Play()
    assert play.renewals.fetch_wait_s(play.session, 0.5, NOW) == 0.5
    assert play.renewals.fetch_wait_s(play.session, 60.0, NOW) == LOCK_S * FETCH_WAIT
    play.begin(3)
    assert play.renewals.fetch_wait_s(play.session, 60.0, DUE_AT - 0.25) == pytest.approx(0.25)
    assert play.renewals.fetch_wait_s(play.session, 60.0, DUE_AT + 1) == 0.0
    nothing = ShareRenewals(ShareHolds(lambda _: None))
    assert nothing.fetch_wait_s(play.session, 60.0, NOW) == 60.0


def test_work_learns_that_its_lock_has_ended_while_the_process_was_stopped() -> None:
    """Issue 25.21: brokers confirm a renewal below the start offset, so that no response says it."""
    play = Play()
    job = play.begin(3)
    assert play.due(NOW + LOCK_S) == {}, "a renewal would be confirmed, whoever has accepted the record"
    assert play.lost == [3]
    assert isinstance(job.hold.lost, LockLostError)
    assert play.renewals.end(job, ACCEPT, NOW + LOCK_S) is False
    assert play.renewals.wake_at(NOW + LOCK_S) == math.inf


def test_work_that_ends_right_after_a_standstill_gets_the_end_of_its_lock() -> None:
    play = Play()
    job = play.begin(3)
    assert play.renewals.end(job, ACCEPT, NOW + LOCK_S) is False
    assert isinstance(job.hold.lost, LockLostError)
    assert play.session.due == {}


def test_a_renewal_that_was_due_when_the_process_was_stopped_is_not_sent() -> None:
    play = Play()
    play.begin(3)
    assert play.due(DUE_AT) == {3: RENEW}
    assert play.due(NOW + LOCK_S) == {}
    assert play.lost == [3]
    assert play.session.due == {}


def test_a_renewal_that_is_confirmed_after_the_lock_has_ended_renews_nothing() -> None:
    """The broker may have received it when another member had accepted the record."""
    play = Play()
    play.begin(3)
    play.due(DUE_AT)
    play.held.take_due(play.session, DUE_AT)
    play.held.on_response(play.session, P0, ErrorCode.NONE, DUE_AT, NOW + LOCK_S)
    assert play.lost == [3]
    (result,) = play.results
    assert (result.types, type(result.error)) == ({3: RENEW}, LockLostError)


def test_late_acknowledgements_of_the_work_are_judged_by_the_broker() -> None:
    play = Play()
    job = play.begin(3)
    play.held.acknowledge(P0, 3, job.hold, ACCEPT)
    assert play.due(NOW + LOCK_S) == {3: ACCEPT}
    assert play.lost == []
    assert play.renewals.end(job, ACCEPT, NOW + LOCK_S) is True


def test_a_renewed_record_whose_lock_has_ended_is_not_returned_again() -> None:
    play = Play()
    hold = play.held.find(P0, 3, play.delivery)
    play.held.acknowledge(P0, 3, hold, RENEW, renewed="record")
    play.respond(DUE_AT)
    assert play.held.returnable(DUE_AT + LOCK_S) == []
    assert isinstance(hold.lost, LockLostError)
