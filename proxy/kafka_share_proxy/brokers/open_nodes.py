"""Connections of one task to several brokers, each opened at its first use and kept."""

from __future__ import annotations

from typing import TypeVar

import trio

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterConnection, open_connection
from kafka_share_proxy.brokers.coordinator_lookup import PAUSE_S, TRIES
from kafka_share_proxy.brokers.queries import CoordinatorOf, about_coordinators, about_topics
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost, error_name
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address, TopicPartition

R = TypeVar("R", bound=Message)


class OpenNodes:
    """Requests to leaders and coordinators under the proxy's own identity. Not for concurrent tasks."""

    def __init__(self, client: ClusterClient) -> None:
        self.client = client
        self._open: dict[Address, ClusterConnection] = {}
        self._leaders: dict[str, list[Address | None]] = {}

    async def partitions_of(self, topic: str) -> int:
        """Return the number of partitions. 0 if the topic does not exist. Raises ProxyError."""
        if topic not in self._leaders:
            await self._learn(topic)
        return len(self._leaders[topic])

    async def to_leader(self, place: TopicPartition, key: int, request: RequestMessage[R], version: int) -> R:
        """Return the response of a partition's leader. Raises ProxyError."""
        if not place.partition < await self.partitions_of(place.topic):
            raise UpstreamLost(f"partition {place.topic}-{place.partition} does not exist")
        leader = self._leaders[place.topic][place.partition]
        if leader is None:
            raise UpstreamLost(f"partition {place.topic}-{place.partition} has no leader")
        return await self.send_request(leader, key, request, version)

    async def send_request(self, address: Address, key: int, request: RequestMessage[R], version: int) -> R:
        """Raises ProxyError."""
        opened = self._open.get(address)
        if opened is None or trio.current_time() >= opened.expires:
            await self._close(address)
            opened = self._open[address] = await open_connection(address, self.client.settings)
        try:
            return await opened.send_request(key, request, version=version)
        except ProxyError:
            await self._close(address)
            raise

    async def coordinator(self, kind: CoordinatorOf, name: str) -> Address:
        """Raises UpstreamLost if it is not known for a while, or the brokers refuse."""
        for _ in range(TRIES):
            response, _versions = await self.client.send_request(
                ApiKey.FIND_COORDINATOR, about_coordinators(kind, [name])
            )
            (entry,) = response.coordinators
            if entry.error_code not in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                break
            await trio.sleep(PAUSE_S)
        if entry.error_code != ErrorCode.NONE:
            raise UpstreamLost(f"cannot find the coordinator of {name}: {error_name(entry.error_code)}")
        return self.client.address_of(entry.node_id, Address(entry.host, entry.port))

    def forget_leaders(self) -> None:
        """Look all leaders up again."""
        self._leaders.clear()

    async def aclose(self) -> None:
        for address in list(self._open):
            await self._close(address)

    async def _close(self, address: Address) -> None:
        opened = self._open.pop(address, None)
        if opened is not None:
            await opened.aclose()

    async def _learn(self, topic: str) -> None:
        response, _ = await self.client.send_request(ApiKey.METADATA, about_topics([topic]))
        (entry,) = response.topics
        if entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._leaders[topic] = []
            return
        if entry.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            raise UpstreamLost(f"topic {topic}: {error_name(entry.error_code)}")
        addresses = {
            broker.node_id: self.client.address_of(broker.node_id, Address(broker.host, broker.port))
            for broker in response.brokers or ()
        }
        leaders = {
            each.partition_index: addresses.get(each.leader_id)
            for each in entry.partitions
            if each.leader_id != UNKNOWN_NODE
        }
        self._leaders[topic] = [leaders.get(partition) for partition in range(len(entry.partitions))]
