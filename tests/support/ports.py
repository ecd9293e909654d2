"""Share groups of a proxy in memory, in front of a scripted cluster: the handlers, their clients, and responses."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata
from kafka_share_proxy.durable.interfaces import Journal, JournalRefused
from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import Handler
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.served import services as shared_services
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import framed
from kafka_share_proxy.loop.promise import Promise, Task
from kafka_share_proxy.loop.slices import AT_ONCE, Slices, Work
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.sharegroups.apis import k76_share_group_heartbeat as k76
from kafka_share_proxy.sharegroups.apis import k77_share_group_describe as k77
from kafka_share_proxy.sharegroups.apis import k78_share_fetch as k78
from kafka_share_proxy.sharegroups.apis import k79_share_acknowledge as k79
from kafka_share_proxy.sharegroups.apis import k90_describe_share_group_offsets as k90
from kafka_share_proxy.sharegroups.apis import k91_alter_share_group_offsets as k91
from kafka_share_proxy.sharegroups.apis import k92_delete_share_group_offsets as k92
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits
from kafka_share_proxy.sharegroups.services import ShareOptions, ShareServices, build
from kafka_share_proxy.sharegroups.settings import DeadLetters
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost

from tests.support.manual_timers import ManualTimers
from tests.support.scripted_cluster import Cluster, Connection, Topic

HANDLERS = {api.KEY: api.handle for api in (k76, k77, k78, k79, k90, k91, k92)}


async def responded(handler: Handler, call: Call[Any]) -> ResponseFrame | None:
    """Return what a handler gives, as the frame that a client gets."""
    return await framed(call, await handler(call))


class SlowJournal(MemoryJournal[Any]):
    """Confirms or refuses each append when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[tuple[list[tuple[Any, bytes | None]], Promise[None]]] = []
        self.slow = False

    def append(self, records: Sequence[tuple[Any, bytes | None]]) -> Promise[None]:
        if not self.slow:
            return super().append(records)
        promise: Promise[None] = Promise()
        self.appends.append((list(records), promise))
        return promise

    def confirm(self, number: int = 0) -> None:
        records, promise = self.appends.pop(number)
        super().append(records)
        promise.set(None)

    def refuse(self, code: ErrorCode) -> None:
        self.appends.pop(0)[1].fail(JournalRefused(code))


class Own:
    """The proxy's own identity: a connection to whichever node, until the test takes it away."""

    def __init__(self, cluster: Cluster) -> None:
        self.refuses: str | None = None
        self._cluster = cluster

    def send_request(self, node_id: int, key: int, request: Any) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        if self.refuses is not None:
            promise.fail(UpstreamLost(self.refuses))
            return promise
        version = registry.versions(key)[1]
        body = registry.request(key, version).encode(request)
        response = self._cluster.send_request(Connection(self._cluster, node_id), key, version, body)
        response.on_settled(lambda: promise.set(registry.response(key, version).decode(response.result())))
        return promise


@dataclass
class Reply:
    """The response to one request, when it is there."""

    task: Task[Any]
    key: int
    version: int

    @property
    def done(self) -> bool:
        return self.task.finished

    @property
    def message(self) -> Any:
        """Return the decoded response. Raises what the handler raised."""
        assert self.task.finished, "no answer yet"
        if self.task.error is not None:
            raise self.task.error
        assert self.task.value is not None
        return frames.decode_response(self.key, self.version, memoryview(bytes(self.task.value))[4:])[1]


class Restless(Work):
    """Work that is interrupted wherever it may be; it continues when the clock is moved."""

    def __init__(self, slices: Slices) -> None:
        super().__init__(slices)
        self._interruptions = slices

    async def step(self, size: int = 0) -> None:
        await self._interruptions.wait()

    pause = step


