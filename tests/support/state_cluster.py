"""Brokers in memory for `durable/`: topics with logs, writers with epochs, and nothing that takes real time.

The part of Kafka that the mechanism of states needs: InitProducerId fences the epoch before, a batch of an older epoch
is refused, Fetch gives whole batches and waits for more, Metadata names leaders. The clock is Trio's, so that tests may
jump. Tests bend it: topics that may not be made, brokers that are away, requests that wait.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

import pytest
import trio
from kafka_share_proxy.brokers import topic_log
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.durable import replay, state_home
from kafka_share_proxy.durable.broker_access import BrokerAccess
from kafka_share_proxy.durable.state_host import StateHost
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.promise import Callback, CallbackOwner, on_behalf_of
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost
from kafka_share_proxy.wire.records.records import build_batch, iter_batches
from kafka_share_proxy.wire.values import ZERO_UUID, Address

from tests.support.topic_settings import COMPACTED, described

NODE, OTHER_NODE = 1, 2
WALL_MS = 1_700_000_000_000


@dataclass
class Log:
    """One partition."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(first offset, last offset, bytes)"""
    end: int = 0
    epochs: dict[int, int] = field(default_factory=dict)
    """Producer id -> its latest epoch seen here."""
    grown: trio.Event = field(default_factory=trio.Event)

    def append(self, data: bytes) -> int:
        """Its first offset. Raises KeyError for an epoch that was replaced."""
        batch = next(iter_batches(data))
        if batch.producer_epoch < self.epochs.get(batch.producer_id, -1):
            raise KeyError(batch.producer_id)
        self.epochs[batch.producer_id] = batch.producer_epoch
        first, self.end = self.end, self.end + batch.records_count
        self.batches.append((first, self.end - 1, first.to_bytes(8, "big") + data[8:]))
        self.grown.set()
        self.grown = trio.Event()
        return first


def _mark(part: Any) -> tuple[int, int]:
    return part.error_code, part.high_watermark


