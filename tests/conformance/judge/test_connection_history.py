"""What is remembered of a connection."""

from __future__ import annotations

from kafka_share_proxy.conformance.judge.connection_history import METADATA_KEPT, body_of
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.judged import JudgedClient, batch, produce, produced


def test_requests_that_differ_in_the_correlation_id_only_have_the_same_body() -> None:
    client = JudgedClient()
    first, second = (client.send(messages.MetadataRequest(topics=[])) for _ in range(2))
    other = client.send(messages.MetadataRequest(topics=None))
    assert body_of(first) == body_of(second) != body_of(other)


def test_a_streak_counts_equal_requests_that_fail() -> None:
    client = JudgedClient()
    for _ in range(3):
        client.send(produce(batch()), produced(ErrorCode.REQUEST_TIMED_OUT), version=9)
    streak = client.judge.history.connections[1].streak
    assert (streak.count, streak.failed) == (3, True)
    client.send(produce(batch()), produced(), version=9)
    client.send(produce(batch()), produced(), version=9)
    assert client.judge.history.connections[1].streak.count == 1


def test_the_times_of_metadata_requests_are_bounded() -> None:
    client = JudgedClient()
    for _ in range(METADATA_KEPT + 5):
        client.send(messages.MetadataRequest(topics=[]))
    assert len(client.judge.history.connections[1].metadata) == METADATA_KEPT


def test_a_request_without_response_is_pending() -> None:
    client = JudgedClient()
    sent = client.send(messages.MetadataRequest(topics=[]), responds=False)
    assert client.judge.history.connections[1].pending is sent
    client.send(messages.MetadataRequest(topics=[]))
    assert client.judge.history.connections[1].pending is None
