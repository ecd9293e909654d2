"""Each rule for rates: a client that violates it, and one that keeps within it."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.judge.rules_of_rates import RETRIES_MAX, RULES, WRONG_NODE_MAX
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.judged import (
    JudgedClient,
    Steps,
    batch,
    found_after,
    produce,
    produced,
    share_heartbeat,
    share_heartbeat_response,
)

FIND = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
METADATA = messages.MetadataRequest(topics=[])
HEARTBEAT = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def fail(client: JudgedClient, times: int, pause_s: float, code: int = ErrorCode.REQUEST_TIMED_OUT) -> None:
    for _ in range(times):
        client.send(produce(batch()), produced(code), version=9)
        client.at += pause_s


def metadata(client: JudgedClient, times: int, pause_s: float) -> None:
    for _ in range(times):
        client.send(METADATA)
        client.at += pause_s


def throttled(client: JudgedClient, pause_s: float) -> None:
    client.send(METADATA, messages.MetadataResponse(throttle_time_ms=500))
    client.at += pause_s
    client.send(METADATA)


def wrong_coordinator(client: JudgedClient, times: int, looks_up: bool) -> None:
    for _ in range(times):
        client.send(HEARTBEAT, messages.HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR))
        if looks_up:
            client.send(FIND, connection=2)
        client.at += 1


def wrong_leader(client: JudgedClient, times: int, looks_up: bool) -> None:
    for _ in range(times):
        client.send(produce(batch()), produced(ErrorCode.NOT_LEADER_OR_FOLLOWER), version=9)
        if looks_up:
            client.send(METADATA, connection=2)
        client.at += 1


def heartbeats(client: JudgedClient, times: int, pause_s: float) -> None:
    client.send(share_heartbeat(0, ["t"]), share_heartbeat_response(1))
    for _ in range(times):
        client.at += pause_s
        client.send(share_heartbeat(1), share_heartbeat_response(1))
    client.send(share_heartbeat(-1), share_heartbeat_response(-1))


CASES: dict[str, tuple[Steps, Steps]] = {
    "retry-loop": (lambda client: fail(client, RETRIES_MAX + 2, 0), lambda client: fail(client, RETRIES_MAX + 2, 0.1)),
    "metadata-storm": (lambda client: metadata(client, 12, 0), lambda client: metadata(client, 12, 0.2)),
    "throttle-ignored": (lambda client: throttled(client, 0.1), lambda client: throttled(client, 0.5)),
    "coordinator-ignored": (
        lambda client: wrong_coordinator(client, WRONG_NODE_MAX + 1, looks_up=False),
        lambda client: wrong_coordinator(client, WRONG_NODE_MAX + 1, looks_up=True),
    ),
    "leader-ignored": (
        lambda client: wrong_leader(client, WRONG_NODE_MAX + 1, looks_up=False),
        lambda client: wrong_leader(client, WRONG_NODE_MAX + 1, looks_up=True),
    ),
    "heartbeat-interval-ignored": (
        lambda client: heartbeats(client, 8, 0.5),
        lambda client: heartbeats(client, 8, 5.0),
    ),
}
RULE_IDS = [rule.id for rule in RULES]


def test_a_request_that_was_sent_before_the_throttled_response_is_no_violation() -> None:
    def pipelined(client: JudgedClient) -> None:
        sent_at = client.at + 1
        client.at += 1
        client.send(METADATA, messages.MetadataResponse(throttle_time_ms=500))
        client.send(METADATA, received_at=sent_at)

    assert found_after(pipelined) == set()


@pytest.mark.parametrize("rule", RULE_IDS)
def test_a_violation_is_found(rule: str) -> None:
    assert found_after(CASES[rule][0]) == {rule}


@pytest.mark.parametrize("rule", RULE_IDS)
def test_a_correct_client_has_no_finding(rule: str) -> None:
    assert found_after(CASES[rule][1]) == set()


def test_equal_requests_that_succeed_are_no_retry_loop() -> None:
    assert found_after(lambda client: fail(client, RETRIES_MAX * 2, 0, ErrorCode.NONE)) == set()


def test_a_few_heartbeats_in_succession_are_no_finding() -> None:
    """KIP-848: a member sends one immediately when its subscription or its partitions change."""
    assert found_after(lambda client: heartbeats(client, 3, 0.1)) == set()
