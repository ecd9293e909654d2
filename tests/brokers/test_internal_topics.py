"""A topic of the proxy's own: made as it must be, where it is led, and refused when it is not what it must be."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.brokers.internal_topics import COMPACTED, OFFSETS_TOPIC, InternalTopic, TopicRefused
from proxy.wire import registry
from proxy.wire.errors import ErrorCode, UpstreamLost
from proxy.wire.values import Address

NAME = "__own"


class Client:
    """Answers as a cluster of some brokers would."""

    def __init__(self, brokers: int = 3, **topics: tuple[int, int]) -> None:
        self.brokers = brokers
        self.topics = topics
        """Name -> (partitions, replicas)."""
        self.leaderless: set[int] = set()
        self.topic_code = self.create_code = ErrorCode.NONE
        self.created: Any = None

    def address_of(self, node_id: int, advertised: Address) -> Address:
        return Address("pinned", 1) if node_id == 2 else advertised

    async def metadata(self, names: list[str]) -> tuple[Any, None]:
        answer = registry.message("MetadataResponse")
        brokers = [answer.MetadataResponseBroker(node_id=n, host=f"b{n}", port=9) for n in range(1, self.brokers + 1)]
        return answer(brokers=brokers, topics=[self._topic(answer, name) for name in names]), None

    def _topic(self, answer: Any, name: str) -> Any:
        topic, partition = answer.MetadataResponseTopic, answer.MetadataResponsePartition
        if name not in self.topics:
            return topic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partitions=[])
        count, replicas = self.topics[name]
        nodes = list(range(1, replicas + 1))
        leader = {index: -1 if index in self.leaderless else 1 + index % self.brokers for index in range(count)}
        partitions = [partition(partition_index=i, leader_id=leader[i], replica_nodes=nodes) for i in range(count)]
        return topic(name=name, error_code=self.topic_code, partitions=partitions)

    async def ask(self, key: int, question: Any) -> tuple[Any, None]:
        assert key == 19
        (self.created,) = question.topics
        answer = registry.message("CreateTopicsResponse")
        return answer(topics=[answer.CreatableTopicResult(name=NAME, error_code=self.create_code)]), None


def topic_of(client: Client, partitions: int = 2) -> InternalTopic:
    return InternalTopic(client, NAME, partitions)  # type: ignore[arg-type]  # what it asks is here


async def test_missing_topic_is_told() -> None:
    assert await topic_of(Client()).leaders() is None


async def test_leaders_and_where_they_are_dialled() -> None:
    """By the proxy's own addresses where brokers are pinned; a partition without a leader is left out."""
    client = Client(**{NAME: (3, 3)})
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
        await topic_of(Client(**{NAME: (3, 3)})).leaders()


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION])
async def test_topic_that_may_not_be_seen_is_refused(code: ErrorCode) -> None:
    client = Client(**{NAME: (2, 3)})
    client.topic_code = code
    with pytest.raises(TopicRefused, match="DESCRIBE"):
        await topic_of(client).leaders()


async def test_trouble_that_passes_is_a_topic_without_leaders() -> None:
    client = Client(**{NAME: (2, 3)})
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
    """Where there are no offsets yet: 3, or as many as there are brokers."""
    client = Client(brokers, **({OFFSETS_TOPIC: (50, offsets)} if offsets else {}))
    assert await topic_of(client).create()
    configs = {config.name: config.value for config in client.created.configs}
    assert (client.created.name, client.created.num_partitions) == (NAME, 2)
    assert client.created.replication_factor == replicas
    assert configs == COMPACTED | {"min.insync.replicas": in_sync}


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT])
async def test_made_by_somebody_else_or_not_known_yet(code: ErrorCode) -> None:
    client = Client()
    client.create_code = code
    assert not await topic_of(client).create()


@pytest.mark.parametrize(
    ("code", "error"),
    [(ErrorCode.NOT_CONTROLLER, UpstreamLost), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, TopicRefused)],
)
async def test_refusal_is_told_from_trouble_that_passes(code: ErrorCode, error: type[Exception]) -> None:
    client = Client()
    client.create_code = code
    with pytest.raises(error):
        await topic_of(client).create()


def test_errors_of_partitions() -> None:
    topic = topic_of(Client())
    topic.check(ErrorCode.NONE, "READ")
    with pytest.raises(TopicRefused, match=f"may not READ topic {NAME}"):
        topic.check(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "READ")
    with pytest.raises(UpstreamLost, match="NOT_LEADER_OR_FOLLOWER"):
        topic.check(ErrorCode.NOT_LEADER_OR_FOLLOWER, "READ")