class World:
    """A cluster, the share room in front of it, and clients."""

    def __init__(
        self,
        *,
        nodes: int = 3,
        journal: Journal[Any] | None = None,
        share_limits: BrokerShareLimits | None = None,
        options: ShareOptions | None = None,
        limits: Limits | None = None,
        fetch_version: int = 17,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self.timers = ManualTimers()
        self.cluster = Cluster(self.timers, nodes)
        self.journal = journal or MemoryJournal()
        self.notes: list[tuple[str, dict[str, Any]]] = []
        versions = EffectiveVersions(Offer((share_group_apis.OFFER,)))
        versions.learn(1, {1: (4, fetch_version), 2: (1, 9), 3: (0, 12), 15: (0, 5), 69: (0, 0)})
        self.own = Own(self.cluster)
        base = shared_services.build(
            limits=limits or Limits(),
            timers=self.timers,
            notes=lambda event, /, **context: self.notes.append((event, context)),
            book=AddressBook(9100, "proxy.example", lambda node_id, address: True),
            topology=ClusterMetadata(),
            versions=versions,
            own=self.own,
        )
        self.services: ShareServices = build(
            base,
            coordinator=ShareCoordinator(share_limits or BrokerShareLimits()),
            options=options or ShareOptions(),
            journal=self.journal,
            dead_letters=dead_letters,
        )
        self.is_restless = False
        """Requests let others run at every step."""
        self._correlation_ids = itertools.count(1)

    def connect(self, node_id: int = 1) -> Connection:
        return Connection(self.cluster, node_id)

    def send_request(self, key: int, version: int, connection: Connection | None = None, **fields: Any) -> Any:
        """Send a request to its handler; the response."""
        request = registry.message(f"{registry.API_KEYS[key]}Request")(**fields)
        return self.send(connection or self.connect(), key, version, request).message

    def send(self, connection: Connection, key: int, version: int, request: Any) -> Reply:
        """Give a request to its handler, through our codec as the wire would."""
        decoded = registry.request(key, version).decode(registry.request(key, version).encode(request))
        work = Restless(self.services.slices) if self.is_restless else AT_ONCE
        call = Call(key, version, next(self._correlation_ids), "test-client", decoded, connection, work)
        task: Task[Any] = Task(HANDLERS[key](call, self.services), lambda task: None, connection)
        connection.tasks.append(task)
        task.start()
        return Reply(task, key, version)

    def configure(self, group_id: str, **values: str) -> None:
        """Configure a group: `share_auto_offset_reset="earliest"`."""
        settings = {name.replace("_", "."): value for name, value in values.items()}
        self.services.coordinator.store_settings(
            group_id, {**self.services.coordinator.stored_settings(group_id), **settings}
        )

    def member(self, group_id: str = "g", member_id: str = "m1", node_id: int = 1, version: int = 2) -> Member:
        return Member(self, group_id, member_id, node_id, version)

    def assert_idle(self) -> None:
        """Check that nothing is left of requests that have ended."""
        assert self.services.reads.reserved == 0
        assert self.services.reads.waiting == 0
        assert not self.services.reads.starting


Acks = dict[tuple[bytes, int], Iterable[tuple[int, int, Sequence[int]]]]


class Member:
    """One member's share session at one node."""

    def __init__(self, world: World, group_id: str, member_id: str, node_id: int, version: int) -> None:
        self.world, self.group_id, self.member_id, self.version = world, group_id, member_id, version
        self.connection = world.connect(node_id)
        self.epoch = 0

    def reconnect(self) -> None:
        self.connection = self.world.connect(self.connection.node_id)

    def send_fetch(
        self,
        *topics: Topic | tuple[Topic, int],
        acks: Acks | None = None,
        forget: Iterable[tuple[Topic, int]] = (),
        epoch: int | None = None,
        wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 << 20,
        max_records: int = 500,
        batch_size: int = 500,
        **fields: Any,
    ) -> Reply:
        """Send a ShareFetch that names these partitions (of a topic: all); the epoch counts itself."""
        message = registry.message("ShareFetchRequest")
        places = [
            (t[0].topic_id, t[1]) if isinstance(t, tuple) else (t.topic_id, i)
            for t in topics
            for i in (range(len(t.logs)) if isinstance(t, Topic) else (0,))
        ]
        partitions_by_topic: dict[bytes, dict[int, list[Any]]] = {}
        for topic_id, index in places:
            partitions_by_topic.setdefault(topic_id, {}).setdefault(index, [])
        for (topic_id, index), batches in (acks or {}).items():
            partitions_by_topic.setdefault(topic_id, {})[index] = _batches(message, batches)
        request = message(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self._next_epoch(epoch),
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=batch_size,
            topics=[
                message.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        message.FetchPartition(partition_index=index, acknowledgement_batches=batches)
                        for index, batches in partitions.items()
                    ],
                )
                for topic_id, partitions in partitions_by_topic.items()
            ],
            forgotten_topics_data=[
                message.ForgottenTopic(topic_id=topic.topic_id, partitions=[index]) for topic, index in forget
            ],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return self.world.send(self.connection, 78, self.version, request)

    def fetch(self, *topics: Topic | tuple[Topic, int], **fields: Any) -> Any:
        """Send a ShareFetch and wait as long as it does; the response."""
        reply = self.send_fetch(*topics, **fields)
        if not reply.done:
            self.world.timers.advance(fields.get("wait_ms", 500) / 1000 + 0.001)
        return reply.message

    def acknowledge(self, acks: Acks, *, epoch: int | None = None, renew: bool = False) -> Any:
        """Send a ShareAcknowledge; the response."""
        return self.send_acknowledge(acks, epoch=epoch, renew=renew).message

    def send_acknowledge(self, acks: Acks, *, epoch: int | None = None, renew: bool = False) -> Reply:
        """Send a ShareAcknowledge."""
        message = registry.message("ShareAcknowledgeRequest")
        request = message(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self._next_epoch(epoch),
            topics=[
                message.AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        message.AcknowledgePartition(
                            partition_index=index, acknowledgement_batches=_batches(message, batches)
                        )
                    ],
                )
                for (topic_id, index), batches in acks.items()
            ],
        )
        if renew:
            request.is_renew_ack = True
        return self.world.send(self.connection, 79, self.version, request)

    def heartbeat(self, epoch: int, topics: Sequence[str] | None = None, **fields: Any) -> Any:
        """Send a ShareGroupHeartbeat; the response."""
        return self.send_heartbeat(epoch, topics, **fields).message

    def send_heartbeat(self, epoch: int, topics: Sequence[str] | None = None, **fields: Any) -> Reply:
        """Send a ShareGroupHeartbeat."""
        request = registry.message("ShareGroupHeartbeatRequest")(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=None if topics is None else list(topics),
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return self.world.send(self.connection, 76, 1, request)

    def _next_epoch(self, epoch: int | None) -> int:
        if epoch is not None:
            if epoch >= 0:
                self.epoch = epoch + 1
            return epoch
        self.epoch += 1
        return self.epoch - 1


def _batches(message: Any, batches: Iterable[tuple[int, int, Sequence[int]]]) -> list[Any]:
    return [
        message.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
        for first, last, types in batches
    ]


def assigned(response: Any) -> dict[bytes, list[int]] | None:
    """Return topic id -> partitions of a ShareGroupHeartbeat response; None where it says nothing of them."""
    if response.assignment is None:
        return None
    return {t.topic_id: t.partitions for t in response.assignment.topic_partitions}


def entries(response: Any) -> dict[tuple[bytes, int], Any]:
    """Return the partitions of a ShareFetch or ShareAcknowledge response."""
    return {(t.topic_id, p.partition_index): p for t in response.responses for p in t.partitions}


def acquired(response: Any, topic: Topic | None = None, partition: int = 0) -> list[tuple[int, int, int]]:
    """Return (first, last, delivery count) of one partition's AcquiredRecords, or of the only one there is."""
    partition_entries = entries(response)
    if not partition_entries:
        return []
    entry = (
        next(iter(partition_entries.values())) if topic is None else partition_entries.get((topic.topic_id, partition))
    )
    return [] if entry is None else [(a.first_offset, a.last_offset, a.delivery_count) for a in entry.acquired_records]
