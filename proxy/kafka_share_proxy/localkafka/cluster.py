"""Real Kafka brokers on this machine: KRaft, one or several nodes, with 512 MB and a folder for each.

    with Cluster("3.9.1", Path("somewhere")) as kafka:
        print(kafka.bootstrap)

Every node has three listeners on 127.0.0.1: for clients (PLAINTEXT, or SASL_PLAINTEXT with an authorizer), for the
other nodes and for the controller quorum. A separate controller is one more process, which is not a broker.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType

from kafka_share_proxy.localkafka import storage_format
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.class_archive import archive_options
from kafka_share_proxy.localkafka.jars import class_path
from kafka_share_proxy.localkafka.java import QUICK_START, find_java

START_S = 240.0
"""Seconds to become ready; 3 s on an idle machine."""

ARCHIVE_S = 60.0
"""Seconds to end while a broker writes an archive of its classes."""
SMALL = (*QUICK_START, "-Xms128m", "-Xmx512m")
"""Java options for a broker that runs for a few minutes."""

_DEFAULTS = {
    "auto.leader.rebalance.enable": "false",
    "background.threads": "2",
    "controlled.shutdown.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "log.segment.bytes": str(64 << 20),
    "num.io.threads": "4",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "metadata.max.idle.interval.ms": "0",  # a record each 500 ms is half of the CPU of an idle broker
}
_KAFKA_3 = {"group.coordinator.rebalance.protocols": "classic,consumer"}  # the default of Kafka 4
_SHARE_DEFAULTS = {"share.coordinator.state.topic.num.partitions": "3"}


class BrokerError(Exception):
    """A broker did not start, or ended unexpectedly."""


@dataclass(frozen=True)
class Sasl:
    """SASL PLAIN for clients, with the StandardAuthorizer: users with their passwords, and the super user."""

    users: Mapping[str, str]
    super_user: str


@dataclass
class Node:
    """One broker (and controller) process."""

    node_id: int
    folder: Path
    port: int
    """Port of the clients' listener."""
    internal_port: int
    controller_port: int
    relayed_port: int
    command: list[str] = field(default_factory=list)
    child: Child | None = None

    @property
    def address(self) -> str:
        """Address of the clients' listener."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"

    @property
    def running(self) -> bool:
        """True if the process is running."""
        return self.child is not None and self.child.status is None

    def start(self) -> None:
        """Start without waiting. `Cluster.wait_ready` waits until it serves."""
        self.child = Child(self.command, self.log)

    def stop(self) -> None:
        """Shut down gracefully: leadership moves first."""
        if self.child is not None:
            self.child.stop()

    def kill(self) -> None:
        """Crash the broker."""
        if self.child is not None:
            self.child.kill()

    def suspend(self) -> None:
        """Send SIGSTOP. To others it looks like a lost machine, because no connection closes."""
        if self.child is not None:
            self.child.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the process."""
        if self.child is not None:
            self.child.signal(signal.SIGCONT)


