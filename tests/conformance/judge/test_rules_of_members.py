"""Each rule for members of groups: a client that violates it, and one that does not."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.conformance.judge.rules_of_members import GRACE_S, RULES
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.judged import (
    JudgedClient,
    Steps,
    found_after,
    share_fetch,
    share_heartbeat,
    share_heartbeat_response,
)


def join_request(member_id: str = "", instance: str | None = None) -> Any:
    kinds = messages.JoinGroupRequest
    protocol = kinds.JoinGroupRequestProtocol(name="range", metadata=b"")
    return kinds(
        group_id="g",
        session_timeout_ms=9000,
        rebalance_timeout_ms=9000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[protocol],
    )


def joined(generation: int, leader: str = "m", code: int = 0) -> Any:
    return messages.JoinGroupResponse(
        error_code=code, generation_id=generation, protocol_name="range", leader=leader, member_id="m"
    )


def join(client: JudgedClient, generation: int = 1, instance: str | None = None) -> None:
    client.send(join_request("m", instance), joined(generation))


def heartbeat(generation: int) -> Any:
    return messages.HeartbeatRequest(group_id="g", generation_id=generation, member_id="m")


def sync(*assigned: str) -> Any:
    kinds = messages.SyncGroupRequest
    assignments = [kinds.SyncGroupRequestAssignment(member_id=each, assignment=b"") for each in assigned]
    return kinds(group_id="g", generation_id=1, member_id="m", assignments=assignments)


def leave(client: JudgedClient) -> None:
    member = messages.LeaveGroupRequest.MemberIdentity(member_id="m")
    client.send(messages.LeaveGroupRequest(group_id="g", members=[member]))


def commit(epoch: int) -> Any:
    return messages.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id="m")


def consumer_heartbeat(epoch: int, **fields: Any) -> Any:
    whole = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": 1000, "topic_partitions": []}
    values = whole if epoch == 0 else {}
    return messages.ConsumerGroupHeartbeatRequest(
        **{"group_id": "g", "member_id": "m", "member_epoch": epoch, **values, **fields}
    )


def consumer_response(epoch: int) -> Any:
    return messages.ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=epoch, heartbeat_interval_ms=5000)


def consume(client: JudgedClient, *epochs: int) -> None:
    """Join, heartbeat with these epochs, and leave. The member's epoch is 2 from the second response on."""
    client.send(consumer_heartbeat(0), consumer_response(1))
    for epoch in epochs:
        client.at += 5
        client.send(consumer_heartbeat(epoch), consumer_response(2))
    client.send(consumer_heartbeat(-1), consumer_response(-1))


def share(client: JudgedClient, *epochs: int) -> None:
    client.send(share_heartbeat(0, ["t"]), share_heartbeat_response(1))
    for epoch in epochs:
        client.at += 5
        client.send(share_heartbeat(epoch), share_heartbeat_response(1))


def beats(client: JudgedClient, generation: int) -> None:
    join(client)
    join(client, 2)
    client.at += GRACE_S + 1
    client.send(heartbeat(generation))
    leave(client)


def commits(client: JudgedClient, epoch: int, after_leaving: bool = False) -> None:
    join(client)
    join(client, 2)
    client.at += GRACE_S + 1
    if not after_leaving:
        client.send(commit(epoch), version=9)
    leave(client)
    if after_leaving:
        client.send(commit(epoch), version=9)


def beat_after_leaving(client: JudgedClient) -> None:
    join(client)
    leave(client)
    client.send(heartbeat(1))


def share_and_leave(client: JudgedClient, *after: int) -> None:
    share(client, 1)
    client.send(share_heartbeat(-1), share_heartbeat_response(-1))
    for epoch in after:
        client.send(share_heartbeat(epoch, ["t"]), share_heartbeat_response(1))
        client.send(share_heartbeat(-1), share_heartbeat_response(-1))


def disconnect(client: JudgedClient, *, leaves: bool, instance: str | None = None, by_client: bool = True) -> None:
    join(client, instance=instance)
    if leaves:
        leave(client)
    client.close(by_client=by_client)


def require_id(client: JudgedClient, member_id: str) -> None:
    client.send(join_request(), joined(-1, code=ErrorCode.MEMBER_ID_REQUIRED))
    client.send(join_request(member_id), joined(1))
    leave(client)


def sync_as(client: JudgedClient, leader: str) -> None:
    client.send(join_request("m"), joined(1, leader))
    client.send(sync("m", "n"))
    leave(client)


def first(**fields: Any) -> Steps:
    def steps(client: JudgedClient) -> None:
        client.send(consumer_heartbeat(0, **fields), consumer_response(1))
        client.send(consumer_heartbeat(-1), consumer_response(-1))

    return steps


CASES: dict[str, tuple[list[Steps], list[Steps]]] = {
    "member-epoch-wrong": (
        [lambda client: consume(client, 1, 1), lambda client: consume(client, 7)],
        [lambda client: consume(client, 1, 2, 2), lambda client: share_and_leave(client)],
    ),
    "generation-wrong": ([lambda client: beats(client, 1)], [lambda client: beats(client, 2)]),
    "commit-of-stale-member": (
        [lambda client: commits(client, 1), lambda client: commits(client, 2, after_leaving=True)],
        [lambda client: commits(client, 2), lambda client: commits(client, -1, after_leaving=True)],
    ),
    "request-after-leaving": ([beat_after_leaving], [lambda client: share_and_leave(client, 0)]),
    "leave-missing": (
        [lambda client: disconnect(client, leaves=False)],
        [
            lambda client: disconnect(client, leaves=True),
            lambda client: disconnect(client, leaves=False, instance="static"),
        ],
    ),
    "member-id-ignored": ([lambda client: require_id(client, "")], [lambda client: require_id(client, "m")]),
    "assignments-of-follower": ([lambda client: sync_as(client, "n")], [lambda client: sync_as(client, "m")]),
    "first-heartbeat-incomplete": (
        [first(subscribed_topic_names=None), first(rebalance_timeout_ms=-1), first(topic_partitions=None)],
        [first(), first(subscribed_topic_names=None, subscribed_topic_regex="t.*")],
    ),
    "member-id-empty": (
        [lambda client: client.send(share_fetch(0, member_id=""))],
        [lambda client: client.send(share_fetch(0))],
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


def test_an_epoch_that_was_sent_before_the_new_one_arrived_is_no_finding() -> None:
    client = JudgedClient()
    join(client)
    join(client, 2)
    client.send(heartbeat(1))
    assert client.violated_rules == set()


def test_a_member_that_could_not_read_its_epoch_may_send_the_former_one() -> None:
    client = JudgedClient()
    client.send(consumer_heartbeat(0), consumer_response(1))
    client.send(consumer_heartbeat(1), consumer_response(2), delivered=False)
    client.at += 5
    client.send(consumer_heartbeat(1), consumer_response(2))
    assert client.violated_rules == set()


def test_a_member_that_the_cluster_removed_need_not_leave() -> None:
    client = JudgedClient()
    join(client)
    client.send(heartbeat(1), messages.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    client.close()
    client.inspect()
    assert client.violated_rules == set()
