"""A client of the cluster in one process, without sockets: every message goes through the codec of its version."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import trio
import trio.testing
from kafka_share_proxy.conformance.target import served_apis
from kafka_share_proxy.conformance.target.clock import Clock
from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.cluster_settings import ClusterSettings
from kafka_share_proxy.conformance.target.interfaces import ClientPeer, TargetCall
from kafka_share_proxy.wire.codec.headers import RequestHeader
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.message_classes import RequestMessage
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import Record

R = TypeVar("R", bound=Message)
HANDLERS = {int(api.key): api for api in served_apis.APIS}
START_MS = 1_700_000_000_000


class Caller:
    """One connection to one node."""

    def __init__(self, cluster: TargetCluster, node_id: int = 1, number: int = 1, client_id: str = "test") -> None:
        self.cluster = cluster
        self.peer = ClientPeer(number, node_id, "127.0.0.1")
        self.client_id = client_id

    async def send(self, request: RequestMessage[R], version: int | None = None) -> R | None:
        """Return the response as the client decodes it, None where there is none."""
        key = next(key for key, name in registry.API_KEYS.items() if name + "Request" == type(request).__name__)
        api = HANDLERS[key]
        version = api.versions[1] if version is None else version
        assert api.versions[0] <= version <= api.versions[1], f"version {version} of key {key} is not served"
        codec = registry.request(key, version)
        encoded = codec.encode(request)
        header = RequestHeader(key, version, 1, self.client_id)
        call = TargetCall(self.cluster, self.peer, header, codec.decode(encoded))
        response = await api.handle(call)
        if response is None:
            return None
        response_codec = registry.response(key, version)
        return response_codec.decode(response_codec.encode(response))  # type: ignore[no-any-return]

    async def get(self, request: RequestMessage[R], version: int | None = None) -> R:
        """Return the response of a request that has one."""
        response = await self.send(request, version)
        assert response is not None
        return response

    def close(self) -> None:
        for callback in self.peer.on_close:
            callback()

    # Requests that many tests need

    async def produce(
        self,
        topic: str,
        batch: bytes,
        *,
        partition: int = 0,
        acks: int = -1,
        transactional_id: str | None = None,
        version: int = 12,
    ) -> messages.ProduceResponse.PartitionProduceResponse:
        message = messages.ProduceRequest
        data = message.TopicProduceData(
            name=topic, partition_data=[message.PartitionProduceData(index=partition, records=batch)]
        )
        request = message(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[data])
        return (await self.get(request, version)).responses[0].partition_responses[0]

    async def fetch(
        self,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        isolation: int = 0,
    ) -> messages.FetchResponse.PartitionData:
        message = messages.FetchRequest
        asked_for = message.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = message(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            isolation_level=isolation,
            topics=[message.FetchTopic(topic=topic, partitions=[asked_for])],
        )
        return (await self.get(request, 12)).responses[0].partitions[0]


def batch(*values: str, **header: int | bool) -> bytes:
    """Return a batch of records with these values, as a producer sends it."""
    found: Sequence[Record] = [Record(None, value.encode(), timestamp=START_MS) for value in values]
    return records.build_batch(0, found, **header)  # type: ignore[arg-type]


def values(data: bytes | memoryview | None) -> list[str]:
    """Return the values of all whole batches that are not markers."""
    whole = bytes(data or b"")
    return [
        (record.value or b"").decode()
        for header in records.iter_batches(whole)
        if not header.is_control
        for record in records.decode_records(whole[header.position : header.end])
    ]


@asynccontextmanager
async def running_cluster(
    nodes: int = 1, *, seed: int = 1, settings: ClusterSettings | None = None
) -> AsyncIterator[TargetCluster]:
    """Run a cluster whose clock does not move by itself."""
    clock = Clock(START_MS)
    clock.stop()
    cluster = TargetCluster(nodes, clock, seed, settings)
    cluster.addresses.update({node_id: ("127.0.0.1", 9000 + node_id) for node_id in cluster.node_ids})
    served_apis.offer(cluster, {})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.run)
        yield cluster
        nursery.cancel_scope.cancel()


async def advance(cluster: TargetCluster, seconds: float) -> None:
    """Move the clock, and let every task that is due run."""
    cluster.clock.advance(seconds)
    await trio.testing.wait_all_tasks_blocked()
