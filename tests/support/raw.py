"""Requests by hand, on the project's own codec: what stock clients would never send, and what they hide.

`Raw` knows one cluster by its bootstrap address and follows Metadata to leaders and coordinators.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.values import Address

from tests.support.blocking_connection import Connection, build

KEYS = {name: key for key, name in registry.API_KEYS.items()}
GROUP_RESOURCE, TOPIC_RESOURCE, BROKER_RESOURCE = 32, 2, 4
SET, DELETE = 0, 1
LIMIT_S = 60.0
"""How long anything that must come about may take: generous, for a starved machine is no failure."""


class RawError(AssertionError):
    """A request that prepares a test got an error."""


@dataclass(frozen=True)
class Topic:
    name: str
    topic_id: bytes
    leaders: Mapping[int, int]
    """Partition to node id."""


def address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port))


def until(condition: Callable[[], Any], description: str, limit_s: float = LIMIT_S, pause_s: float = 0.05) -> Any:
    """Return what the condition returns once that is true; raises TimeoutError."""
    end = time.monotonic() + limit_s
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {limit_s:.0f} s for {description}")
        time.sleep(pause_s)
    return value


class Raw:
    """One cluster (or proxy) seen with raw requests. Not for several threads."""

    def __init__(self, bootstrap: str, client_id: str = "raw", sasl: tuple[str, str] | None = None) -> None:
        self.bootstrap = [address(text) for text in bootstrap.split(",")]
        self._client_id = client_id
        self._sasl = sasl
        self._connections: list[Connection] = []
        self._shared_connections: dict[Address, Connection] = {}

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    # Connections

    def connect(self, to: Address | None = None) -> Connection:
        """Return a new connection, authenticated if that is required."""
        connection = Connection(to or self.bootstrap[0], self._client_id)
        self._connections.append(connection)
        if self._sasl is not None:
            authenticate(connection, *self._sasl)
        return connection

    def kept(self, to: Address | None = None) -> Connection:
        """Return the shared connection to that address, for requests without one of their own."""
        to = to or self.bootstrap[0]
        if to not in self._shared_connections:
            self._shared_connections[to] = self.connect(to)
        return self._shared_connections[to]

    def node(self, node_id: int) -> Address:
        """Return where Metadata says that broker is."""
        return self.brokers()[node_id]

    def send_request(self, api: str, version: int, *, on: Connection | None = None, **values: Any) -> Any:
        """Ask the API of that name, by default on a kept connection to the first bootstrap server."""
        return (on or self.kept()).send_request(KEYS[api], version, build(f"{api}Request", **values))

    # Cluster

    def brokers(self) -> dict[int, Address]:
        response = self.send_request("Metadata", 12, topics=[], allow_auto_topic_creation=False)
        return {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}

    def view(self, name: str) -> Topic | None:
        """Return the topic of a view, created if it is missing, once every partition has a leader."""
        partitions = [{"partition_index": 0, "timestamp": -2, "current_leader_epoch": -1}]
        topics = [{"name": name, "partitions": partitions}]
        self.send_request("ListOffsets", 7, replica_id=-1, isolation_level=0, topics=topics)
        return self.topic(name)

    def topic(self, name: str) -> Topic | None:
        """Return the topic if it exists and every partition has a leader, or a view that a reader would be shown."""
        response = self.send_request("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False).topics[0]
        leaders = {partition.partition_index: partition.leader_id for partition in response.partitions}
        if response.error_code or not leaders or -1 in leaders.values():
            return None
        return Topic(name, bytes(response.topic_id), leaders)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
    ) -> Topic:
        """Create it and wait until its leaders take records."""
        requested: dict[str, Any] = {"name": name, "num_partitions": partitions, "replication_factor": -1}
        if assignments:
            requested |= {"num_partitions": -1, "assignments": [
                {"partition_index": index, "broker_ids": list(ids)} for index, ids in assignments.items()
            ]}  # fmt: skip
        requested["configs"] = [{"name": key, "value": value} for key, value in (configs or {}).items()]
        response = self.send_request("CreateTopics", 7, topics=[requested]).topics[0]
        _check(response, f"create topic {name}")
        return self.wait_for_leaders(name, len(assignments) if assignments else partitions)

    def wait_for_leaders(self, name: str, partitions: int) -> Topic:
        """Wait until the leaders of a new topic are known, and know of it.

        Until then a leader refuses records, which a producer without acks does not notice.
        """
        topic: Topic = until(lambda: _whole(self.topic(name), partitions), f"leaders of {name}")
        for index in topic.leaders:
            until(partial(self._has_no_records, topic, index), f"leader of {name}-{index}")
        return topic

    def add_partitions(self, topic: Topic, count: int) -> Topic:
        response = self.send_request(
            "CreatePartitions", 3, topics=[{"name": topic.name, "count": count, "assignments": None}], timeout_ms=10_000
        )
        _check(response.results[0], f"add partitions to {topic.name}")
        grown: Topic = until(lambda: _whole(self.topic(topic.name), count), f"leaders of {topic.name}")
        for index in grown.leaders:
            until(partial(self._has_a_leader, grown, index), f"leader of {topic.name}-{index}")
        return grown

    def _has_no_records(self, topic: Topic, partition: int) -> bool:
        return self.end_offset(topic, partition) == 0

    def _has_a_leader(self, topic: Topic, partition: int) -> bool:
        return self.end_offset(topic, partition) >= 0

    def delete_topic(self, topic: Topic) -> None:
        response = self.send_request("DeleteTopics", 5, topic_names=[topic.name], timeout_ms=10_000)
        _check(response.responses[0], f"delete topic {topic.name}")
        until(lambda: self.topic(topic.name) is None, f"{topic.name} to be gone")

    def end_offset(self, topic: Topic, partition: int = 0) -> int:
        """Return the latest offset; -1 if the leader does not return one."""
        requested = {"partition_index": partition, "timestamp": -1}
        response = self.send_request(
            "ListOffsets", 7, on=self._leader(topic, partition), replica_id=-1,
            topics=[{"name": topic.name, "partitions": [requested]}],
        ).topics[0].partitions[0]  # fmt: skip
        return -1 if response.error_code else response.offset

    def delete_records(self, topic: Topic, before: int, partition: int = 0) -> None:
        """Move the log start offset."""
        part = {"partition_index": partition, "offset": before}
        response = self.send_request(
            "DeleteRecords", 2, on=self._leader(topic, partition), timeout_ms=10_000,
            topics=[{"name": topic.name, "partitions": [part]}],
        )  # fmt: skip
        _check(response.topics[0].partitions[0], f"delete records of {topic.name}")

    def produce(self, topic: Topic, *batches: int | Sequence[bytes], partition: int = 0, acks: int = -1) -> int:
        """Append record batches: each a count of records or their values; return the first base offset."""
        first = None
        for batch in batches:
            values = [b"record %d" % number for number in range(batch)] if isinstance(batch, int) else batch
            now = int(time.time() * 1000)
            data = records.build_batch(0, [records.Record(value=value, timestamp=now) for value in values])
            base = self.append(topic, data, partition, acks)
            first = base if first is None else first
        return first if first is not None else -1

    def append(self, topic: Topic, data: bytes, partition: int = 0, acks: int = -1) -> int:
        response = self.send_request(
            "Produce", 9, on=self._leader(topic, partition), acks=acks, timeout_ms=10_000,
            topic_data=[{"name": topic.name, "partition_data": [{"index": partition, "records": data}]}],
        ).responses[0].partition_responses[0]  # fmt: skip
        _check(response, f"produce to {topic.name}-{partition}")
        return int(response.base_offset)

    def read(self, topic: Topic, partition: int = 0) -> bytes:
        """Return up to 1 MiB of the first segment of the log, read from its leader."""
        requested = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        response = self.send_request(
            "Fetch", 12, on=self._leader(topic, partition), max_wait_ms=0, min_bytes=0, session_epoch=-1,
            topics=[{"topic": topic.name, "partitions": [requested]}],
        ).responses[0].partitions[0]  # fmt: skip
        _check(response, f"read {topic.name}-{partition}")
        return bytes(response.records or b"")

    def _leader(self, topic: Topic, partition: int) -> Connection:
        return self.kept(self.node(topic.leaders[partition]))

    # Groups

    def coordinator(self, group: str) -> Address:
        """Return the address of its coordinator; any broker for a group without the right, to see its response."""

        def find() -> Any:
            entry = self.send_request("FindCoordinator", 4, key_type=0, coordinator_keys=[group]).coordinators[0]
            return None if entry.error_code in (14, 15) else entry

        entry = until(find, f"coordinator of {group}")
        if entry.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return min(self.brokers().items())[1]
        _check(entry, f"coordinator of {group}")
        return Address(entry.host, entry.port)

    def on_coordinator(self, group: str) -> Connection:
        return self.kept(self.coordinator(group))

    def configure_group(self, group: str, values: Mapping[str, str | None]) -> None:
        """Set the settings of a group (None takes one back) and wait until the broker has heard of them."""
        _check(self.try_configure(GROUP_RESOURCE, group, values), f"configure group {group}")

        def received() -> bool:
            now = self.describe(GROUP_RESOURCE, group)
            return all(value is None or now[key] == value for key, value in values.items())

        until(received, f"the settings of group {group}")

    def share_start_offset(self, group: str, topic: str, partition: int = 0) -> int:
        """Return the start offset of a share partition, or -1 if it is not known."""
        topics = [{"topic_name": topic, "partitions": [partition]}]
        response = self.send_request(
            "DescribeShareGroupOffsets",
            1,
            on=self.on_coordinator(group),
            groups=[{"group_id": group, "topics": topics}],
        )
        return max((p.start_offset for t in response.groups[0].topics for p in t.partitions), default=-1)

    def describe(self, kind: int, name: str, on: Connection | None = None) -> dict[str, str | None]:
        """Return the settings of a resource."""
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        response = self.send_request("DescribeConfigs", 4, on=on, resources=[resource]).results[0]
        _check(response, f"describe {name}")
        return {config.name: config.value for config in response.configs}

    def try_configure(self, kind: int, name: str, values: Mapping[str, str | None]) -> Any:
        configs = [
            {"name": key, "config_operation": DELETE if value is None else SET, "value": value}
            for key, value in values.items()
        ]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        return self.send_request("IncrementalAlterConfigs", 1, resources=[resource]).responses[0]


def authenticate(connection: Connection, user: str, password: str) -> None:
    """Authenticate with SASL PLAIN. Raises RawError."""
    shaken = connection.send_request(17, 1, build("SaslHandshakeRequest", mechanism="PLAIN"))
    _check(shaken, "SASL handshake")
    token = f"\0{user}\0{password}".encode()
    _check(connection.send_request(36, 2, build("SaslAuthenticateRequest", auth_bytes=token)), f"authenticate {user}")


def _whole(topic: Topic | None, count: int) -> Topic | None:
    return topic if topic is not None and len(topic.leaders) == count else None


def _check(response: Any, api: str) -> None:
    if response.error_code:
        raise RawError(f"{api}: error {response.error_code} {getattr(response, 'error_message', '')}")


def values_of(data: Any) -> Iterable[tuple[int, bytes | None]]:
    """Yield (offset, value) of all records in a records field, markers of transactions left out."""
    view = memoryview(data or b"")
    for batch in records.iter_batches(view):
        if not batch.is_control:
            for record in records.decode_records(view[batch.position : batch.end]):
                yield record.offset, record.value
