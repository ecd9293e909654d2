"""Locks of what is worked on are renewed in time, together, and no longer than that."""

from __future__ import annotations

import math

import pytest

from proxy.consumer.share_acknowledgements import AcknowledgeType
from proxy.consumer.share_holds import LockLostError, ShareHolds
from proxy.consumer.share_renewals import FETCH_WAIT, RENEW_AFTER, ShareJob, ShareRenewals
from proxy.consumer.share_session import ShareSession
from proxy.wire.errors import ErrorCode
from proxy.wire.values import TopicPartition

P0 = TopicPartition("p", 0)
NOW, LOCK_S = 1000.0, 10.0
ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW
DUE_AT = NOW + LOCK_S * RENEW_AFTER


class Play:
    """Records 0 to 9 of a partition, delivered now."""

    def __init__(self) -> None:
        self.held = ShareHolds(lambda _: None)
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

    def answer(self, now: float, code: ErrorCode = ErrorCode.NONE) -> None:
        self.held.take_due(self.session, now)
        self.held.answered(self.session, P0, code, now, now)
        self.renewals.answered(self.session)


def test_what_is_worked_on_is_renewed_well_before_its_lock_ends() -> None:
    play = Play()
    play.begin(3)
    assert play.renewals.wake_at() == pytest.approx(DUE_AT)
    assert play.due(DUE_AT - 0.1) == {}
    assert play.due(DUE_AT) == {3: RENEW}
    assert play.session.is_urgent
    assert play.renewals.wake_at() == math.inf
    play.answer(DUE_AT + 1)
    assert play.renewals.wake_at() == pytest.approx(DUE_AT + 1 + LOCK_S * RENEW_AFTER)


def test_what_is_due_soon_is_renewed_with_what_is_due_now() -> None:
    play = Play()
    later = play.held.deliver(P0, [20], play.session, NOW + LOCK_S + 1)
    much_later = play.held.deliver(P0, [21], play.session, NOW + LOCK_S + 5)
    play.begin(3)
    for offset, delivery in ((20, later), (21, much_later)):
        play.renewals.begin(P0, offset, delivery, lambda: None, NOW)
    assert play.due(DUE_AT) == {3: RENEW, 20: RENEW}


def test_who_begins_late_renews_at_once() -> None:
    play = Play()
    play.begin(3)
    assert play.due(NOW + 9) == {3: RENEW}


def test_what_has_ended_is_not_renewed_and_is_said_at_once() -> None:
    play = Play()
    job = play.begin(3)
    assert play.renewals.end(job, ACCEPT) is True
    assert play.due(NOW + 9) == {3: ACCEPT}
    assert play.session.is_urgent
    assert play.renewals.wake_at() == math.inf


def test_the_end_takes_the_place_of_a_renewal_that_is_due() -> None:
    play = Play()
    job = play.begin(3)
    play.due(DUE_AT)
    play.renewals.end(job, RELEASE)
    assert play.session.due == {P0: {3: RELEASE}}


def test_what_the_work_said_itself_stands() -> None:
    play = Play()
    job = play.begin(3)
    play.held.say(P0, 3, job.hold, AcknowledgeType.REJECT)
    assert play.due(NOW + 9) == {3: AcknowledgeType.REJECT}
    assert play.renewals.end(job, ACCEPT) is True
    assert play.session.due == {P0: {3: AcknowledgeType.REJECT}}
    assert play.session.is_urgent


def test_a_lock_that_is_lost_is_told_once_and_not_renewed() -> None:
    play = Play()
    job = play.begin(3)
    play.due(DUE_AT)
    play.answer(DUE_AT, ErrorCode.INVALID_RECORD_STATE)
    assert play.lost == [3]
    assert play.due(NOW + 20) == {}
    assert play.renewals.end(job, ACCEPT) is False
    assert play.session.due.get(P0, {}) == {}
    with pytest.raises(LockLostError):
        play.begin(3)


def test_who_begins_when_the_lock_has_ended_is_too_late() -> None:
    play = Play()
    with pytest.raises(LockLostError, match="has ended"):
        play.begin(3, NOW + LOCK_S)
    assert play.held.count == 9


def test_a_record_is_worked_on_once() -> None:
    play = Play()
    play.begin(3)
    with pytest.raises(ValueError, match="worked on already"):
        play.begin(3)


def test_a_broker_that_cannot_renew_is_not_asked_again() -> None:
    play = Play()
    play.begin(3)
    play.due(DUE_AT)
    play.held.refuse_renewals(play.session)
    play.renewals.answered(play.session)
    assert (play.due(NOW + 9), play.renewals.wake_at(), play.lost) == ({}, math.inf, [])


def test_a_fetch_waits_no_longer_than_renewals_allow() -> None:
    play = Play()
    assert play.renewals.fetch_wait_s(play.session, 0.5, NOW) == 0.5
    assert play.renewals.fetch_wait_s(play.session, 60.0, NOW) == LOCK_S * FETCH_WAIT
    play.begin(3)
    assert play.renewals.fetch_wait_s(play.session, 60.0, DUE_AT - 0.25) == pytest.approx(0.25)
    assert play.renewals.fetch_wait_s(play.session, 60.0, DUE_AT + 1) == 0.0
    nothing = ShareRenewals(ShareHolds(lambda _: None))
    assert nothing.fetch_wait_s(play.session, 60.0, NOW) == 60.0
