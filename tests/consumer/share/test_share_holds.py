"""Held records of a member: permitted acknowledgements, sent ones, and their results."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.consumer.events import BrokerRefused, ConsumerError
from kafka_share_proxy.consumer.share import share_holds
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_holds import LockLostError, ShareHolds
from kafka_share_proxy.consumer.share.share_session import ShareSession
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

P0, P1 = TopicPartition("p", 0), TopicPartition("p", 1)
NOW = 1000.0
ACCEPT, RELEASE, REJECT, RENEW = (AcknowledgeType(n) for n in (1, 2, 3, 4))
LATE = ErrorCode.INVALID_RECORD_STATE


class Play:
    """Ten records of a partition, held for 30 s."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.held = ShareHolds(self.results.append)
        self.held.lock_s = 30.0
        self.session = ShareSession(1, epoch=1)
        self.delivery = self.held.deliver(P0, range(10), self.session, NOW + 30)

    def acknowledge(self, offset: int, kind: AcknowledgeType, **options: Any) -> bool:
        return self.held.acknowledge(P0, offset, self.held.find(P0, offset, self.delivery), kind, **options)

    def sent(self, now: float = NOW) -> dict[int, AcknowledgeType]:
        return self.held.take_due(self.session, now).get(P0, {})

    def respond(self, code: ErrorCode = ErrorCode.NONE, now: float = NOW) -> None:
        self.held.on_response(self.session, P0, code, now, now)

    @property
    def errors(self) -> list[ErrorCode | None]:
        return [None if result.error is None else getattr(result.error, "code", None) for result in self.results]


def test_a_later_acknowledgement_replaces_one_that_is_not_sent() -> None:
    """Item 86: accept, then release before the commit."""
    play = Play()
    play.acknowledge(3, ACCEPT)
    play.acknowledge(3, RELEASE)
    assert play.sent() == {3: RELEASE}
    with pytest.raises(ValueError, match="is not held"):
        play.acknowledge(3, ACCEPT)


def test_a_settled_record_is_no_longer_held() -> None:
    play = Play()
    play.acknowledge(0, ACCEPT)
    play.sent()
    play.respond()
    assert play.held.count == 9
    assert [(result.types, result.error) for result in play.results] == [({0: ACCEPT}, None)]
    assert play.results[0].said == play.results[0].types, "the earlier name"
    with pytest.raises(ValueError, match="is not held"):
        play.held.find(P0, 0, play.delivery)
    with pytest.raises(ValueError, match="is not held"):
        play.held.find(P1, 0, play.delivery)


def test_a_renewed_record_stays_held_and_is_returned_once_more() -> None:
    play = Play()
    play.acknowledge(4, RENEW, renewed="record")
    play.sent()
    assert not play.held.has_returnable
    play.respond(now=NOW + 20)
    assert play.held.count == 10
    assert play.held.find(P0, 4, play.delivery).lock_until == NOW + 50
    assert play.held.returnable(0.0) == ["record"]
    assert play.held.returnable(0.0) == []
    assert play.results[-1].renewals == 1


def test_a_renewed_record_that_is_settled_is_not_returned_again() -> None:
    play = Play()
    play.acknowledge(4, RENEW, renewed="record")
    play.sent()
    play.acknowledge(4, ACCEPT)
    play.respond()
    assert not play.held.has_returnable
    assert play.sent() == {4: ACCEPT}


def test_a_lock_that_could_not_be_renewed_is_lost() -> None:
    play = Play()
    received: list[int] = []
    play.held.find(P0, 4, play.delivery).on_lost = lambda: received.append(4)
    play.acknowledge(4, RENEW)
    play.sent()
    play.respond(LATE)
    assert (received, play.held.count, play.errors) == ([4], 9, [LATE])
    assert isinstance(play.held.find(P0, 4, play.delivery).lost, LockLostError)
    assert play.acknowledge(4, ACCEPT) is False
    assert isinstance(play.results[-1].error, LockLostError)
    with pytest.raises(ValueError, match="is not held"):
        play.acknowledge(4, ACCEPT)


def test_an_acknowledgement_after_the_end_of_its_lock_has_its_own_request() -> None:
    play = Play()
    play.held.deliver(P0, [50], play.session, NOW - 1)
    play.held.acknowledge(P0, 50, play.held.find(P0, 50, 2), ACCEPT)
    play.acknowledge(1, ACCEPT)
    play.held.settle(play.session, P0, [20], AcknowledgeType.GAP)
    assert play.sent() == {1: ACCEPT, 20: AcknowledgeType.GAP}
    play.respond()
    assert play.sent() == {50: ACCEPT}
    play.respond(LATE)
    assert play.errors == [None, LATE]
    assert all(20 not in result.types for result in play.results)


