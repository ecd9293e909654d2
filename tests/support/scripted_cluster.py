"""A small cluster in memory, and connections of clients to it.

The cluster keeps real record batches and serves through our own codec the requests of share groups to a broker:
Metadata, ListOffsets, Fetch with its wait, and the requests about rights. Rules can be changed per test: deny rights,
move leaders, hold responses back, cut connections, make the next response an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kafka_share_proxy.brokers.connection_slots import SlotValues
from kafka_share_proxy.forwarding.served.interfaces import ExpectedResponse, RepeatableRequest
from kafka_share_proxy.loop.promise import Promise, Task, call_soon, on_behalf_of
from kafka_share_proxy.wire.codec import headers
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address

from tests.support.manual_timers import WALL_MS, ManualTimer, ManualTimers

ALL_BITS = 3576
"""READ, WRITE, DESCRIBE and the rest on a topic."""
GROUP_BITS = 328
"""READ, DELETE and DESCRIBE on a group."""
NO_BITS = -2147483648
LEADER_EPOCH_SINCE = 4
"""Version of ListOffsets."""


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
        """Send the responses of these APIs that were held back (default: of all APIs), and hold back no more."""
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
        self.timer: ManualTimer | None = None

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
        self.repeated: RepeatableRequest | None = None
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
        received = size + head + body
        if expected.on_response(received):
            self.fast_path_response.set(received)

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
