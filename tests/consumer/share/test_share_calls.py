"""Calls that wait for the results of acknowledgements."""

from __future__ import annotations

from kafka_share_proxy.consumer.events import CallDone, ConsumerError
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_calls import ShareCalls
from kafka_share_proxy.consumer.share.share_holds import AcknowledgementResult
from kafka_share_proxy.consumer.share.share_session import ShareSession
from kafka_share_proxy.wire.values import TopicPartition

P0, P1 = TopicPartition("p", 0), TopicPartition("p", 1)
ACCEPT, GAP = AcknowledgeType.ACCEPT, AcknowledgeType.GAP
REFUSED = ConsumerError("too late")


def done(calls: ShareCalls) -> list[tuple[int, object]]:
    events = calls.finished()
    assert all(isinstance(each, CallDone) for each in events)
    return [(each.call_id, each.value) for each in events]


def test_a_call_ends_when_all_due_requests_have_a_response() -> None:
    calls = ShareCalls()
    one = ShareSession(1, due={P0: {1: ACCEPT, 2: ACCEPT}})
    two = ShareSession(2, in_flight={P1: {5: ACCEPT}})
    calls.add(7, [one, two])
    assert (one.is_urgent, two.is_urgent) == (True, False)
    calls.on_result(AcknowledgementResult(P0, {1: ACCEPT}, None))
    calls.on_result(AcknowledgementResult(P1, {5: ACCEPT}, None))
    assert done(calls) == []
    calls.on_result(AcknowledgementResult(P0, {2: ACCEPT}, REFUSED))
    assert done(calls) == [(7, {P0: REFUSED, P1: None})]
    assert done(calls) == []


def test_a_call_without_anything_to_wait_for_ends_immediately() -> None:
    calls = ShareCalls()
    calls.add(1, [ShareSession(1, due={P0: {3: GAP}})])
    assert done(calls) == [(1, {})]


def test_a_call_may_wait_for_some_offsets_only() -> None:
    calls = ShareCalls()
    calls.add(1, [ShareSession(1, due={P0: {1: ACCEPT, 2: ACCEPT}})], {P0: {2}})
    calls.on_result(AcknowledgementResult(P0, {1: ACCEPT}, REFUSED))
    assert done(calls) == []
    calls.on_result(AcknowledgementResult(P0, {2: ACCEPT}, None))
    assert done(calls) == [(1, {P0: None})]


def test_an_urgent_session_stays_so() -> None:
    session = ShareSession(1, is_urgent=True, due={P0: {1: ACCEPT}})
    calls = ShareCalls()
    calls.add(1, [session])
    assert session.is_urgent
    assert done(calls) == []
