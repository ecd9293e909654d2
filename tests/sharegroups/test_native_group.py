"""Requests about groups of the brokers. Real brokers are in test_hand_over.py and test_take_back.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka_share_proxy.brokers.queries import about_topics
from kafka_share_proxy.loop.promise import Promise, Task
from kafka_share_proxy.sharegroups.native_group import BROKERS_WAIT_S, MoveRefused, NativeGroup, NativePartition
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.topic_ids import topic_id_text
from kafka_share_proxy.wire.values import TopicIdPartition

from tests.support.ports import World


class Brokers:
    """ClusterQueries with a response for each message class; a list has those of repeated requests."""

    def __init__(self, **responses: Any) -> None:
        self.responses, self.requests = responses, list[Any]()

    def send_request(self, node_id: int, key: int, request: Any) -> Promise[Any]:
        self.requests.append(request)
        response = self.responses[type(request).__name__.removesuffix("Request")]
        promise: Promise[Any] = Promise()
        promise.set(response.pop(0) if isinstance(response, list) else response)
        return promise


def coordinator(code: int = 0, key: str = "") -> Any:
    entry = messages.FindCoordinatorResponse.Coordinator(key=key, node_id=1, error_code=code, host="h", port=1)
    return messages.FindCoordinatorResponse(coordinators=[entry])


def metadata(world: World) -> Any:
    return world.cluster._metadata(world.connect(), about_topics(["u"]))


def described(code: int = 0) -> Any:
    group = messages.ShareGroupDescribeResponse.DescribedGroup
    member = messages.ShareGroupDescribeResponse.Member(member_id="m")
    return messages.ShareGroupDescribeResponse(groups=[group(error_code=code, group_epoch=7, members=[member])])


def ended(world: World, brokers: Brokers, request: Callable[[NativeGroup], Any], advance_s: float = 0.0) -> Any:
    """Return the result of a request, or the text of its refusal."""
    world.services.own = brokers
    task: Task[Any] = Task(request(NativeGroup(world.services, "g")), lambda _: None)
    task.start()
    world.timers.advance(advance_s)
    assert task.finished
    if task.error is None:
        return task.value
    assert isinstance(task.error, MoveRefused), task.error
    return str(task.error)


@pytest.fixture
def world() -> World:
    share_world = World()
    share_world.services.topology.fold(metadata(share_world), share_world.timers.now())
    return share_world


def test_coordinator_that_is_loading_is_queried_again(world: World) -> None:
    loading = [coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE), coordinator(), coordinator()]
    brokers = Brokers(FindCoordinator=loading, ShareGroupDescribe=[described(14), described()])
    description = ended(world, brokers, lambda native: native.described(), 5)
    assert (description.epoch, description.members) == (7, {"m"})


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (ErrorCode.GROUP_ID_NOT_FOUND, "the brokers hold no share group g"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "the brokers refuse to describe the group: no reason (30)"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "the brokers refuse to describe the group: no reason (15)"),
    ],
)
def test_refusals_of_the_brokers_name_what_was_refused(world: World, code: ErrorCode, reason: str) -> None:
    brokers = Brokers(FindCoordinator=coordinator(), ShareGroupDescribe=described(code))
    assert ended(world, brokers, lambda native: native.described(), BROKERS_WAIT_S + 1) == reason


def test_stored_state_is_read_at_the_leader_epoch_and_cut_to_its_start(world: World) -> None:
    topic = world.cluster.create("u", [1, 1])
    places = [NativePartition("u", TopicIdPartition(topic.topic_id, index)) for index in (0, 1)]
    keys = [f"g:{topic_id_text(topic.topic_id)}:{index}" for index in (0, 1)]
    finding = coordinator(key=keys[0])
    finding.coordinators += coordinator(key=keys[1]).coordinators
    response = messages.ReadShareGroupStateResponse
    batches = [
        response.StateBatch(first_offset=3, last_offset=6, delivery_state=2, delivery_count=1),
        response.StateBatch(first_offset=7, last_offset=9, delivery_state=0, delivery_count=2),
    ]
    read = response.PartitionResult(partition=0, start_offset=5, state_epoch=3, state_batches=batches)
    unread = response.PartitionResult(partition=1, start_offset=-1)
    state = response(results=[response.ReadStateResult(topic_id=topic.topic_id, partitions=[read, unread])])
    brokers = Brokers(FindCoordinator=finding, ReadShareGroupState=state, Metadata=metadata(world))
    snapshots = ended(world, brokers, lambda native: native.snapshots(places))
    (snapshot,) = snapshots.values()
    assert (snapshot.start_offset, snapshot.state_epoch, snapshot.delivery_complete_count) == (5, 3, 2)
    assert snapshot.batches == ((5, 6, 2, 1), (7, 9, 0, 2))
    (entry,) = brokers.requests[-1].topics
    epochs = [leader.epoch for leader in world.services.topology.topic("u").leaders]  # type: ignore[union-attr]
    assert [each.leader_epoch for each in entry.partitions] == epochs


def test_missing_right_to_read_state_is_named(world: World) -> None:
    topic = world.cluster.create("u")
    places = [NativePartition("u", TopicIdPartition(topic.topic_id, 0))]
    finding = coordinator(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    brokers = Brokers(FindCoordinator=finding, Metadata=metadata(world))
    reason = ended(world, brokers, lambda native: native.snapshots(places))
    assert reason == "the proxy's own identity needs CLUSTER_ACTION on the cluster"
