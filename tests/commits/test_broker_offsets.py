"""Committed offsets as a broker reports them: for each partition, or an error for the whole group."""

from __future__ import annotations

from kafka_share_proxy.commits.broker_offsets import BrokerOffset, request_committed
from kafka_share_proxy.loop.promise import on_its_own
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.commit_world import CommitWorld

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_each_partition_has_its_offset_and_metadata() -> None:
    world = CommitWorld()
    world.commit(7, "text", leader_epoch=3)
    returned = on_its_own(request_committed(world.connect(), "g", [T0, T1])).result()
    assert returned == {T0: BrokerOffset(7, 3, "text", ErrorCode.NONE), T1: BrokerOffset(-1, -1, "", ErrorCode.NONE)}


def test_error_of_the_group_is_that_of_every_partition() -> None:
    world = CommitWorld()
    response = registry.message("OffsetFetchResponse")
    world.cluster.respond_unscripted = lambda *_: response(error_code=ErrorCode.NOT_COORDINATOR, topics=[])
    returned = on_its_own(request_committed(world.connect(), "g", [T0, T1])).result()
    assert {each.error_code for each in returned.values()} == {ErrorCode.NOT_COORDINATOR}


def test_partition_that_the_broker_leaves_out_is_not_taken_for_nothing() -> None:
    world = CommitWorld()
    response = registry.message("OffsetFetchResponse")
    world.cluster.respond_unscripted = lambda *_: response(topics=[])
    returned = on_its_own(request_committed(world.connect(), "g", [T0])).result()
    assert returned[T0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
