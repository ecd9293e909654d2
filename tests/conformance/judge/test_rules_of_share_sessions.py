"""Each rule for share sessions and acknowledgements: a client that violates it, and one that does not."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.conformance.judge.rules_of_share_sessions import RULES
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.judged import (
    TOPIC_ID,
    JudgedClient,
    Steps,
    found_after,
    share_acknowledge,
    share_fetch,
    share_fetched,
)

ACCEPT, RELEASE, RENEW = 1, 2, 4


def session(client: JudgedClient, *requests: Any, closes: bool = True, **options: Any) -> None:
    """Open a session in which offsets 0 to 9 are acquired, and send the requests."""
    client.send(share_fetch(0), share_fetched(0, 9))
    for request in requests:
        client.send(request, **options)
    if closes:
        client.send(share_acknowledge(-1))


def epochs(*numbers: int) -> Steps:
    return lambda client: session(client, *[share_fetch(number) for number in numbers])


def acknowledging(*batches: tuple[int, int, list[int]], **fields: Any) -> Steps:
    return lambda client: session(client, share_acknowledge(1, *batches, **fields))


def twice(first: list[int], second: list[int]) -> Steps:
    requests = share_acknowledge(1, (0, 4, first), is_renew_ack=RENEW in first), share_acknowledge(2, (4, 5, second))
    return lambda client: session(client, *requests)


def after_unknown_outcome(client: JudgedClient) -> None:
    client.send(share_fetch(0), share_fetched(0, 9))
    client.send(share_acknowledge(1, (0, 4, [ACCEPT])), delivered=False)
    client.send(share_acknowledge(1, (0, 4, [ACCEPT])))
    client.send(share_acknowledge(-1))


def reopened(client: JudgedClient) -> None:
    client.send(share_fetch(0), share_fetched(0, 9))
    lost = messages.ShareFetchResponse(error_code=ErrorCode.SHARE_SESSION_NOT_FOUND)
    client.send(share_fetch(1), lost)
    client.send(share_fetch(0), share_fetched(0, 9))
    client.send(share_fetch(1))
    client.send(share_acknowledge(-1))


def forgets(epoch: int) -> Steps:
    topic = messages.ShareFetchRequest.ForgottenTopic(topic_id=TOPIC_ID, partitions=[0])
    return lambda client: client.send(share_fetch(epoch, forgotten_topics_data=[topic]))


def disconnect(client: JudgedClient, *, closes: bool, by_client: bool = True) -> None:
    session(client, closes=closes)
    client.close(by_client=by_client)


def after_closing(client: JudgedClient) -> None:
    session(client)
    client.send(share_fetch(2))


NO_FETCH = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}

CASES: dict[str, tuple[list[Steps], list[Steps]]] = {
    "share-session-epoch": (
        [epochs(2), epochs(1, 1), lambda client: client.send(share_acknowledge(0)), after_closing],
        [epochs(1, 2, 3), reopened],
    ),
    "acknowledge-not-held": (
        [
            acknowledging((5, 10, [ACCEPT])),
            acknowledging((10, 10, [ACCEPT])),
            twice([ACCEPT], [ACCEPT]),
            twice([RELEASE], [ACCEPT]),
        ],
        [
            acknowledging((0, 9, [ACCEPT])),
            acknowledging((0, 2, [ACCEPT]), (5, 9, [RELEASE])),
            twice([RENEW], [ACCEPT]),
            after_unknown_outcome,
        ],
    ),
    "acknowledge-batches-invalid": (
        [
            acknowledging((3, 5, [ACCEPT]), (1, 2, [ACCEPT])),
            acknowledging((1, 5, [ACCEPT]), (5, 6, [ACCEPT])),
            acknowledging((5, 4, [ACCEPT])),
            acknowledging((1, 3, [ACCEPT, ACCEPT])),
            acknowledging((1, 1, [9])),
            acknowledging((1, 2, [])),
        ],
        [acknowledging((0, 3, [ACCEPT]), (4, 5, [ACCEPT, RELEASE]))],
    ),
    "acknowledge-in-first-fetch": (
        [lambda client: client.send(share_fetch(0, (0, 0, [ACCEPT])))],
        [lambda client: session(client, share_fetch(1, (0, 9, [ACCEPT])))],
    ),
    "renew-flag-wrong": (
        [
            acknowledging((0, 9, [RENEW])),
            lambda client: session(client, share_fetch(1, (0, 9, [RENEW]), is_renew_ack=True)),
        ],
        [
            acknowledging((0, 9, [RENEW]), is_renew_ack=True),
            lambda client: session(client, share_fetch(1, (0, 9, [RENEW]), is_renew_ack=True, **NO_FETCH)),
        ],
    ),
    "share-forgets-nothing": ([forgets(0), forgets(-1)], [forgets(3)]),
    "final-epoch-missing": (
        [lambda client: disconnect(client, closes=False)],
        [
            lambda client: disconnect(client, closes=True),
            lambda client: disconnect(client, closes=False, by_client=False),
        ],
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
