"""A client of the cluster in one process, without sockets: every message goes through the codec of its version."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

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

from tests.support.blocking_connection import build

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

    async def query(self, api: str, version: int | None = None, **values: Any) -> Any:
        """Return the response to a request of the API with this name. Nested structures may be dicts."""
        return await self.get(build(f"{api}Request", **values), version)

    async def join(self, group: str, member_id: str = "", **values: Any) -> messages.JoinGroupResponse:
        full: dict[str, Any] = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 20_000,
            "protocol_type": "consumer",
        }
        full |= {"protocols": [{"name": "range", "metadata": b"m"}], **values}
        return await self.query("JoinGroup", group_id=group, member_id=member_id, **full)  # type: ignore[no-any-return]

    async def only_member(self, group: str) -> str:
        """Join as the only member of a classic group that is stable in generation 1, and return its id."""
        member_id = (await self.join(group)).member_id
        await self.join(group, member_id)
        await self.sync(group, member_id, {member_id: b"assigned"})
        return member_id

    async def sync(
        self, group: str, member_id: str, assigned: dict[str, bytes], *, generation: int = 1
    ) -> messages.SyncGroupResponse:
        assignments = [{"member_id": each, "assignment": part} for each, part in assigned.items()]
        return await self.query(  # type: ignore[no-any-return]
            "SyncGroup", group_id=group, member_id=member_id, generation_id=generation, protocol_type="consumer",
            protocol_name="range", assignments=assignments,
        )  # fmt: skip

    async def commit(self, group: str, topic: str, offset: int, *, member_id: str = "", epoch: int = -1) -> int:
        """Commit an offset of partition 0 and return the error code."""
        partitions = [{"partition_index": 0, "committed_offset": offset}]
        response = await self.query(
            "OffsetCommit", 9, group_id=group, member_id=member_id, generation_id_or_member_epoch=epoch,
            topics=[{"name": topic, "partitions": partitions}],
        )  # fmt: skip
        return int(response.topics[0].partitions[0].error_code)

    async def committed(self, group: str, topic: str, **values: Any) -> tuple[int, int]:
        """Return (error code, offset) of partition 0."""
        groups = [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}]
        group_entry = (await self.query("OffsetFetch", 9, groups=groups, **values)).groups[0]
        if group_entry.error_code:
            return group_entry.error_code, -1
        partition = group_entry.topics[0].partitions[0]
        return partition.error_code, partition.committed_offset

    async def beat(self, group: str, member_id: str, epoch: int, **values: Any) -> Any:
        """Send a ConsumerGroupHeartbeat."""
        return await self.query(
            "ConsumerGroupHeartbeat", group_id=group, member_id=member_id, member_epoch=epoch, **values
        )

    async def join_consumer(self, group: str, member_id: str, topic: str, **values: Any) -> Any:
        full = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [topic], "topic_partitions": []}
        return await self.beat(group, member_id, 0, **{**full, **values})

    async def share_fetch(self, group: str, topic_id: bytes, epoch: int, **values: Any) -> Any:
        """Send a ShareFetch of partition 0 as member "m"."""
        full: dict[str, Any] = {
            "member_id": "m",
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
        }
        partition = {"partition_index": 0, "acknowledgement_batches": values.pop("acknowledged", [])}
        full |= {"batch_size": 500, "topics": [{"topic_id": topic_id, "partitions": [partition]}], **values}
        return await self.query(
            "ShareFetch", group_id=group, share_session_epoch=epoch, forgotten_topics_data=[], **full
        )

    async def share_acknowledge(self, group: str, topic_id: bytes, epoch: int, first: int, last: int, kind: int) -> Any:
        """Send a ShareAcknowledge for offsets of partition 0 as member "m"."""
        batch = {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]}
        topics = [{"topic_id": topic_id, "partitions": [{"partition_index": 0, "acknowledgement_batches": [batch]}]}]
        return await self.query(
            "ShareAcknowledge",
            group_id=group,
            member_id="m",
            share_session_epoch=epoch,
            topics=topics,
            is_renew_ack=kind == 4,
        )

    async def transactional(self, name: str = "x") -> tuple[int, int]:
        """Return the producer id and epoch of a transactional id."""
        response = await self.query("InitProducerId", transactional_id=name, transaction_timeout_ms=60_000)
        return response.producer_id, response.producer_epoch

    async def end(self, producer: tuple[int, int], *, commits: bool = True, version: int = 5, name: str = "x") -> Any:
        return await self.query(
            "EndTxn",
            version,
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commits,
        )

    async def produce_in(self, producer: tuple[int, int], topic: str, *values: str, sequence: int = 0) -> int:
        """Produce in the transaction of "x" and return the error code."""
        data = batch(
            *values, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, is_transactional=True
        )
        return (await self.produce(topic, data, transactional_id="x")).error_code

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
        requested = message.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = message(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            isolation_level=isolation,
            topics=[message.FetchTopic(topic=topic, partitions=[requested])],
        )
        return (await self.get(request, 12)).responses[0].partitions[0]


def batch(*values: str, **header: int | bool) -> bytes:
    """Return a batch of records with these values, as a producer sends it."""
    to_append: Sequence[Record] = [Record(None, value.encode(), timestamp=START_MS) for value in values]
    return records.build_batch(0, to_append, **header)  # type: ignore[arg-type]


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
