"""Requests and outcomes of the state producer are plain values."""

from __future__ import annotations

from kafka_share_proxy.durable.producer_requests import Append, AppendInTransaction, Identify, Lost, Stored
from kafka_share_proxy.wire.errors import ErrorCode


def test_a_plain_and_a_transactional_append_are_different_requests() -> None:
    assert type(Append(b"x")) is not type(AppendInTransaction(b"x"))
    assert Append(b"x").batch == AppendInTransaction(b"x").batch == b"x"


def test_outcomes_name_their_request() -> None:
    assert Identify(-1, -1) == (-1, -1)
    assert Stored("token").token == "token"
    assert Lost(ErrorCode.PRODUCER_FENCED).code == ErrorCode.PRODUCER_FENCED