def test_acknowledgements_that_the_broker_could_not_store_are_sent_again_while_the_lock_lasts() -> None:
    play = Play()
    play.acknowledge(1, ACCEPT)
    play.sent()
    play.respond(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert play.session.is_urgent
    assert play.sent() == {1: ACCEPT}
    assert play.results == []
    play.respond(ErrorCode.COORDINATOR_NOT_AVAILABLE, NOW + 31)
    assert play.errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert play.held.count == 9


def test_unsent_acknowledgements_are_due_again_unless_newer_ones_replace_them() -> None:
    play = Play()
    play.acknowledge(1, RENEW)
    play.acknowledge(2, ACCEPT)
    play.sent()
    play.acknowledge(1, REJECT)
    play.held.requeue(play.session)
    assert play.sent() == {1: REJECT, 2: ACCEPT}


def test_renewals_are_refused_where_the_broker_has_none_and_the_record_stays() -> None:
    """R003-6: UNSUPPORTED_VERSION by the callback, and the rest is sent."""
    play = Play()
    play.acknowledge(1, RENEW)
    play.acknowledge(2, ACCEPT)
    play.held.refuse_renewals(play.session)
    assert play.sent() == {2: ACCEPT}
    assert play.acknowledge(3, RENEW) is True
    assert play.errors == [ErrorCode.UNSUPPORTED_VERSION] * 2
    assert play.held.count == 10


def test_a_session_that_ends_takes_all_locks_with_it() -> None:
    play = Play()
    received: list[int] = []
    play.held.find(P0, 5, play.delivery).on_lost = lambda: received.append(5)
    play.acknowledge(0, ACCEPT)
    play.sent()
    play.acknowledge(1, ACCEPT)
    play.acknowledge(2, RENEW)
    play.held.lose(play.session, ConsumerError("the connection ended"))
    assert play.held.count == 0
    assert received == [5]
    assert [dict(result.types) for result in play.results] == [{0: ACCEPT}, {1: ACCEPT, 2: RENEW}]
    assert all("connection ended" in str(result.error) for result in play.results)
    assert play.acknowledge(7, ACCEPT) is False


def test_a_partition_that_moves_takes_its_own_locks_only() -> None:
    play = Play()
    other = play.held.deliver(P1, [3], play.session, NOW + 30)
    play.held.lose(play.session, BrokerRefused("ShareFetch", 6), P0)
    assert play.held.count == 1
    assert play.held.find(P1, 3, other).lost is None


def test_a_record_that_is_delivered_again_belongs_to_the_new_delivery() -> None:
    play = Play()
    play.acknowledge(3, ACCEPT)
    play.held.lose_reacquired(P0, 3, 4)
    assert play.sent() == {}
    again = play.held.deliver(P0, [3, 4], play.session, NOW + 60)
    assert play.held.count == 10
    assert play.acknowledge(3, ACCEPT) is False
    assert play.held.find(P0, 3, again).lost is None
    assert len(play.results) == 2


def test_the_holder_of_a_redelivered_record_is_notified() -> None:
    play = Play()
    received: list[int] = []
    play.held.find(P0, 5, play.delivery).on_lost = lambda: received.append(5)
    play.held.deliver(P0, [5], play.session, NOW + 60)
    assert (received, play.held.count) == ([5], 10)


def test_a_wide_range_that_is_taken_away_costs_what_is_held() -> None:
    play = Play()
    play.held.lose_reacquired(P0, 0, 1 << 60)
    assert play.held.count == 0


def test_lost_holds_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_holds, "LOST_MAX", 4)
    play = Play()
    play.held.lose(play.session, ConsumerError("gone"))
    with pytest.raises(ValueError, match="is not held"):
        play.held.find(P0, 0, play.delivery)
    assert play.held.find(P0, 9, play.delivery).lost is not None
    assert play.held.count == 0


def test_everything_that_was_delivered_is_accepted_but_what_is_settled() -> None:
    play = Play()
    play.acknowledge(0, REJECT)
    play.sent()
    play.held.accept_all()
    assert play.sent() == dict.fromkeys(range(1, 10), ACCEPT)


def test_a_named_delay_belongs_to_a_release_until_another_acknowledgement_replaces_it() -> None:
    play = Play()
    for offset in (1, 2, 3):
        play.acknowledge(offset, RELEASE, delay_ms=5000)
    play.acknowledge(2, ACCEPT)
    play.acknowledge(3, RELEASE)
    play.acknowledge(4, RELEASE, delay_ms=0)
    assert play.held.delays_of({P0: play.sent()}) == {P0: {1: 5000, 4: 0}}


def test_a_named_delay_is_sent_again_with_its_release() -> None:
    play = Play()
    play.acknowledge(1, RELEASE, delay_ms=5000)
    play.sent()
    play.respond(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert play.held.delays_of({P0: play.sent()}) == {P0: {1: 5000}}


@pytest.mark.parametrize(
    ("delay_ms", "code", "is_delayed", "ignored"),
    [
        (5000, ErrorCode.NONE, False, True),
        (5000, ErrorCode.NONE, True, False),
        (5000, LATE, False, False),
        (None, ErrorCode.NONE, False, False),
    ],
)
def test_a_delay_that_the_broker_does_not_confirm_is_reported(
    delay_ms: int | None, code: ErrorCode, is_delayed: bool, ignored: bool
) -> None:
    play = Play()
    play.acknowledge(1, RELEASE, delay_ms=delay_ms)
    play.sent()
    play.held.on_response(play.session, P0, code, NOW, NOW, is_delayed=is_delayed)
    assert [result.is_delay_ignored for result in play.results] == [ignored]