class StateCluster:
    """A broker that leads everything, and others that could."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.node = NODE
        """Leader of everything."""
        self.loses: int | None = None
        """API key of the request at which its reader loses the leader: nothing arrives from there any longer."""
        self.lost: set[int] = set()
        self.topics: dict[str, list[Log]] = {}
        self.topic_ids: dict[str, int] = {}
        self.refuses_to_make: set[str] = set()
        self.denies_writing: set[str] = set()
        """Topics that the identity may not write to."""
        self.settings: dict[str, str | None] = dict(COMPACTED)
        """Settings of every topic."""
        self.settings_code = ErrorCode.NONE
        """Error code of DescribeConfigs."""
        self.away = False
        """True if no broker responds."""
        self.away_after: float = inf
        """Number of requests after which no broker responds."""
        self.fetch_sessions: dict[int, tuple[Any, dict[int, Any]]] = {}
        """Topic with all partitions, and what was last returned of each, by session id. Clear it to evict all."""
        self.held: dict[int, list[Callable[[], None]]] = {}
        """API key -> requests of channels that wait for `release`."""
        self.writers: dict[str, tuple[int, int]] = {}
        """Transactional id -> (producer id, epoch)."""
        self.asked: list[int] = []
        """API keys, in order."""

    def log(self, topic: str, partition: int) -> Log:
        return self.topics[topic][partition]

    def make(self, topic: str, partitions: int) -> None:
        self.topics[topic] = [Log() for _ in range(partitions)]
        self.topic_ids[topic] = self.topic_ids.get(topic, 0) + 1

    def write(self, topic: str, partition: int, records: list[Any], producer_id: int, epoch: int) -> int:
        """Write a batch of a foreign producer."""
        data = build_batch(0, records, producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
        return self.log(topic, partition).append(data)

    def release(self, key: int) -> None:
        for go_on in self.held.pop(key):
            go_on()

    def access(self, notes: Callable[..., None]) -> BrokerAccess:
        return BrokerAccess(
            client=lambda: Client(self),  # type: ignore[arg-type,return-value]
            settings=ClusterClientSettings(),
            own=None,
            notes=notes,
        )

    def respond(self, key: int, request: Any) -> Any:
        """Everything but Fetch. Raises UpstreamLost."""
        self._count(key)
        responses = {0: self._produce, 2: self._offsets, 10: self._coordinators, 19: self._create, 22: self._identify}
        return self._configs(request) if key == 32 else responses[key](request)

    def _count(self, key: int) -> None:
        self.asked.append(key)
        self.away = self.away or len(self.asked) >= self.away_after
        if self.away:
            raise UpstreamLost("nobody is there")

    def _create(self, request: Any) -> Any:
        (topic,) = request.topics
        response = registry.message("CreateTopicsResponse")
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if topic.name in self.refuses_to_make else ErrorCode.NONE
        if topic.name in self.topics:
            code = ErrorCode.TOPIC_ALREADY_EXISTS
        if code == ErrorCode.NONE:
            self.make(topic.name, topic.num_partitions)
        return response(topics=[response.CreatableTopicResult(name=topic.name, error_code=code)])

    def _configs(self, request: Any) -> Any:
        return described(request, {"max.message.bytes": "1000000", **self.settings}, self.settings_code)

    def _coordinators(self, request: Any) -> Any:
        response = registry.message("FindCoordinatorResponse")
        found = [response.Coordinator(key=key, node_id=NODE, error_code=0) for key in request.coordinator_keys]
        return response(coordinators=found)

    def _identify(self, request: Any) -> Any:
        response = registry.message("InitProducerIdResponse")
        known = self.writers.get(request.transactional_id)
        mine = (request.producer_id, request.producer_epoch)
        if request.producer_id >= 0 and mine != known:
            return response(error_code=ErrorCode.PRODUCER_FENCED, producer_id=-1, producer_epoch=-1)
        given = (1000 + len(self.writers), 0) if known is None else (known[0], known[1] + 1)
        self.writers[request.transactional_id] = given
        return response(error_code=0, producer_id=given[0], producer_epoch=given[1])

    def _produce(self, request: Any) -> Any:
        response = registry.message("ProduceResponse")
        (topic,) = request.topic_data
        told = []
        for part in topic.partition_data:
            code, offset = ErrorCode.NONE, -1
            try:
                if topic.name not in self.topics:
                    raise LookupError
                if topic.name in self.denies_writing:
                    raise PermissionError
                offset = self.log(topic.name, part.index).append(bytes(part.records))
            except KeyError:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
            except PermissionError:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            except LookupError:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            told.append(response.PartitionProduceResponse(index=part.index, error_code=code, base_offset=offset))
        return response(responses=[response.TopicProduceResponse(name=topic.name, partition_responses=told)])

    def _offsets(self, request: Any) -> Any:
        response = registry.message("ListOffsetsResponse")
        (topic,) = request.topics
        found = []
        if topic.name not in self.topics:
            raise UpstreamLost("the topic is gone")
        for wanted in topic.partitions:
            log = self.log(topic.name, wanted.partition_index)
            start = log.batches[0][0] if log.batches else log.end
            offset = start if wanted.timestamp == topic_log.EARLIEST else log.end
            found.append(
                response.ListOffsetsPartitionResponse(
                    partition_index=wanted.partition_index, error_code=0, offset=offset
                )
            )
        return response(topics=[response.ListOffsetsTopicResponse(name=topic.name, partitions=found)])

    async def fetch(self, request: Any) -> Any:
        """Return what is there, after waiting for something if there is nothing. Raises UpstreamLost."""
        self._count(ApiKey.FETCH)
        session_id, topic, marks = self._session(request)
        if topic is None:
            return registry.message("FetchResponse")(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
        deadline = trio.current_time() + request.max_wait_ms / 1000
        while True:
            if self.away:
                raise UpstreamLost("nobody is there")
            name, missing = topic.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic.topic_id != ZERO_UUID:
                name, missing = self._name_of(topic.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
            parts = [self._part(name, wanted, missing) for wanted in topic.partitions]
            left = deadline - trio.current_time()
            if left <= 0 or any(part.records or part.error_code for part in parts):
                response = registry.message("FetchResponse")
                changed = [part for part in parts if part.records or _mark(part) != marks.get(part.partition_index)]
                marks |= {part.partition_index: _mark(part) for part in changed}
                responded = [response.FetchableTopicResponse(topic=name, partitions=changed)] if changed else []
                return response(session_id=session_id, responses=responded)
            await self._growth(name, topic, left)

    def _session(self, request: Any) -> tuple[int, Any, dict[int, Any]]:
        """Return the id, the topic with all its partitions, and what was last returned of each (KIP-227).

        The topic is None if the session was evicted.
        """
        if request.session_epoch <= 0:
            (topic,) = request.topics
            if request.session_epoch < 0:
                return 0, topic, {}
            session_id = len(self.fetch_sessions) + 1
            self.fetch_sessions[session_id] = (topic, {})
            return session_id, topic, self.fetch_sessions[session_id][1]
        topic, marks = self.fetch_sessions.get(request.session_id, (None, {}))
        if topic is not None:
            updated = {each.partition: each for each in topic.partitions}
            updated |= {each.partition: each for changed in request.topics for each in changed.partitions}
            for forgotten in (each for topics in request.forgotten_topics_data for each in topics.partitions):
                del updated[forgotten]
            topic.partitions = list(updated.values())
        return request.session_id, topic, marks

    def _name_of(self, topic_id: bytes) -> str:
        """Topics that were created again have another id."""
        return next((name for name in self.topics if self.id_of(name) == bytes(topic_id)), "")

    def id_of(self, name: str) -> bytes:
        return zlib.crc32(name.encode()).to_bytes(12, "big") + self.topic_ids[name].to_bytes(4, "big")

    def _part(self, topic: str, wanted: Any, missing: ErrorCode) -> Any:
        response = registry.message("FetchResponse")
        if topic not in self.topics:
            return response.PartitionData(partition_index=wanted.partition, error_code=missing, records=b"")
        log = self.log(topic, wanted.partition)
        code = ErrorCode.OFFSET_OUT_OF_RANGE if wanted.fetch_offset > log.end else ErrorCode.NONE
        rest = [data for _, last, data in log.batches if last >= wanted.fetch_offset]
        return response.PartitionData(
            partition_index=wanted.partition,
            error_code=code,
            high_watermark=log.end,
            records=rest[0] if rest and code == ErrorCode.NONE else b"",
        )

    async def _growth(self, name: str, topic: Any, seconds: float) -> None:
        async def until(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for wanted in topic.partitions:
                    nursery.start_soon(until, self.log(name, wanted.partition).grown)


class Client:
    """The part of an ClusterClient that states need."""

    def __init__(self, cluster: StateCluster) -> None:
        self._cluster = cluster

    async def metadata(self, names: list[str]) -> tuple[Any, None]:
        await trio.lowlevel.checkpoint()
        if self._cluster.away:
            raise UpstreamLost("nobody is there")
        response = registry.message("MetadataResponse")
        topics = [self._topic(response, name) for name in names]
        brokers = [response.MetadataResponseBroker(node_id=node, host="b", port=node) for node in (NODE, OTHER_NODE)]
        return response(brokers=brokers, topics=topics), None

    def _topic(self, response: Any, name: str) -> Any:
        logs = self._cluster.topics.get(name)
        if logs is None:
            return response.MetadataResponseTopic(
                name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partitions=[]
            )
        partitions = [
            response.MetadataResponsePartition(
                partition_index=index, leader_id=self._cluster.node, replica_nodes=[NODE]
            )
            for index in range(len(logs))
        ]
        topic_id = self._cluster.id_of(name)
        return response.MetadataResponseTopic(name=name, error_code=0, topic_id=topic_id, partitions=partitions)

    async def send_request(self, key: int, request: Any) -> tuple[Any, None]:
        await trio.lowlevel.checkpoint()
        return self._cluster.respond(key, request), None

    def address_of(self, _node_id: int, advertised: Address) -> Address:
        return advertised

    async def aclose(self) -> None:
        """There is nothing to close."""


class Loop:
    """The part of the reactor that a journal needs, by Trio's clock."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    def now(self) -> float:
        return trio.current_time()

    def wall_ms(self) -> int:
        return WALL_MS + round(trio.current_time() * 1000)

    def call_soon(self, _owner: object, callback: Callable[[], object]) -> None:
        self.call_at(trio.current_time(), callback)

    def call_on_behalf_of(self, owner: CallbackOwner, callback: Callback) -> None:
        self.call_at(trio.current_time(), partial(on_behalf_of, owner, callback))

    def call_at(self, deadline: float, callback: Callable[[], object]) -> trio.CancelScope:
        scope = trio.CancelScope()

        async def ring() -> None:
            with scope:
                await trio.sleep_until(deadline)
                callback()

        self._nursery.start_soon(ring)
        return scope


