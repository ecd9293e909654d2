"""Each rule for producers and fetch sessions: a client that violates it, and one that does not."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.conformance.judge.rules_of_producers import RULES
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.judged import TOPIC_ID, JudgedClient, Steps, batch, found_after, produce, produced

INIT = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)


def init(client: JudgedClient, epoch: int = 0) -> None:
    client.send(INIT, messages.InitProducerIdResponse(producer_id=7, producer_epoch=epoch), version=4)


def idempotent(client: JudgedClient, *sequences: int, error: int = 0, delivered: bool = True) -> None:
    """Send a batch of two records for each; the first one may fail."""
    init(client)
    for index, sequence in enumerate(sequences):
        response = produced(error if index == 0 else 0)
        is_read = delivered or index > 0
        client.send(produce(batch(2, producer=(7, 0, sequence))), response, version=9, delivered=is_read)


def fenced(client: JudgedClient, *epochs: int) -> None:
    init(client)
    for epoch in epochs:
        client.send(produce(batch(producer=(7, epoch, 0))), produced(ErrorCode.INVALID_PRODUCER_EPOCH), version=9)


def transactional(client: JudgedClient, *, adds: bool, version: int = 9, name: str | None = "tx") -> None:
    init(client)
    if adds:
        kinds = messages.AddPartitionsToTxnRequest
        topic = kinds.AddPartitionsToTxnTopic(name="t", partitions=[0])
        request = kinds(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=7,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[topic],
        )
        client.send(request, version=3)
    client.send(produce(batch(producer=(7, 0, 0), transactional=True), transaction=name), produced(), version=version)


def fetch(session: int, epoch: int, *, forgets: bool = False) -> Any:
    kinds = messages.FetchRequest
    forgotten = [kinds.ForgottenTopic(topic_id=TOPIC_ID, partitions=[0])] if forgets else []
    return kinds(max_wait_ms=500, min_bytes=1, session_id=session, session_epoch=epoch, forgotten_topics_data=forgotten)


def fetches(client: JudgedClient, *epochs: int, lost: bool = False) -> None:
    client.send(fetch(0, 0), messages.FetchResponse(session_id=5), version=13)
    for epoch in epochs:
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND if lost else ErrorCode.NONE
        client.send(fetch(5, epoch), messages.FetchResponse(session_id=5, error_code=code), version=13)


def broken(**changes: int) -> bytes:
    """Return a batch with one byte changed, by position."""
    data = bytearray(batch(2))
    for position, value in changes.items():
        data[int(position[1:])] = value
    return bytes(data)


CASES: dict[str, tuple[list[Steps], list[Steps]]] = {
    "produce-batch-invalid": (
        [
            lambda client: client.send(produce(broken(p60=9)), version=9),
            lambda client: client.send(produce(broken(p7=1)), version=9),
            lambda client: client.send(produce(batch() + batch()), version=9),
            lambda client: client.send(produce(b"\0" * 80), version=9),
        ],
        [lambda client: client.send(produce(batch(2)), version=9)],
    ),
    "produce-sequence-gap": (
        [
            lambda client: idempotent(client, 0, 3),
            lambda client: idempotent(client, 0, 0),
            lambda client: idempotent(client, 1),
        ],
        [
            lambda client: idempotent(client, 0, 2, 4),
            lambda client: idempotent(client, 0, 0, 2, error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
            lambda client: idempotent(client, 0, 0, 2, delivered=False),
        ],
    ),
    "producer-epoch-lower": ([lambda client: fenced(client, 2, 1)], [lambda client: fenced(client, 0, 1, 2)]),
    "transaction-partition-missing": (
        [
            lambda client: transactional(client, adds=False),
            lambda client: transactional(client, adds=True, name=None),
        ],
        [
            lambda client: transactional(client, adds=True),
            lambda client: transactional(client, adds=False, version=12),
        ],
    ),
    "fetch-session-epoch": (
        [lambda client: fetches(client, 2), lambda client: fetches(client, 1, 1)],
        [lambda client: fetches(client, 1, 2, 3), lambda client: fetches(client, 1, 7, lost=True)],
    ),
    "fetch-forgets-nothing": (
        [lambda client: client.send(fetch(0, 0, forgets=True), version=13)],
        [lambda client: client.send(fetch(3, 4, forgets=True), version=13)],
    ),
}
RULE_IDS = [rule.id for rule in RULES]


@pytest.mark.parametrize("rule", RULE_IDS)
def test_a_violation_is_found(rule: str) -> None:
    for steps in CASES[rule][0]:
        assert found_after(steps) == {rule}


@pytest.mark.parametrize("rule", RULE_IDS)
def test_a_correct_client_has_no_finding(rule: str) -> None:
    for steps in CASES[rule][1]:
        assert found_after(steps) == set()


def test_a_request_without_response_may_be_repeated_on_the_next_connection() -> None:
    client = JudgedClient()
    init(client)
    client.send(produce(batch(2, producer=(7, 0, 0))), version=9, connection=2, responds=False)
    client.close(2)
    client.send(produce(batch(2, producer=(7, 0, 0))), produced(), version=9, connection=3)
    assert client.violated_rules == set()
