"""What is remembered of share sessions."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.judge import share_history
from kafka_share_proxy.conformance.judge.share_history import EPOCH_MAX, ShareSessionHistory
from kafka_share_proxy.wire.values import TopicIdPartition

from tests.support.judged import TOPIC_ID, JudgedClient, share_acknowledge, share_fetch, share_fetched

T0 = TopicIdPartition(TOPIC_ID, 0)


def session_of(client: JudgedClient) -> ShareSessionHistory:
    return client.judge.history.shares.sessions["g", "m", 1]


def test_acquired_offsets_are_held_until_they_are_acknowledged() -> None:
    client = JudgedClient()
    client.send(share_fetch(0), share_fetched(5, 9))
    assert session_of(client).held[T0] == {5, 6, 7, 8, 9}
    client.send(share_acknowledge(1, (5, 6, [1]), (8, 8, [2])))
    assert session_of(client).held[T0] == {7, 9}
    client.send(share_acknowledge(2, (7, 7, [4]), is_renew_ack=True))
    assert session_of(client).held[T0] == {7, 9}
    client.send(share_acknowledge(-1))
    assert session_of(client).closed
    assert session_of(client).held == {}


def test_the_epoch_wraps_to_one() -> None:
    client = JudgedClient()
    client.send(share_fetch(0))
    assert session_of(client).next_epoch == 1
    session_of(client).next_epoch = EPOCH_MAX
    client.send(share_fetch(EPOCH_MAX))
    assert session_of(client).next_epoch == 1


def test_the_number_of_held_offsets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_history, "HELD_MAX", 10)
    client = JudgedClient()
    client.send(share_fetch(0), share_fetched(0, 1 << 40))
    assert session_of(client).held[T0] == set(range(10))
    client.send(share_acknowledge(1, (0, 1 << 40, [1])))
    assert session_of(client).held[T0] == set()


def test_a_session_that_a_node_ended_is_forgotten() -> None:
    client = JudgedClient()
    client.send(share_fetch(0))
    client.close(by_client=False)
    assert client.judge.history.shares.sessions == {}