class Channels:
    """Replacement of `brokers.channels.BrokerChannels`: every channel is open; responses arrive in separate
    iterations.
    """

    def __init__(self, cluster: StateCluster, *_: Any, **_callbacks: Any) -> None:
        self.addresses: Mapping[int, Address] = {}
        self._cluster = cluster
        self._nursery = cluster.nursery

    async def run(self) -> None:
        await trio.sleep_forever()

    def get(self, _node_id: int, _purpose: str) -> Channels:
        return self

    def is_late(self, _node_id: int, _purpose: str) -> bool:
        return False

    def highest(self, _key: int, ours_max: int) -> int:
        return ours_max

    def send_request(self, key: int, _version: int, request: Any, done: Callable[[Any | None], None]) -> None:
        async def response() -> None:
            await trio.sleep(0.001)
            try:
                told = self._cluster.respond(key, request)
            except ProxyError:
                told = None
            done(told)

        go_on = partial(self._nursery.start_soon, response)
        if key in self._cluster.held:
            self._cluster.held[key].append(go_on)
        else:
            go_on()

    def close(self) -> None:
        """There is nothing to close."""


def host_in(cluster: StateCluster, loop: Any, notes: Notes) -> StateHost:
    """Return the dependencies of a state that no home owns."""
    channels: Any = Channels(cluster)
    return StateHost(
        access=cluster.access(notes), reactor=loop, name="a:1", channels=channels, lease_s=0.0, on_lost=lambda _: None
    )


class _Connection:
    """The part of an ClusterConnection that reading needs."""

    def __init__(self, cluster: StateCluster, node: int) -> None:
        self._cluster = cluster
        self._node = node

    async def send_request(self, key: int, request: Any, version: int | None = None) -> Any:
        await trio.lowlevel.checkpoint()
        if key == self._cluster.loses:
            self._cluster.loses = None
            self._cluster.lost.add(self._node)
        if self._node in self._cluster.lost:
            await trio.sleep_forever()
        return await self._cluster.fetch(request) if key == ApiKey.FETCH else self._cluster.respond(key, request)


def install(monkeypatch: pytest.MonkeyPatch, cluster: StateCluster, *modules: Any) -> None:
    """Have these modules, and what hosts states, meet this cluster in place of the network."""

    @asynccontextmanager
    async def connection(address: Address, _settings: Any) -> AsyncIterator[_Connection]:
        yield _Connection(cluster, address.port)

    for module in (replay, *modules):
        monkeypatch.setattr(module, "connection", connection)
    monkeypatch.setattr(state_home, "BrokerChannels", partial(Channels, cluster))
