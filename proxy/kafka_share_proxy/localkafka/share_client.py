"""A small blocking share consumer with lock renewal (KIP-932, KIP-1222), for the demonstration and for experiments.

    with ShareClient("127.0.0.1:9092", "group", ["topic"]) as client:
        for record in client.poll(5):
            client.acknowledge([record], RENEW)      # restarts the acquisition lock
            client.acknowledge([record], ACCEPT)

Use it from one thread. It sends heartbeats inside `poll` and `acknowledge`, so call one of them every few seconds.
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from kafka_share_proxy.localkafka.connection import Connection, build
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.values import Address

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4

FIND_COORDINATOR, METADATA, SHARE_GROUP_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 10, 3, 76, 78, 79
_VERSIONS = {FIND_COORDINATOR: 4, METADATA: 12, SHARE_GROUP_HEARTBEAT: 1, SHARE_FETCH: 2, SHARE_ACKNOWLEDGE: 2}

MAX_WAIT_S = 0.5
"""Seconds that a broker may hold one fetch."""
JOIN_S = 15.0
"""Seconds that the group may take to assign partitions to this member."""


class ShareError(Exception):
    """A broker returned an error. The text names the error and the request."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else "unknown"
        super().__init__(f"{what}: error {code} ({name}){f', {message}' if message else ''}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Record:
    """A record whose acquisition lock this member holds."""

    topic: str
    partition: int
    offset: int
    delivery_count: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class _Node:
    """The share session with one broker."""

    connection: Connection
    epoch: int = 0
    partitions: set[tuple[bytes, int]] = field(default_factory=set)
    """Topic ids and partitions in the session."""

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == 0x7FFFFFFF else self.epoch + 1


class ShareClient:
    """A member of a share group in explicit mode: the caller acknowledges every record."""

    def __init__(
        self, bootstrap: str, group: str, topics: Sequence[str], *, max_records: int = 500, member_id: str = ""
    ) -> None:
        """Prepare a member. `member_id`: must be unique in the group; empty for a random one, as in Kafka's clients."""
        self.member_id = member_id or base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        self.lock_duration_s = 0.0
        """Lock duration of the last response; 0 before the first."""
        self._group, self._topics, self._max_records = group, list(topics), max_records
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self._bootstrap = Connection(Address(host, int(port)))
        self._coordinator: Connection | None = None
        self._member_epoch = 0
        self._next_heartbeat = 0.0
        self._nodes: dict[int, _Node] = {}
        self._names: dict[bytes, str] = {}
        self._assigned: set[tuple[bytes, int]] = set()
        self._leader_of: dict[tuple[bytes, int], int] = {}
        """Leader by partition. Includes partitions no longer assigned, because this member may still hold
        records of them.
        """
        self._led: dict[int, list[tuple[bytes, int]]] = {}
        """Assigned partitions by the node id of their leader."""

    def __enter__(self) -> ShareClient:
        """Join the group."""
        try:
            self.join()
        except BaseException:
            self._disconnect()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the group. Records still held are released."""
        self.close()

    def join(self) -> None:
        """Join the group and wait until partitions are assigned. Raises ShareError, TimeoutError."""
        end = time.monotonic() + JOIN_S
        self._heartbeat(0)
        while not self._assigned:
            if time.monotonic() > end:
                raise TimeoutError(f"group {self._group} assigned nothing within {JOIN_S:.0f} s")
            time.sleep(0.1)
            self._heartbeat(self._member_epoch)

    def poll(self, timeout_s: float) -> list[Record]:
        """Return the records acquired, or an empty list after timeout_s. Raises ShareError, OSError."""
        end = time.monotonic() + timeout_s
        while True:
            self._heartbeat_if_due()
            found = [record for node_id in list(self._led) for record in self._fetch(node_id, end)]
            if found or time.monotonic() >= end:
                return found

    def acknowledge(self, held: Iterable[Record], kind: int) -> None:
        """ACCEPT, RELEASE, REJECT or RENEW these records now. Raises ShareError if this member no longer holds
        one of them.
        """
        self._heartbeat_if_due()
        ids = {name: topic_id for topic_id, name in self._names.items()}
        by_node: dict[int, list[tuple[bytes, int, int]]] = {}
        for record in held:
            place = (ids[record.topic], record.partition)
            by_node.setdefault(self._leader_of[place], []).append((*place, record.offset))
        for node_id, offsets in by_node.items():
            self._acknowledge(self._nodes[node_id], offsets, kind)

    def close(self) -> None:
        """Close the sessions, which releases the records held, and leave the group."""
        try:
            for node in self._nodes.values():
                if node.epoch:
                    node.epoch = -1
                    self._request_share(node, SHARE_ACKNOWLEDGE, topics=[])
            if self._member_epoch > 0:
                self._heartbeat(-1)
        finally:
            self._disconnect()

    def _disconnect(self) -> None:
        for connection in (self._bootstrap, self._coordinator, *(node.connection for node in self._nodes.values())):
            if connection is not None:
                connection.close()

    # Membership

    def _heartbeat_if_due(self) -> None:
        if time.monotonic() >= self._next_heartbeat:
            self._heartbeat(self._member_epoch)

    def _heartbeat(self, epoch: int) -> None:
        if self._coordinator is None:
            self._coordinator = self._find_coordinator()
        topics = self._topics if epoch == 0 else None
        response = self._query(
            self._coordinator, SHARE_GROUP_HEARTBEAT, "ShareGroupHeartbeatRequest",
            group_id=self._group, member_id=self.member_id, member_epoch=epoch, subscribed_topic_names=topics,
        )  # fmt: skip
        if response.error_code:
            raise ShareError(f"heartbeat of group {self._group}", response.error_code, response.error_message)
        self._member_epoch = response.member_epoch
        self._next_heartbeat = time.monotonic() + response.heartbeat_interval_ms / 1000
        if response.assignment is not None and epoch >= 0:
            named = response.assignment.topic_partitions
            self._assigned = {(bytes(each.topic_id), index) for each in named for index in each.partitions}
            self._led = self._leaders()

    def _find_coordinator(self) -> Connection:
        found = self._query(
            self._bootstrap, FIND_COORDINATOR, "FindCoordinatorRequest", key_type=0, coordinator_keys=[self._group]
        ).coordinators[0]
        if found.error_code:
            raise ShareError(f"coordinator of group {self._group}", found.error_code, found.error_message)
        return Connection(Address(found.host, found.port))

    def _leaders(self) -> dict[int, list[tuple[bytes, int]]]:
        """Look up the leaders of the assigned partitions, and connect to new ones."""
        response = self._query(
            self._bootstrap, METADATA, "MetadataRequest",
            topics=[{"name": name} for name in self._topics], allow_auto_topic_creation=False,
        )  # fmt: skip
        brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        led: dict[int, list[tuple[bytes, int]]] = {}
        for topic in response.topics:
            self._names[bytes(topic.topic_id)] = topic.name
            for partition in topic.partitions:
                place = (bytes(topic.topic_id), partition.partition_index)
                if place in self._assigned and partition.leader_id in brokers:
                    led.setdefault(partition.leader_id, []).append(place)
                    self._leader_of[place] = partition.leader_id
        for node_id in led.keys() - self._nodes.keys():
            self._nodes[node_id] = _Node(Connection(brokers[node_id]))
        return led

    # Records

    def _fetch(self, node_id: int, end: float) -> Iterator[Record]:
        node, wanted = self._nodes[node_id], set(self._led[node_id])
        wait_s = max(0.0, min(MAX_WAIT_S, end - time.monotonic()))
        response = self._request_share(
            node, SHARE_FETCH, topics=_topics((*place, None) for place in wanted - node.partitions),
            forgotten_topics_data=_forgotten(node.partitions - wanted), max_wait_ms=int(wait_s * 1000), min_bytes=1,
            max_bytes=1 << 20, max_records=self._max_records, batch_size=self._max_records, share_acquire_mode=1,
        )  # fmt: skip
        node.partitions = wanted
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.error_code:
                    raise ShareError(f"fetch of partition {partition.partition_index}", partition.error_code)
                yield from _records(self._names[bytes(topic.topic_id)], partition)

    def _acknowledge(self, node: _Node, offsets: list[tuple[bytes, int, int]], kind: int) -> None:
        response = self._request_share(
            node, SHARE_ACKNOWLEDGE, is_renew_ack=kind == RENEW, topics=_topics(offsets, kind)
        )
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.error_code:
                    what = f"acknowledgement in {self._names[bytes(topic.topic_id)]}-{partition.partition_index}"
                    raise ShareError(what, partition.error_code, partition.error_message)

    def _request_share(self, node: _Node, key: int, **values: Any) -> Any:
        name = "ShareFetchRequest" if key == SHARE_FETCH else "ShareAcknowledgeRequest"
        response = self._query(
            node.connection, key, name,
            group_id=self._group, member_id=self.member_id, share_session_epoch=node.epoch, **values,
        )  # fmt: skip
        if response.error_code:
            raise ShareError(name.removesuffix("Request"), response.error_code, response.error_message)
        if node.epoch >= 0:
            node.advance()
        self.lock_duration_s = response.acquisition_lock_timeout_ms / 1000
        return response

    @staticmethod
    def _query(connection: Connection, key: int, name: str, **values: Any) -> Any:
        return connection.send_request(key, _VERSIONS[key], build(name, **values))


def _topics(places: Iterable[tuple[bytes, int, int | None]], kind: int = 0) -> list[dict[str, Any]]:
    """Build the topics of a share request: partitions with acknowledged offsets, if any, adjacent offsets as one
    batch.
    """
    topics: dict[bytes, dict[int, list[dict[str, Any]]]] = {}
    for topic_id, partition, offset in sorted(places, key=lambda place: (place[0], place[1], place[2] or 0)):
        batches = topics.setdefault(topic_id, {}).setdefault(partition, [])
        if batches and offset == batches[-1]["last_offset"] + 1:
            batches[-1]["last_offset"] = offset
        elif offset is not None:
            batches.append({"first_offset": offset, "last_offset": offset, "acknowledge_types": [kind]})
    return [
        {
            "topic_id": topic_id,
            "partitions": [
                {"partition_index": index, "acknowledgement_batches": batches} for index, batches in partitions.items()
            ],
        }
        for topic_id, partitions in topics.items()
    ]


def _forgotten(places: set[tuple[bytes, int]]) -> list[dict[str, Any]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(places):
        topics.setdefault(topic_id, []).append(partition)
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()]


def _records(topic: str, partition: Any) -> Iterator[Record]:
    """Yield only acquired records. A response contains whole batches, of which other records are not acquired."""
    counts = {
        offset: acquired.delivery_count
        for acquired in partition.acquired_records
        for offset in range(acquired.first_offset, acquired.last_offset + 1)
    }
    data = memoryview(partition.records or b"")
    for batch in records.iter_batches(data):
        for read in records.decode_records(data[batch.position : batch.end]):
            if read.offset in counts:
                yield Record(topic, partition.partition_index, read.offset, counts[read.offset], read.key, read.value)
