"""A cluster of a few lines with topics that can be made, grown and deleted, and what serves views in front of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata
from kafka_share_proxy.brokers.connection_slots import SlotValues
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.served import services
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import framed
from kafka_share_proxy.loop.promise import Promise, Task, settled
from kafka_share_proxy.views import view_apis
from kafka_share_proxy.views.audit_events import ViewAudit
from kafka_share_proxy.views.creation import ViewCreation
from kafka_share_proxy.views.model.catalog import ViewCatalog
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.views.settings import Views
from kafka_share_proxy.views.store import MemoryViewStore
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.values import UNKNOWN_NODE, ZERO_UUID

from tests.support.manual_timers import ManualTimers
from tests.support.stretches import uncounted

BROKER, OTHER = 1, 2
CORRELATION = 7
PARTITIONS_MAX = 10_000
"""More are refused as a broker does: of one topic (37), of all topics of one request (44)."""


@dataclass
class Topic:
    topic_id: bytes
    partitions: int
    replicas: list[int] = field(default_factory=lambda: [BROKER, OTHER])
    epoch: int = 0
    configs: dict[str, str | None] = field(default_factory=dict)


class Cluster:
    """Cluster that behaves like a broker."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.hidden: set[str] = set()
        """Topics that the principal may not see."""
        self.codes: dict[int, int | list[int]] = {}
        """API key -> error code of everything of the kind; of a list one for each request, then none."""
        self.requested: list[tuple[int, Any]] = []
        self.late = 0
        """Number of Metadata responses that do not show a new topic."""
        self.page: tuple[str, int] | None = None
        """Page end of DescribeTopicPartitions: topic and partition."""
        self._ids = 0
        self.version = 0

    def make(self, name: str, partitions: int, **fields: Any) -> Topic:
        self._ids += 1
        self.topics[name] = Topic(self._ids.to_bytes(16, "big"), partitions, **fields)
        return self.topics[name]

    def count(self, key: int) -> int:
        return sum(requested == key for requested, _ in self.requested)

    def respond(self, key: int, version: int, request: Any) -> Any:
        self.requested.append((key, request))
        return getattr(self, f"_{registry.API_KEYS[key]}")(version, request)

    def _code(self, key: int) -> int:
        code = self.codes.get(key, 0)
        if isinstance(code, list):
            return code.pop(0) if code else 0
        return code

    def _Metadata(self, version: int, request: Any) -> Any:
        self.version = version
        message = registry.message("MetadataResponse")
        names = {topic.topic_id: name for name, topic in self.topics.items()}
        requested = request.topics
        if requested is None or (version == 0 and not requested):
            topics = [self._entry(message, name) for name in sorted(self.topics)]
        else:
            topics = [self._entry(message, self._name(each, names), each) for each in requested]
        if request.include_topic_authorized_operations:
            for topic in topics:
                topic.topic_authorized_operations = 264
        brokers = [message.MetadataResponseBroker(node_id=n, host=f"up{n}", port=9092) for n in (BROKER, OTHER)]
        return message(brokers=brokers, controller_id=BROKER, topics=topics)

    def _name(self, requested: Any, names: Mapping[bytes, str]) -> str | None:
        return requested.name if requested.name is not None else names.get(bytes(requested.topic_id))

    @property
    def _none(self) -> str | None:
        """Return the substitute for an unknown topic's name; null from v12 on."""
        return None if self.version >= 12 else ""

    def _entry(self, message: Any, name: str | None, requested: Any = None) -> Any:
        if name in self.hidden:
            return message.MetadataResponseTopic(error_code=29, name=name, partitions=[])
        topic = self.topics.get(name or "")
        if topic is not None and name is not None and name.startswith("__view.") and self.late:
            self.late -= 1
            topic = None
        if topic is None:
            by_id = requested is not None and requested.name is None
            unknown = (
                {"error_code": 100, "topic_id": requested.topic_id, "name": self._none} if by_id else {"error_code": 3}
            )
            return message.MetadataResponseTopic(partitions=[], **({"name": name or ""} | unknown))
        parts = [
            message.MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=topic.replicas[index % len(topic.replicas)],
                replica_nodes=topic.replicas,
                isr_nodes=topic.replicas[:1],
                **({"leader_epoch": topic.epoch, "offline_replicas": topic.replicas[1:]} if self.version >= 7 else {}),
            )
            for index in range(topic.partitions)
        ]
        topic_id = topic.topic_id if self.version >= 10 else ZERO_UUID
        return message.MetadataResponseTopic(error_code=0, name=name, topic_id=topic_id, partitions=parts)

    def _CreateTopics(self, _version: int, request: Any) -> Any:
        message = registry.message("CreateTopicsResponse")
        results = []
        too_many = 44 if sum(each.num_partitions for each in request.topics) > PARTITIONS_MAX else 0
        for each in request.topics:
            code = (
                too_many or self._code(19) or _code_of(each.num_partitions) or (36 if each.name in self.topics else 0)
            )
            if not code and not request.validate_only:
                configs = {config.name: config.value for config in each.configs}
                replicas = [BROKER, OTHER][: each.replication_factor] if each.replication_factor > 0 else [BROKER]
                self.make(each.name, each.num_partitions, configs=configs, replicas=replicas)
            topic_id = self.topics[each.name].topic_id if each.name in self.topics and not code else ZERO_UUID
            text = f"refused {code}" if code else None
            results.append(
                message.CreatableTopicResult(
                    name=each.name, topic_id=topic_id, error_code=code, error_message=text, configs=None
                )
            )
        return message(topics=results)

    def _DeleteTopics(self, version: int, request: Any) -> Any:
        message = registry.message("DeleteTopicsResponse")
        names = {topic.topic_id: name for name, topic in self.topics.items()}
        states = request.topics if version >= 6 else [_Named(name) for name in request.topic_names]
        results = []
        for each in states:
            name = each.name or names.get(bytes(each.topic_id))
            code = self._code(20) or (0 if name in self.topics else 3)
            topic = self.topics.pop(str(name), None) if not code else None
            topic_id = topic.topic_id if topic is not None else each.topic_id
            shown_name = name if version >= 6 else name or ""
            results.append(message.DeletableTopicResult(name=shown_name, topic_id=topic_id, error_code=code))
        return message(responses=results)

    def _CreatePartitions(self, _version: int, request: Any) -> Any:
        message = registry.message("CreatePartitionsResponse")
        results = []
        for each in request.topics:
            code = self._code(37) or _code_of(each.count) or (0 if each.name in self.topics else 3)
            if not code:
                self.topics[each.name].partitions = each.count
            results.append(message.CreatePartitionsTopicResult(name=each.name, error_code=code))
        return message(results=results)

    def _DescribeTopicPartitions(self, _version: int, request: Any) -> Any:
        message = registry.message("DescribeTopicPartitionsResponse")
        names = [topic.name for topic in request.topics] or sorted(self.topics)
        begin = request.cursor.topic_name if request.cursor is not None else ""
        entries = []
        last = self.page or ("\x7f", 0)
        for name in sorted(name for name in names if begin <= name <= last[0]):
            topic = self.topics.get(name)
            if topic is None:
                entries.append(message.DescribeTopicPartitionsResponseTopic(error_code=3, name=name, partitions=[]))
                continue
            first = max(request.cursor.partition_index, 0) if request.cursor is not None and name == begin else 0
            parts = [
                message.DescribeTopicPartitionsResponsePartition(
                    partition_index=index, leader_id=99, leader_epoch=99, replica_nodes=[99], isr_nodes=[99],
                    eligible_leader_replicas=[99], last_known_elr=[99], offline_replicas=[],
                )
                for index in range(first, last[1] if name == last[0] else topic.partitions)
            ]  # fmt: skip
            entries.append(
                message.DescribeTopicPartitionsResponseTopic(name=name, topic_id=topic.topic_id, partitions=parts)
            )
        cursor = None if self.page is None else message.Cursor(topic_name=last[0], partition_index=last[1])
        return message(topics=entries, next_cursor=cursor)

    def _DeleteRecords(self, _version: int, request: Any) -> Any:
        message = registry.message("DeleteRecordsResponse")
        topics = [
            message.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    message.DeleteRecordsPartitionResult(partition_index=p.partition_index, low_watermark=p.offset)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return message(topics=topics)

    def _JoinGroup(self, version: int, request: Any) -> Any:
        """Respond to a member as the leader of a group of its own, with its last protocol."""
        name = request.protocols[-1].name
        message = registry.message("JoinGroupResponse")
        leader = message.JoinGroupResponseMember(member_id="m-1", metadata=b"")
        return message(
            error_code=self._code(11), protocol_name=name, leader="m-1", member_id="m-1", members=[leader],
            **({"protocol_type": "consumer"} if version >= 7 else {}),
        )  # fmt: skip

    def _ConsumerGroupHeartbeat(self, _version: int, request: Any) -> Any:
        response = registry.message("ConsumerGroupHeartbeatResponse")
        return response(error_code=self._code(68), member_id=request.member_id, assignment=None)

    def _Produce(self, _version: int, request: Any) -> Any:
        message = registry.message("ProduceResponse")
        assert request.acks, "a request without acks is never answered"
        responses = [
            message.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    message.PartitionProduceResponse(index=p.index, error_code=0, base_offset=5, record_errors=[])
                    for p in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        return message(responses=responses, node_endpoints=[])


def _code_of(partitions: int) -> int:
    return 0 if -1 <= partitions <= PARTITIONS_MAX else 37


@dataclass
class _Named:
    name: str
    topic_id: bytes = ZERO_UUID


class Client:
    """One connection (interfaces.Connection)."""

    def __init__(self, cluster: Cluster, node_id: int = UNKNOWN_NODE) -> None:
        self.id, self.node_id, self.client_host = 1, node_id, "127.0.0.1"
        self.is_bootstrap = node_id == UNKNOWN_NODE
        self.slot_values: SlotValues = {}
        self._cluster = cluster

    def send_request(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        with uncounted():
            request = registry.request(key, version).decode(body)
            response = self._cluster.respond(key, version, request)
            return settled(memoryview(registry.response(key, version).encode(response)))

    def on_close(self, callback: Callable[[], None]) -> None:
        """Never closed."""

    def not_on_close(self, callback: Callable[[], None]) -> None:
        """Never closed."""


class World:
    """A proxy that serves views, with one cluster and one client."""

    def __init__(self, options: Views | None = None, timers: ManualTimers | None = None) -> None:
        self.cluster = Cluster()
        self.client = Client(self.cluster)
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.catalog = ViewCatalog()
        self.stored: dict[bytes, bytes | None] = {}
        self.timers = timers or ManualTimers()
        self.store: Any = _Recording(self.catalog, self.stored)
        options = options or Views()
        self.creation = ViewCreation(self.catalog, options, self.store, self.timers, self._note)
        self.services = services.build(
            limits=Limits(),
            timers=self.timers,
            notes=self._note,
            book=AddressBook(20000, "proxy.example", lambda *_: True),
            topology=ClusterMetadata(),
            versions=EffectiveVersions(Offer()),
        )
        self.views = ViewServices(services=self.services, catalog=self.catalog, options=options, creation=self.creation)
        self.served = view_apis.served(self.views)

    def audited(self) -> Audit:
        """Switch audit on."""
        audit = Audit(self.timers, 1000)
        self.views.reads.audit = ViewAudit(audit)
        return audit

    def _note(self, event: str, /, **context: Any) -> None:
        self.notes.append((event, context))

    def noted(self, event: str) -> list[dict[str, Any]]:
        return [context for name, context in self.notes if name == event]

    def frame(self, key: int, version: int, **fields: Any) -> memoryview:
        message = build(f"{registry.API_KEYS[key]}Request", fields)
        return memoryview(frames.request(key, version, CORRELATION, "client", message))[4:]

    def is_served(self, key: int, version: int, **fields: Any) -> bool:
        wants = self.served[key].wants
        return wants is None or wants.matcher(key, version)(self.frame(key, version, **fields))

    def call(self, key: int, version: int, **fields: Any) -> Any:
        """Return the decoded response; None: the request continues to the broker; b"": there is no response."""
        header, request = frames.decode_request(self.frame(key, version, **fields))
        call = Call(key, version, header.correlation_id, header.client_id, request, self.client)
        served = self.served[key]
        if served.picks is not None and not self.run(served.picks(call)):
            return None
        value = self.run(framed(call, self.run(served.handler(call))))
        if not value:
            return value
        correlation_id, response = frames.decode_response(key, version, memoryview(value)[4:])
        assert correlation_id == CORRELATION
        return response

    def run(self, handler: Any) -> Any:
        task: Task[Any] = Task(handler, lambda _: None)
        task.start()
        while not task.finished:
            self.timers.ring()
        if task.error is not None:
            raise task.error
        return task.value

    def ensure(self, *topics: str) -> dict[str, int]:
        return {topic: int(code) for topic, code in self.run(self.creation.ensure(self.client, topics)).items()}

    def metadata(self, *topics: str, version: int = 12, **fields: Any) -> dict[str, Any]:
        response = self.call(3, version, topics=[{"name": topic} for topic in topics], **fields)
        return {topic.name: topic for topic in response.topics}


class _Recording(MemoryViewStore):
    def __init__(self, catalog: ViewCatalog, stored: dict[bytes, bytes | None]) -> None:
        super().__init__(catalog)
        self._stored = stored

    def store(self, key: bytes, value: bytes | None) -> Promise[None]:
        self._stored[key] = value
        return super().store(key, value)


def build(name: str, values: Mapping[str, Any]) -> Any:
    """Build a message from plain values. Entries of lists are mappings."""
    from tests.support.blocking_connection import build as build_message

    return build_message(name, **values)
