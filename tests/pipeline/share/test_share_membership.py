"""Membership of a share group: heartbeats in a thread (pipeline/README.md rule 46)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka_share_proxy.pipeline.kafka.cluster import ReadRefused
from kafka_share_proxy.pipeline.share import share_membership as module
from kafka_share_proxy.pipeline.share.share_membership import BlockingShareMembership, NoShareGroups
from kafka_share_proxy.pipeline.share.share_options import read_share_options
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.support import blocking_server
from tests.support.blocking_server import BlockingServer
from tests.support.raw import until

ID, NEW_ID = bytes(range(16)), bytes(range(16, 32))
Beat = Callable[[Any], messages.ShareGroupHeartbeatResponse]


class Coordinator:
    """Coordinator with scripted heartbeat responses and one topic."""

    def __init__(self, beat: Beat) -> None:
        self.beat, self.topic_id = beat, ID
        self.epochs: list[int] = []
        self.server: BlockingServer | None = None

    def __call__(self, header: Any, request: Any) -> Any:
        assert self.server is not None
        if header.key == ApiKey.FIND_COORDINATOR:
            return messages.FindCoordinatorResponse(host="127.0.0.1", port=self.server.port)
        if header.key == ApiKey.METADATA:
            return self._metadata()
        self.epochs.append(request.member_epoch)
        return self.beat(request)

    def _metadata(self) -> messages.MetadataResponse:
        assert self.server is not None
        response = messages.MetadataResponse
        broker = response.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.server.port)
        part = response.MetadataResponseTopic.MetadataResponsePartition if False else response.MetadataResponsePartition
        parts = [part(partition_index=each, leader_id=1) for each in (0, 1)]
        topic = response.MetadataResponseTopic(name="orders", topic_id=self.topic_id, partitions=parts)
        return response(brokers=[broker], topics=[topic])


def assigned(epoch: int, *partitions: int, topic_id: bytes = ID) -> messages.ShareGroupHeartbeatResponse:
    response = messages.ShareGroupHeartbeatResponse
    listed = [response.TopicPartitions(topic_id=topic_id, partitions=list(partitions))] if partitions else []
    assignment = response.Assignment(topic_partitions=listed)
    return response(member_epoch=epoch, heartbeat_interval_ms=10, assignment=assignment)


@contextmanager
def joined(coordinator: Coordinator) -> Iterator[BlockingShareMembership]:
    with BlockingServer(coordinator) as server:
        coordinator.server = server
        options = {"bootstrap": server.bootstrap, "topic": "orders", "group": "lake", "timeoutMs": "2000"}
        membership = BlockingShareMembership(read_share_options(options))
        try:
            membership.join()
            yield membership
        finally:
            membership.leave()


@pytest.fixture(autouse=True)
def _offers_share_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {ApiKey.FIND_COORDINATOR: (0, 4), ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1)}
    monkeypatch.setattr(blocking_server, "OFFERED", blocking_server.OFFERED | more)


def test_a_member_waits_for_its_first_partitions_and_leaves() -> None:
    responses = iter([assigned(1), assigned(2, 0, 1)])
    coordinator = Coordinator(lambda _: next(responses, assigned(2, 0, 1)))
    with joined(coordinator) as membership:
        assert set(membership.assigned) == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
        until(lambda: len(coordinator.epochs) > 4, "more heartbeats")
    assert coordinator.epochs[:3] == [0, 1, 2]
    assert coordinator.epochs[-1] == -1


def test_a_member_that_is_no_longer_known_joins_again_and_continues() -> None:
    def beat(request: Any) -> messages.ShareGroupHeartbeatResponse:
        if request.member_epoch == 0 and coordinator.epochs.count(0) == 1:
            return assigned(7, 0)
        if request.member_epoch == 7:
            return messages.ShareGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        return assigned(8, 1)

    coordinator = Coordinator(beat)
    with joined(coordinator) as membership:
        assert set(membership.assigned) <= {TopicPartition("orders", 0), TopicPartition("orders", 1)}
        until(lambda: TopicPartition("orders", 1) in membership.assigned, "the second assignment")
        assert coordinator.epochs[:3] == [0, 7, 0]


def test_an_assignment_of_a_topic_made_anew_waits_for_its_name() -> None:
    coordinator = Coordinator(lambda _: assigned(1, 0, topic_id=NEW_ID if len(coordinator.epochs) > 2 else ID))
    with joined(coordinator) as membership:
        until(lambda: len(coordinator.epochs) > 4, "an id that has no name")
        assert set(membership.assigned.values()) == {ID}
        coordinator.topic_id = NEW_ID
        until(lambda: set(membership.assigned.values()) == {NEW_ID}, "its name")


def test_a_refusal_of_the_group_is_raised_with_its_reason() -> None:
    refusal = messages.ShareGroupHeartbeatResponse(
        error_code=ErrorCode.GROUP_MAX_SIZE_REACHED, error_message="2 members are enough"
    )
    responses = iter([assigned(1, 0)])
    coordinator = Coordinator(lambda _: next(responses, refusal))
    with joined(coordinator) as membership:
        until(lambda: membership.failed is not None, "the refusal")
        assert isinstance(membership.failed, ReadRefused)
        assert str(membership.failed) == "group lake: 2 members are enough: GROUP_MAX_SIZE_REACHED (81)"


def test_servers_without_share_groups_are_reported_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = {key: each for key, each in blocking_server.OFFERED.items() if key != ApiKey.SHARE_GROUP_HEARTBEAT}
    monkeypatch.setattr(blocking_server, "OFFERED", offered)
    with (
        pytest.raises(NoShareGroups, match="serves no share groups: name a kafka-share-proxy"),
        joined(Coordinator(lambda _: assigned(1))),
    ):
        pass


def test_a_member_without_an_assignment_begins_after_a_bounded_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The query begins all the same: others may hold all there is to read."""
    monkeypatch.setattr(module, "ASSIGNED_S", 0.05)
    with joined(Coordinator(lambda _: assigned(1))) as membership:
        assert membership.assigned == {}
