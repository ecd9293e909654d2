"""A topic of the proxy's own: made as it must be, where it is led, and refused when it is not what it must be."""

from __future__ import annotations

import pytest
import trio
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.internal_topics import COMPACTED, OFFSETS_TOPIC, InternalTopic, TopicRefused
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from kafka_share_proxy.wire.values import Address

from tests.support.target_brokers import TargetBrokers

NAME = "__own"
PINNED = Address("pinned", 1)


def topic_of(brokers: TargetBrokers, partitions: int = 2) -> InternalTopic:
    return InternalTopic(brokers.client({2: PINNED}), NAME, partitions)


def with_topic(nursery: trio.Nursery, partitions: int) -> TargetBrokers:
    """Return three brokers, each with a partition, one after the other."""
    target_brokers = TargetBrokers(nursery, nodes=3)
    target_brokers.target.add_topic(NAME, [[1 + index % 3] for index in range(partitions)], {})
    return target_brokers


async def test_missing_topic_is_reported(nursery: trio.Nursery) -> None:
    assert await topic_of(TargetBrokers(nursery)).leaders() is None


async def test_leaders_and_where_they_are_dialled(nursery: trio.Nursery) -> None:
    """The proxy's own addresses are used if brokers are pinned; a partition without a leader is omitted."""
    brokers = with_topic(nursery, 3)
    leaders = await topic_of(brokers, 3).leaders()
    assert leaders is not None
    assert leaders.is_whole
    assert leaders.leaders == {0: 1, 1: 2, 2: 3}
    assert [leaders.address_of(partition) for partition in (0, 1, 7)] == [Address("b1", 9092), PINNED, None]
    brokers.target.take_node_down(2)
    leaders = await topic_of(brokers, 3).leaders()
    assert leaders is not None
    assert (leaders.is_whole, leaders.address_of(1)) == (False, None)


async def test_other_number_of_partitions_is_refused(nursery: trio.Nursery) -> None:
    with pytest.raises(TopicRefused, match="has 3 partitions and must have 2"):
        await topic_of(with_topic(nursery, 3)).leaders()


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION])
async def test_topic_that_may_not_be_seen_is_refused(nursery: trio.Nursery, code: ErrorCode) -> None:
    brokers = with_topic(nursery, 2)
    brokers.refuse(ApiKey.METADATA, code)
    with pytest.raises(TopicRefused, match="DESCRIBE"):
        await topic_of(brokers).leaders()


async def test_trouble_that_passes_is_a_topic_without_leaders(nursery: trio.Nursery) -> None:
    brokers = with_topic(nursery, 2)
    brokers.refuse(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE)
    leaders = await topic_of(brokers).leaders()
    assert leaders is not None
    assert not leaders.leaders


@pytest.mark.parametrize(
    ("brokers", "offsets", "replicas", "in_sync"), [(5, 2, 2, "1"), (5, 0, 3, "2"), (1, 0, 1, "1")]
)
async def test_made_with_as_many_replicas_as_offsets_have(
    nursery: trio.Nursery, brokers: int, offsets: int, replicas: int, in_sync: str
) -> None:
    """If there is no offsets topic yet: 3, or the number of brokers."""
    target_brokers = TargetBrokers(nursery, nodes=brokers)
    if offsets:
        target_brokers.target.create_topic(OFFSETS_TOPIC, 50, replication=offsets)
    assert await topic_of(target_brokers).create()
    created = target_brokers.topic(NAME)
    assert [len(partition.replicas) for partition in created.partitions] == [replicas] * 2
    assert created.configs.stored == COMPACTED | {"min.insync.replicas": in_sync}


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT])
async def test_created_by_another_proxy_or_not_known_yet(nursery: trio.Nursery, code: ErrorCode) -> None:
    brokers = TargetBrokers(nursery)
    brokers.refuse(ApiKey.CREATE_TOPICS, code)
    assert not await topic_of(brokers).create()


@pytest.mark.parametrize(
    ("code", "error"),
    [(ErrorCode.NOT_CONTROLLER, UpstreamLost), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, TopicRefused)],
)
async def test_refusal_is_distinguished_from_trouble_that_passes(
    nursery: trio.Nursery, code: ErrorCode, error: type[Exception]
) -> None:
    brokers = TargetBrokers(nursery)
    brokers.refuse(ApiKey.CREATE_TOPICS, code)
    with pytest.raises(error):
        await topic_of(brokers).create()


def test_errors_of_partitions() -> None:
    topic = InternalTopic(ClusterClient([], ClusterClientSettings()), NAME, 2)
    topic.check(ErrorCode.NONE, "READ")
    with pytest.raises(TopicRefused, match=f"may not READ topic {NAME}"):
        topic.check(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "READ")
    with pytest.raises(UpstreamLost, match="NOT_LEADER_OR_FOLLOWER"):
        topic.check(ErrorCode.NOT_LEADER_OR_FOLLOWER, "READ")
