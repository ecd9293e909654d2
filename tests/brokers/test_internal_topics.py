"""A topic of the proxy's own: made as it must be, where it is led, and refused when it is not what it must be."""

from __future__ import annotations

import pytest
from kafka_share_proxy.brokers.internal_topics import COMPACTED, OFFSETS_TOPIC, InternalTopic, TopicRefused
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from kafka_share_proxy.wire.values import Address

from tests.support.topic_client import TopicClient

NAME = "__own"


def topic_of(client: TopicClient, partitions: int = 2) -> InternalTopic:
    return InternalTopic(client, NAME, partitions)  # type: ignore[arg-type]  # it has all methods used here


async def test_missing_topic_is_told() -> None:
    assert await topic_of(TopicClient()).leaders() is None


async def test_leaders_and_where_they_are_dialled() -> None:
    """The proxy's own addresses are used if brokers are pinned; a partition without a leader is omitted."""
    client = TopicClient(**{NAME: (3, 3)})
    found = await topic_of(client, 3).leaders()
    assert found is not None
    assert found.is_whole
    assert found.leaders == {0: 1, 1: 2, 2: 3}
    assert [found.address_of(partition) for partition in (0, 1, 7)] == [Address("b1", 9), Address("pinned", 1), None]
    client.leaderless = {1}
    found = await topic_of(client, 3).leaders()
    assert found is not None
    assert (found.is_whole, found.address_of(1)) == (False, None)


async def test_other_number_of_partitions_is_refused() -> None:
    with pytest.raises(TopicRefused, match="has 3 partitions and must have 2"):
        await topic_of(TopicClient(**{NAME: (3, 3)})).leaders()


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION])
async def test_topic_that_may_not_be_seen_is_refused(code: ErrorCode) -> None:
    client = TopicClient(**{NAME: (2, 3)})
    client.topic_code = code
    with pytest.raises(TopicRefused, match="DESCRIBE"):
        await topic_of(client).leaders()


async def test_trouble_that_passes_is_a_topic_without_leaders() -> None:
    client = TopicClient(**{NAME: (2, 3)})
    client.topic_code = ErrorCode.LEADER_NOT_AVAILABLE
    found = await topic_of(client).leaders()
    assert found is not None
    assert not found.leaders


@pytest.mark.parametrize(
    ("brokers", "offsets", "replicas", "in_sync"), [(5, 2, 2, "1"), (5, 0, 3, "2"), (1, 0, 1, "1")]
)
async def test_made_with_as_many_replicas_as_offsets_have(
    brokers: int, offsets: int, replicas: int, in_sync: str
) -> None:
    """If there is no offsets topic yet: 3, or the number of brokers."""
    client = TopicClient(brokers, **({OFFSETS_TOPIC: (50, offsets)} if offsets else {}))
    assert await topic_of(client).create()
    configs = {config.name: config.value for config in client.created.configs}
    assert (client.created.name, client.created.num_partitions) == (NAME, 2)
    assert client.created.replication_factor == replicas
    assert configs == COMPACTED | {"min.insync.replicas": in_sync}


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT])
async def test_made_by_somebody_else_or_not_known_yet(code: ErrorCode) -> None:
    client = TopicClient()
    client.create_code = code
    assert not await topic_of(client).create()


@pytest.mark.parametrize(
    ("code", "error"),
    [(ErrorCode.NOT_CONTROLLER, UpstreamLost), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, TopicRefused)],
)
async def test_refusal_is_told_from_trouble_that_passes(code: ErrorCode, error: type[Exception]) -> None:
    client = TopicClient()
    client.create_code = code
    with pytest.raises(error):
        await topic_of(client).create()


def test_errors_of_partitions() -> None:
    topic = topic_of(TopicClient())
    topic.check(ErrorCode.NONE, "READ")
    with pytest.raises(TopicRefused, match=f"may not READ topic {NAME}"):
        topic.check(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "READ")
    with pytest.raises(UpstreamLost, match="NOT_LEADER_OR_FOLLOWER"):
        topic.check(ErrorCode.NOT_LEADER_OR_FOLLOWER, "READ")
