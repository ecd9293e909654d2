"""The interfaces of handlers for tests: a clock moved by hand, connections to a small scripted cluster, clients.

The cluster keeps real record batches and serves through our own codec the requests of share groups to a broker:
Metadata, ListOffsets, Fetch with its wait, and the requests about rights. Rules can be changed per test: deny rights,
move leaders, hold responses back, cut connections, make the next response an error.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata
from kafka_share_proxy.brokers.connection_slots import SlotValues
from kafka_share_proxy.durable.interfaces import Journal, JournalRefused
from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import Handler
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.served import services as shared_services
from kafka_share_proxy.forwarding.served.interfaces import Call, ExpectedResponse
from kafka_share_proxy.forwarding.served.upstream_requests import framed
from kafka_share_proxy.loop.promise import Promise, Task, call_soon, on_behalf_of
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
from kafka_share_proxy.wire.codec import frames, headers
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address

WALL_MS = 1_700_000_000_000
HANDLERS = {api.KEY: api.handle for api in (k76, k77, k78, k79, k90, k91, k92)}
ALL_BITS = 3576
"""READ, WRITE, DESCRIBE and the rest on a topic."""
GROUP_BITS = 328
"""READ, DELETE and DESCRIBE on a group."""
NO_BITS = -2147483648
LEADER_EPOCH_SINCE = 4
"""Version of ListOffsets."""


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


class ManualTimers:
    """Timers that ring when the test moves the clock."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._planned: list[tuple[float, int, _ManualTimer]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._now

    def wall_ms(self) -> int:
        return WALL_MS + round((self._now - 1000.0) * 1000)

    def call_at(self, deadline: float, callback: Callable[[], None]) -> _ManualTimer:
        timer = _ManualTimer(callback)
        heapq.heappush(self._planned, (deadline, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Move the clock; what is due on the way rings at its own time."""
        until = self._now + seconds
        for _ in range(100_000):
            if not self._planned or self._planned[0][0] > until:
                break
            deadline, _, timer = heapq.heappop(self._planned)
            self._now = max(self._now, deadline)
            timer.ring()
        else:
            raise AssertionError("timers ring without end")
        self._now = until

    def ring(self) -> None:
        """Move the clock to the next timer."""
        deadlines = [deadline for deadline, _, timer in self._planned if timer.callback is not None]
        assert deadlines, "it waits for what never comes"
        self.advance(max(0.0, min(deadlines) - self._now))

    @property
    def planned(self) -> int:
        """Return how many timers have neither rung nor been cancelled."""
        return sum(timer.callback is not None for _, _, timer in self._planned)


class _ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def ring(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


@dataclass
class Log:
    """One partition."""

    leader: int
    epoch: int = 5
    start: int = 0
    end: int = 0
    stable: int | None = None
    """The last stable offset, where it is not the end."""
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(first offset, last offset, bytes)"""
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """(producer id, first offset)"""
    ends: dict[int, int] = field(default_factory=dict)
    """End offsets of earlier leader epochs in this log: records that a client read beyond them were truncated."""

    def append(
        self,
        count: int,
        *,
        value: bytes = b"v",
        timestamp: int = WALL_MS,
        keys: Sequence[bytes | None] = (),
        **batch: Any,
    ) -> range:
        """Append one record batch. Return its offsets. `keys`: of its first records; the others have none."""
        first = self.end
        padded = [*keys, *[None] * (count - len(keys))]
        batch_records = [records.Record(key, value, timestamp=timestamp) for key in padded]
        data = records.build_batch(first, batch_records, leader_epoch=self.epoch, **batch)
        self.batches.append((first, first + count - 1, data))
        self.end += count
        return range(first, self.end)

    def read(self, offset: int, limit: int, read_committed: bool, *, at_least_one: bool) -> bytes:
        """Return whole batches from the one that holds the offset on."""
        until = self.stable if read_committed and self.stable is not None else self.end
        data = b""
        for _, last, batch in self.batches:
            if last < offset or last >= until:
                continue
            if data + batch and len(data) + len(batch) > limit and (data or not at_least_one):
                break
            data += batch
        return data


@dataclass
class Topic:
    name: str
    topic_id: bytes
    logs: list[Log]
    bits: int = ALL_BITS


class Cluster:
    """Brokers 1..n, their topics, and what the test did to them."""

    def __init__(self, timers: ManualTimers, nodes: int = 3) -> None:
        self.timers = timers
        self.nodes = {node: Address(f"broker{node}.internal", 9092) for node in range(1, nodes + 1)}
        self.topics: dict[str, Topic] = {}
        self.group_errors: dict[str, ErrorCode] = {}
        """Group id -> 30 and the like, for Heartbeat, FindCoordinator, DescribeGroups and OffsetDelete."""
        self.group_responses: dict[int, int] = {}
        """API key -> the error for every group, instead of the usual response."""
        self.topic_errors: dict[str, int] = {}
        """Topic -> the error Metadata gives for it."""
        self.classic_groups: set[str] = set()
        self.consumer_groups: set[str] = set()
        self.fail_next: dict[int, list[ErrorCode]] = {}
        """API key -> errors for the partitions of its next responses."""
        self.scripted = frozenset({1, 2, 3, 10, 12, 15, 47, 69})
        """API keys with the responses below."""
        self.respond_unscripted: Callable[[int, int, Any], Any] = _no_member
        """Function that serves all other requests: (key, version, request)."""
        self.throttle_ms = 0
        self.held: set[int] = set()
        """API keys whose responses wait for `release`."""
        self.requested: list[tuple[int, int, Any]] = []
        """(API key, node id, request) of all there was."""
        self._waiting: list[tuple[Promise[memoryview], Callable[[], memoryview]]] = []
        self._fetches: list[_WaitingFetch] = []
        self._ids = itertools.count(1)

    def create(self, name: str, leaders: Sequence[int] = (1,)) -> Topic:
        topic = Topic(name, next(self._ids).to_bytes(16, "big"), [Log(leader) for leader in leaders])
        self.topics[name] = topic
        return topic

    def produce(self, topic: Topic, count: int, partition: int = 0, **batch: Any) -> range:
        """Append one batch, and respond to the Fetches that wait for it."""
        offsets = topic.logs[partition].append(count, **batch)
        self.wake_fetches()
        return offsets

    def wake_fetches(self) -> None:
        for fetch in list(self._fetches):
            fetch.respond_if_ready()

    def delete_records(self, topic: Topic, before: int, partition: int = 0) -> None:
        log = topic.logs[partition]
        log.start = before
        log.batches = [batch for batch in log.batches if batch[1] >= before]

    def move_leader(self, topic: Topic, node: int, partition: int = 0) -> None:
        topic.logs[partition].leader = node
        topic.logs[partition].epoch += 1
        self.wake_fetches()

    def release(self, *keys: int) -> None:
        """Send the held back responses of these APIs (all, without argument), and hold back no more of them."""
        self.held.difference_update(keys or set(self.held))
        waiting, self._waiting = self._waiting, []
        for promise, response in waiting:
            promise.set(response())

    def count(self, key: int) -> int:
        """Return how many requests of this API have arrived."""
        return sum(request[0] == key for request in self.requested)

    def requests(self, key: int) -> list[Any]:
        return [request for requested_key, _, request in self.requested if requested_key == key]

    def send_request(self, connection: Connection, key: int, version: int, body: bytes) -> Promise[memoryview]:
        request = registry.request(key, version).decode(body)
        self.requested.append((key, connection.node_id, request))
        promise: Promise[memoryview] = Promise()
        if key == 1:
            _WaitingFetch(self, connection, version, request, promise).begin()
            return promise

        def response() -> memoryview:
            return memoryview(registry.response(key, version).encode(self._response(connection, key, version, request)))

        if key in self.held:
            self._waiting.append((promise, response))
        else:
            promise.set(response())
        return promise

    def _response(self, connection: Connection, key: int, version: int, request: Any) -> Any:
        self._version = version
        if key not in self.scripted:
            return self.respond_unscripted(key, version, request)
        return {
            2: self._list_offsets,
            3: self._metadata,
            10: self._find_coordinator,
            12: self._heartbeat,
            15: self._describe_groups,
            47: self._offset_delete,
            69: self._consumer_group_describe,
        }[key](connection, request)

    def _heartbeat(self, connection: Connection, request: Any) -> Any:
        code = self.group_errors.get(request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        return registry.message("HeartbeatResponse")(error_code=self.group_responses.get(12, code))

    def _offset_delete(self, connection: Connection, request: Any) -> Any:
        assert not request.topics, "a question must not delete anything"
        code = self.group_errors.get(request.group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        return registry.message("OffsetDeleteResponse")(error_code=self.group_responses.get(47, code), topics=[])

    def _find_coordinator(self, connection: Connection, request: Any) -> Any:
        message = registry.message("FindCoordinatorResponse")
        coordinators = []
        for group_id in request.coordinator_keys:
            denied = self.group_errors.get(group_id) == ErrorCode.GROUP_AUTHORIZATION_FAILED
            code = self.group_responses.get(10, ErrorCode.GROUP_AUTHORIZATION_FAILED if denied else ErrorCode.NONE)
            coordinators.append(message.Coordinator(key=group_id, node_id=1, host="x", port=1, error_code=code))
        return message(coordinators=coordinators)

    def _describe_groups(self, connection: Connection, request: Any) -> Any:
        message = registry.message("DescribeGroupsResponse")
        groups = []
        for group_id in reversed(request.groups):
            code = self.group_errors.get(group_id, ErrorCode.NONE)
            groups.append(
                message.DescribedGroup(
                    error_code=code,
                    group_id=group_id,
                    group_state="Empty" if group_id in self.classic_groups else "Dead",
                    authorized_operations=GROUP_BITS if request.include_authorized_operations and not code else NO_BITS,
                )
            )
        return message(groups=groups)

    def _consumer_group_describe(self, connection: Connection, request: Any) -> Any:
        message = registry.message("ConsumerGroupDescribeResponse")
        groups = []
        for group_id in request.group_ids:
            held = group_id in self.consumer_groups
            code = ErrorCode.NONE if held else ErrorCode.GROUP_ID_NOT_FOUND
            groups.append(message.DescribedGroup(error_code=code, group_id=group_id))
        return message(groups=groups)

    def _metadata(self, connection: Connection, request: Any) -> Any:
        message = registry.message("MetadataResponse")
        brokers = [
            message.MetadataResponseBroker(node_id=node, host=address.host, port=address.port, rack=None)
            for node, address in self.nodes.items()
        ]
        topics = [self._metadata_topic(message, requested) for requested in request.topics or ()]
        return message(brokers=brokers, cluster_id="c", controller_id=1, topics=topics)

    def _metadata_topic(self, message: Any, requested: Any) -> Any:
        by_id = {topic.topic_id: topic for topic in self.topics.values()}
        topic = self.topics.get(requested.name) if requested.name is not None else by_id.get(requested.topic_id)
        response = message.MetadataResponseTopic
        if topic is not None and topic.name in self.topic_errors:
            return response(error_code=self.topic_errors[topic.name], name=requested.name, topic_id=requested.topic_id)
        if topic is None:
            missing = ErrorCode.UNKNOWN_TOPIC_ID if requested.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return response(error_code=missing, name=requested.name, topic_id=requested.topic_id)
        if not topic.bits:
            hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED  # under the requested name or id, as KafkaApis does
            return response(error_code=hidden, name=requested.name, topic_id=requested.topic_id)
        partitions = [
            message.MetadataResponsePartition(
                partition_index=index,
                leader_id=log.leader,
                leader_epoch=log.epoch,
                replica_nodes=[log.leader],
                isr_nodes=[log.leader],
                offline_replicas=[],
            )
            for index, log in enumerate(topic.logs)
        ]
        return response(
            name=topic.name, topic_id=topic.topic_id, partitions=partitions, topic_authorized_operations=topic.bits
        )

    def _list_offsets(self, connection: Connection, request: Any) -> Any:
        message = registry.message("ListOffsetsResponse")
        topics = []
        for requested in request.topics:
            partitions = [
                self._list_offset(message, connection, self.topics.get(requested.name), partition)
                for partition in requested.partitions
            ]
            topics.append(message.ListOffsetsTopicResponse(name=requested.name, partitions=partitions))
        return message(topics=topics)

    def _list_offset(self, message: Any, connection: Connection, topic: Topic | None, requested: Any) -> Any:
        index = requested.partition_index
        code = self._refusal(2, connection, topic, index, requested.current_leader_epoch, needs=1 << 8)
        if code != ErrorCode.NONE or topic is None:
            return message.ListOffsetsPartitionResponse(partition_index=index, error_code=code, offset=-1)
        log = topic.logs[index]
        offset = {-2: log.start, -1: log.end}.get(requested.timestamp)
        if offset is None:
            offset = next((f for f, _, data in log.batches if _max_timestamp(data) >= requested.timestamp), -1)
        epoch = {"leader_epoch": log.epoch} if self._version >= LEADER_EPOCH_SINCE else {}
        return message.ListOffsetsPartitionResponse(partition_index=index, offset=offset, **epoch)

    def _refusal(
        self, key: int, connection: Connection, topic: Topic | None, index: int, epoch: int, needs: int
    ) -> ErrorCode:
        if self.fail_next.get(key):
            return self.fail_next[key].pop(0)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not topic.bits & needs:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not 0 <= index < len(topic.logs):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        log = topic.logs[index]
        if log.leader != connection.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if 0 <= epoch < log.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > log.epoch else ErrorCode.NONE


def _no_member(key: int, version: int, request: Any) -> Any:
    raise AssertionError(f"nobody answers {registry.API_KEYS[key]} v{version} here: {request}")


def _max_timestamp(batch: bytes) -> int:
    return next(records.iter_batches(batch)).max_timestamp


class _WaitingFetch:
    """A Fetch at the broker, until it has bytes or its wait is over."""

    def __init__(
        self, cluster: Cluster, connection: Connection, version: int, request: Any, promise: Promise[memoryview]
    ) -> None:
        self.cluster, self.connection, self.version, self.request = cluster, connection, version, request
        self.promise = promise
        self.timer: _ManualTimer | None = None

    def begin(self) -> None:
        timers = self.cluster.timers
        self.cluster._fetches.append(self)
        self.timer = timers.call_at(timers.now() + self.request.max_wait_ms / 1000, self.end)
        self.respond_if_ready()
        if not self.promise.done and self.request.max_wait_ms == 0:
            self.end()

    def respond_if_ready(self) -> None:
        response = self._response()
        partitions = [p for topic in response.responses for p in topic.partitions]
        if any(p.error_code for p in partitions) or sum(len(p.records) for p in partitions) >= self.request.min_bytes:
            self._send(response)

    def end(self) -> None:
        if not self.promise.done:
            self._send(self._response())

    def _send(self, response: Any) -> None:
        if self not in self.cluster._fetches:
            return
        self.cluster._fetches.remove(self)
        if self.timer is not None:
            self.timer.cancel()
        body = memoryview(registry.response(1, self.version).encode(response))
        if 1 in self.cluster.held:
            self.cluster._waiting.append((self.promise, lambda: body))
        elif self.connection.open:
            self.promise.set(body)

    def _response(self) -> Any:
        message = registry.message("FetchResponse")
        remaining, topics = self.request.max_bytes, []
        by_id = {topic.topic_id: topic for topic in self.cluster.topics.values()}
        for requested in self.request.topics:
            topic = by_id.get(requested.topic_id) if self.version >= 13 else self.cluster.topics.get(requested.topic)
            partitions = []
            for partition in requested.partitions:
                entry = self._partition(message, topic, partition, remaining)
                remaining -= len(entry.records)
                partitions.append(entry)
            topics.append(
                message.FetchableTopicResponse(
                    topic=requested.topic, topic_id=requested.topic_id, partitions=partitions
                )
            )
        return message(throttle_time_ms=self.cluster.throttle_ms, responses=topics)

    def _partition(self, message: Any, topic: Topic | None, requested: Any, remaining: int) -> Any:
        index = requested.partition
        code = self.cluster._refusal(1, self.connection, topic, index, requested.current_leader_epoch, needs=1 << 3)
        entry = message.PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=b"")
        if code != ErrorCode.NONE or topic is None:
            return entry
        log = topic.logs[index]
        if 0 <= log.ends.get(requested.last_fetched_epoch, -1) < requested.fetch_offset:
            epoch = requested.last_fetched_epoch
            entry.diverging_epoch = message.EpochEndOffset(epoch=epoch, end_offset=log.ends[epoch])
            return entry
        if not log.start <= requested.fetch_offset <= log.end:
            entry.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return entry
        committed = bool(self.request.isolation_level)
        entry.high_watermark, entry.log_start_offset = log.end, log.start
        if committed:
            entry.aborted_transactions = [
                message.AbortedTransaction(producer_id=pid, first_offset=first) for pid, first in log.aborted
            ]
        limit = min(requested.partition_max_bytes, max(remaining, 0))
        entry.records = log.read(
            requested.fetch_offset, limit, committed, at_least_one=remaining == self.request.max_bytes
        )
        return entry


class Connection:
    """A client connection with its upstream connection (interfaces.Connection); owns the callbacks of its requests."""

    _ids = itertools.count(1)

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.id = next(self._ids)
        self.node_id = node_id
        self.client_host = "10.1.2.3"
        self.slot_values: SlotValues = {}
        self.open = True
        self.tasks: list[Task[Any]] = []
        self.serve_repeated: Callable[[Any, memoryview], bool] | None = None
        self._cluster = cluster
        self._requested: list[Promise[memoryview]] = []
        self._on_close: list[Callable[[], None]] = []

    @property
    def is_bootstrap(self) -> bool:
        return self.node_id == UNKNOWN_NODE

    def send_request(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        assert self.open, "asked on a closed connection"
        promise = self._cluster.send_request(self, key, version, body)
        self._requested = [requested for requested in self._requested if not requested.done] + [promise]
        return promise

    def on_close(self, callback: Callable[[], None]) -> None:
        self._on_close.append(callback)

    def not_on_close(self, callback: Callable[[], None]) -> None:
        self._on_close.remove(callback)

    @property
    def is_watched(self) -> bool:
        """True if a callback is registered for its end."""
        return bool(self._on_close)

    def call_soon(self, callback: Callable[[], object]) -> None:
        call_soon(self, callback)

    def failed(self, error: Exception) -> None:
        raise error

    # SynchronousFastPath

    @property
    def owner(self) -> Connection:
        return self

    def send_at_once(self, request: Any, correlation_id: int, expected: ExpectedResponse, frame: bytes) -> None:
        self.fast_path_response: Promise[bytes] = Promise()
        header, body_at = headers.decode_request_header(memoryview(frame)[4:])
        assert header.correlation_id == correlation_id
        assert len(frame) == 4 + int.from_bytes(frame[:4], "big")
        requested = self.send_request(header.key, header.version, frame[4 + body_at :])
        requested.on_settled(partial(self._on_response, header, expected, requested), self)

    def _on_response(
        self, header: headers.RequestHeader, expected: ExpectedResponse, requested: Promise[memoryview]
    ) -> None:
        try:
            body = requested.result()
        except UpstreamLost as error:
            expected.lost()
            self.fast_path_response.fail(error)
            return
        head = headers.encode_response_header(header.key, header.version, header.correlation_id)
        size = (len(head) + len(body)).to_bytes(4, "big")
        received = bytearray(size + head + body)
        if expected.on_response(memoryview(received)):
            self.fast_path_response.set(bytes(received))
        received[:] = bytes(len(received))  # the receive buffer is used again

    def immediate_response(self, frame: bytes) -> None:
        self.fast_path_response.set(frame)

    def forwards_response(self) -> bool:
        return True

    async def taken_response(self) -> bytes:
        """Return what the client gets for the request that was taken."""
        return await self.fast_path_response

    def close(self) -> None:
        """Disconnect the client: its handler is cancelled, its requests fail, then the callbacks run."""
        self.open = False
        for task in self.tasks:
            task.cancel()
        self.lose_upstream()
        for callback in self._on_close:
            on_behalf_of(self, callback)

    def lose_upstream(self) -> None:
        """Fail the requests in flight, as when the broker closes the connection."""
        for promise in self._requested:
            on_behalf_of(self, partial(promise.fail, UpstreamLost("the broker closed the connection")))


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


__all__ = ["UNKNOWN_NODE", "Acks", "Cluster", "Connection", "Log", "Member", "Reply", "Topic", "World"]
