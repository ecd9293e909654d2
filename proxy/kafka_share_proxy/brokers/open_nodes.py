"""Connections of one task to several brokers, each opened at its first use and kept."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import trio

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterConnection
from kafka_share_proxy.brokers.idle_connections import IdleConnections
from kafka_share_proxy.brokers.queries import (
    COORDINATOR_ELSEWHERE,
    CoordinatorOf,
    about_coordinators,
    about_topics,
)
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost, error_name
from kafka_share_proxy.wire.values import Address, TopicPartition

R = TypeVar("R", bound=Message)

TRIES, PAUSE_S = 20, 0.3
"""Attempts to look up a coordinator, or to read offsets from it, and seconds between them: the first look-up makes the
brokers create its topic.
"""
OFFSET_FETCH_VERSION = 8
_UNSETTLED = COORDINATOR_ELSEWHERE | {ErrorCode.UNSTABLE_OFFSET_COMMIT}
"""The coordinator of a group moves or loads, or a transaction is open."""


class CoordinatorRefused(ProxyError):
    """The brokers refuse to name a coordinator, or the coordinator refuses a request. The text has the reason."""


class OpenNodes:
    """Requests to leaders and coordinators under the proxy's own identity. Not for concurrent tasks."""

    def __init__(self, client: ClusterClient) -> None:
        self.client = client
        self._connections = IdleConnections(client.settings)
        self._leaders: dict[str, list[Address | None]] = {}

    async def partitions_of(self, topic: str) -> int:
        """Return the number of partitions. 0 if the topic does not exist. Raises ProxyError."""
        return len(await self._leaders_of(topic))

    async def partitions_with_leader(self, topic: str) -> list[int]:
        """Return the partitions that can be read and written now. Raises ProxyError."""
        return [number for number, leader in enumerate(await self._leaders_of(topic)) if leader is not None]

    async def leader(self, place: TopicPartition) -> Address:
        """Return the address of a partition's leader. Raises ProxyError."""
        leaders = await self._leaders_of(place.topic)
        if not place.partition < len(leaders):
            raise UpstreamLost(f"partition {place.topic}-{place.partition} does not exist")
        address = leaders[place.partition]
        if address is None:
            raise UpstreamLost(f"partition {place.topic}-{place.partition} has no leader")
        return address

    async def to_leader(self, place: TopicPartition, key: int, request: RequestMessage[R], version: int) -> R:
        """Return the response of a partition's leader. Raises ProxyError."""
        return await self.send_request(await self.leader(place), key, request, version)

    async def send_request(self, address: Address, key: int, request: RequestMessage[R], version: int) -> R:
        """Raises ProxyError."""
        async with self.connection(address) as opened:
            return await opened.send_request(key, request, version=version)

    def connection(self, address: Address) -> AbstractAsyncContextManager[ClusterConnection]:
        """Use the connection to a broker. An error of the block closes it. Raises ProxyError."""
        return self._connections.lend(address)

    async def coordinator(self, kind: CoordinatorOf, name: str) -> Address:
        """Raises CoordinatorRefused, also if it is not known for a while, and as `ClusterClient.send_request`."""
        request = about_coordinators(kind, [name])
        for _ in range(TRIES):
            response, _versions = await self.client.send_request(ApiKey.FIND_COORDINATOR, request)
            (entry,) = response.coordinators
            if entry.error_code not in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                break
            await trio.sleep(PAUSE_S)
        if entry.error_code != ErrorCode.NONE:
            raise CoordinatorRefused(f"cannot find the coordinator of {name}: {error_name(entry.error_code)}")
        return self.client.address_of(entry.node_id, Address(entry.host, entry.port))

    async def committed_offsets(
        self, request: messages.OffsetFetchRequest
    ) -> messages.OffsetFetchResponse.OffsetFetchResponseGroup:
        """Return the offsets of the only group in the request. Waits for a moving coordinator and open transactions.

        Raises CoordinatorRefused if the whole group is refused, and as `send_request`.
        """
        (requested,) = request.groups
        for _ in range(TRIES):
            coordinator = await self.coordinator(CoordinatorOf.GROUP, requested.group_id)
            response = await self.send_request(coordinator, ApiKey.OFFSET_FETCH, request, OFFSET_FETCH_VERSION)
            (group,) = response.groups
            codes = {entry.error_code for topic in group.topics for entry in topic.partitions}
            if _UNSETTLED.isdisjoint({group.error_code, *codes}):
                break
            await trio.sleep(PAUSE_S)
        if group.error_code != ErrorCode.NONE:
            reason = error_name(group.error_code)
            raise CoordinatorRefused(f"cannot read the offsets of group {requested.group_id}: {reason}")
        return group

    def forget_leaders(self) -> None:
        """Look all leaders up again."""
        self._leaders.clear()

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def _leaders_of(self, topic: str) -> list[Address | None]:
        """Return the leader of each partition. Empty if the topic does not exist."""
        if topic not in self._leaders:
            self._leaders[topic] = await self._request_leaders(topic)
        return self._leaders[topic]

    async def _request_leaders(self, topic: str) -> list[Address | None]:
        response, _ = await self.client.send_request(ApiKey.METADATA, about_topics([topic]))
        (entry,) = response.topics
        if entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return []
        if entry.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            raise UpstreamLost(f"topic {topic}: {error_name(entry.error_code)}")
        addresses = self.client.broker_addresses(response)
        leaders = {each.partition_index: addresses.get(each.leader_id) for each in entry.partitions}
        return [leaders.get(partition) for partition in range(len(entry.partitions))]
