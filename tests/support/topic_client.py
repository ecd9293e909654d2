"""In-memory cluster for an internal topic of the proxy (brokers/internal_topics.py)."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import Address


class TopicClient:
    """Client of a cluster of some brokers."""

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
        response = registry.message("MetadataResponse")
        brokers = [response.MetadataResponseBroker(node_id=n, host=f"b{n}", port=9) for n in range(1, self.brokers + 1)]
        return response(brokers=brokers, topics=[self._topic(response, name) for name in names]), None

    def _topic(self, response: Any, name: str) -> Any:
        topic, partition = response.MetadataResponseTopic, response.MetadataResponsePartition
        if name not in self.topics:
            return topic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partitions=[])
        count, replicas = self.topics[name]
        nodes = list(range(1, replicas + 1))
        leader = {index: -1 if index in self.leaderless else 1 + index % self.brokers for index in range(count)}
        partitions = [partition(partition_index=i, leader_id=leader[i], replica_nodes=nodes) for i in range(count)]
        return topic(name=name, error_code=self.topic_code, partitions=partitions)

    async def send_request(self, key: int, query: Any) -> tuple[Any, None]:
        assert key == 19
        (self.created,) = query.topics
        response = registry.message("CreateTopicsResponse")
        return response(
            topics=[response.CreatableTopicResult(name=self.created.name, error_code=self.create_code)]
        ), None