class Cluster:
    """A Kafka cluster of `nodes` nodes with the ids first_id, first_id + 1, ...

    `release` is a name in jars.toml. `properties` are added to those of every node. `features` are passed to the
    storage format ("share.version=0"). `java_options` are passed to the brokers: FULL_SPEED for measurements; None
    for SMALL, with classes from an archive that the first such broker of a release makes. `plugins` are folders of
    classes for their class path. If a relay listens on `relay_port` and forwards to `relayed_port` of the only
    node, its clients receive only the relay's address. With `controller_apart`, a separate node is the only
    controller, which keeps running while brokers end; otherwise every node is both. `stop` keeps the folder; a
    context manager removes it unless an exception was raised.
    """

    def __init__(
        self,
        release: str,
        folder: Path,
        *,
        nodes: int = 1,
        first_id: int = 1,
        properties: Mapping[str, str] | None = None,
        features: Sequence[str] = (),
        sasl: Sasl | None = None,
        java_options: Sequence[str] | None = None,
        relay_port: int | None = None,
        plugins: Sequence[Path] = (),
        controller_apart: bool = False,
    ) -> None:
        self.release = release
        self.folder = folder
        self.sasl = sasl
        self._properties = dict(properties or {})
        self._features = features
        self._java_options = java_options
        self._relay_port = relay_port
        self._plugins = plugins
        started = nodes + controller_apart
        ports = free_ports(4 * started)
        started_nodes = [
            Node(first_id + i, folder / f"node-{first_id + i}", *ports[i::started]) for i in range(started)
        ]
        self.nodes = started_nodes[:nodes]
        """The brokers."""
        self.controller = started_nodes[nodes] if controller_apart else None

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    @property
    def _started(self) -> list[Node]:
        return self.nodes if self.controller is None else [self.controller, *self.nodes]

    def node(self, node_id: int) -> Node:
        """Return the broker with this id."""
        return next(node for node in self.nodes if node.node_id == node_id)

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the cluster. After an exception the folder is kept for inspection."""
        self.stop()
        if error is None:
            self.remove()

    def start(self) -> None:
        """Start all nodes, and wait until they serve. Raises BrokerError."""
        archive = _archived(self.release) if self._java_options is None else ()
        for node in self._started:
            self._format(node, [find_java(), *QUICK_START, *archive, "-cp", self._class_path()])
            node.command = self._command(node)
            node.start()
        self.wait_ready()

    def upgrade(self, release: str) -> Iterator[Node]:
        """Start one node after the other in the other release, in its folder. Yield each node that was started."""
        self.release = release
        for node in self._started:
            node.stop()
            _settings(node).write_text("".join(f"{key}={value}\n" for key, value in self._node_properties(node)))
            node.command = self._command(node)
            node.start()
            self.wait_ready()
            yield node

    def _class_path(self) -> str:
        return os.pathsep.join((class_path(self.release), *map(str, self._plugins)))

    def _command(self, node: Node) -> list[str]:
        archive = _archived(self.release) if self._java_options is None else ()
        options = (*SMALL, *archive) if self._java_options is None else self._java_options
        return [
            find_java(), *options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=error", "-cp", self._class_path(),
            "kafka.Kafka", str(_settings(node)),
        ]  # fmt: skip

    def stop(self) -> None:
        """Stop all nodes. Several nodes are killed, because each would wait for a quorum that is shutting down."""
        started = [node.child for node in self._started if node.child is not None]
        for child in started:
            if len(started) > 1:
                child.kill()
            else:
                child.stop()

    def remove(self) -> None:
        """Remove the folder of the cluster."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait_ready(self, timeout_s: float = START_S) -> None:
        """Wait until every running node lists all others. Raises BrokerError."""
        end = time.monotonic() + timeout_s
        running = [node for node in self.nodes if node.running] or self.nodes
        waiting = list(running)
        while waiting:
            for node in waiting:
                if not node.running:
                    raise BrokerError(f"node {node.node_id} of Kafka {self.release} ended:\n{self.logs()}")
            waiting = [node for node in waiting if live_brokers(node.internal_port) < len(running)]
            if waiting and time.monotonic() > end:
                raise BrokerError(f"Kafka {self.release} was not ready after {timeout_s:.0f} s:\n{self.logs()}")
            time.sleep(0.05)

    def logs(self) -> str:
        """Return the end of every node's log."""
        return "\n".join(
            f"--- node {node.node_id}, {node.log}\n{node.child.output() if node.child else '(not started)'}"
            for node in self._started
        )

    def _format(self, node: Node, java: list[str]) -> None:
        node.folder.mkdir(parents=True)
        _settings(node).write_text("".join(f"{key}={value}\n" for key, value in self._node_properties(node)))
        digest = uuid.uuid5(uuid.NAMESPACE_URL, str(self.folder)).bytes
        cluster_id = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        decisive = tuple(self._properties.get(name) for name in storage_format.DECISIVE)
        kind = (self.release, tuple(self._features), self._identity(node)["process.roles"], decisive)
        if storage_format.copy(kind, node.folder / "data", cluster_id, node.node_id):
            return
        extra = [word for feature in self._features for word in ("--feature", feature)]
        done = subprocess.run(
            [*java, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "kafka.tools.StorageTool", "format",
             f"--cluster-id={cluster_id}", "-c", str(_settings(node)), *extra],
            capture_output=True, text=True, timeout=START_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise BrokerError(f"cannot format the storage of Kafka {self.release}:\n{done.stdout}{done.stderr}")
        storage_format.keep(kind, node.folder / "data")

    def _node_properties(self, node: Node) -> Iterator[tuple[str, str]]:
        copies = str(min(3, len(self.nodes)))
        in_sync = str(min(2, len(self.nodes)))
        share = "" if self.release.startswith("3.") else "share.coordinator.state.topic"
        values = _DEFAULTS | (_SHARE_DEFAULTS if share else _KAFKA_3)
        for topic in filter(None, ("offsets.topic", "transaction.state.log", share)):
            values[f"{topic}.replication.factor"] = copies
        for topic in filter(None, ("transaction.state.log", share)):
            values[f"{topic}.min.isr"] = in_sync
        values["default.replication.factor"] = copies
        yield from (values | self._identity(node) | self._security() | self._properties).items()

    def _identity(self, node: Node) -> dict[str, str]:
        voters = self.nodes if self.controller is None else [self.controller]
        controls, serves = node in voters, node in self.nodes
        roles = [role for role, has in (("broker", serves), ("controller", controls)) if has]
        values = {
            "process.roles": ",".join(roles),
            "node.id": str(node.node_id),
            "controller.quorum.voters": ",".join(f"{each.node_id}@{HOST}:{each.controller_port}" for each in voters),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(node.folder / "data"),
        }
        controlling = {"CONTROLLER": node.controller_port} if controls else {}
        return values | (self._listeners(node, controlling) if serves else {"listeners": _addresses(controlling)})

    def _listeners(self, node: Node, controlling: Mapping[str, int]) -> dict[str, str]:
        listeners = {"CLIENT": node.port, "INTERNAL": node.internal_port}
        advertised = dict(listeners)
        if self._relay_port is not None:
            listeners["RELAYED"], advertised["RELAYED"] = node.relayed_port, self._relay_port
        return {
            "inter.broker.listener.name": "INTERNAL",
            "listeners": _addresses({**listeners, **controlling}),
            "advertised.listeners": _addresses(advertised),
        }

    def _security(self) -> dict[str, str]:
        protocol = "SASL_PLAINTEXT" if self.sasl else "PLAINTEXT"
        protocols = {"CLIENT": protocol, "RELAYED": protocol, "INTERNAL": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        values = {"listener.security.protocol.map": ",".join(map(":".join, protocols.items()))}
        if not self.sasl:
            return values
        users = " ".join(f'user_{name}="{password}"' for name, password in self.sasl.users.items())
        return values | {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{self.sasl.super_user}",  # anonymous: the brokers among themselves
            "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
            ),
        }


@cache
def _archived(release: str) -> tuple[str, ...]:
    """Return the options to use the archive of the classes of a broker."""

    def make(writing: str) -> int:
        with tempfile.TemporaryDirectory() as folder:
            options = (*SMALL, "-Xlog:disable", writing)
            with Cluster(release, Path(folder) / "kafka", java_options=options) as kafka:
                child = kafka.nodes[0].child
                return -1 if child is None else child.stop(ARCHIVE_S)

    return archive_options(find_java(), class_path(release), "broker", make)


def live_brokers(port: int) -> int:
    """Count the brokers in a Metadata response (v1, no topics); 0 without a response."""
    request = struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 0)
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as response:
                head = response.read(12)  # size, correlation id, count of brokers
    except OSError:
        return 0
    return int(struct.unpack(">iii", head)[2]) if len(head) == 12 else 0


def _addresses(listeners: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items())


def _settings(node: Node) -> Path:
    return node.folder / "server.properties"
