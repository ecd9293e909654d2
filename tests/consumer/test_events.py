"""Texts of errors."""

from __future__ import annotations

from kafka_share_proxy.consumer.events import AwaitAcknowledgements, BrokerRefused
from kafka_share_proxy.wire.errors import ErrorCode


def test_a_refusal_names_the_request_what_it_was_about_and_the_reason() -> None:
    error = BrokerRefused("OffsetCommit", 29, "orders-3", "denied by policy")
    assert str(error) == "OffsetCommit of orders-3: TOPIC_AUTHORIZATION_FAILED (denied by policy)"
    assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert str(BrokerRefused("FindCoordinator", -1)) == "FindCoordinator: UNKNOWN_SERVER_ERROR"


def test_a_call_waits_for_everything_unless_it_names_offsets() -> None:
    assert AwaitAcknowledgements(1).only is None
