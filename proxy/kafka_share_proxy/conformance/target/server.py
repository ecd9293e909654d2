"""The cluster with its listeners, faults and judge: everything that a test controls.

How it works: the codecs, the judge, and what serves a connection are imported when the first client connects.
"""

from __future__ import annotations

import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import trio

from kafka_share_proxy.conformance.target import served_apis
from kafka_share_proxy.conformance.target.clock import Clock
from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.cluster_settings import ClusterSettings
from kafka_share_proxy.conformance.target.faults import FaultPlan
from kafka_share_proxy.conformance.target.listeners import NodeListener

if TYPE_CHECKING:
    from kafka_share_proxy.conformance.judge.findings import ClientFindings
    from kafka_share_proxy.conformance.judge.judge import Judge
    from kafka_share_proxy.conformance.target.connection import TargetConnection
    from kafka_share_proxy.conformance.target.request_serving import BeforeRequest, ServedCluster

FAILURES_SHOWN_MAX = 20


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """Options of a cluster in one process."""

    host: str = "127.0.0.1"
    port: int = 0
    """Port of node 1, the bootstrap. 0: assigned by the kernel, as those of all other nodes."""
    nodes: int = 3
    seed: int = 0
    strict: bool = False
    tls: ssl.SSLContext | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    """Passwords by user. Empty: no SASL."""
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    settings: ClusterSettings = field(default_factory=ClusterSettings)
    start_ms: int | None = None
    """Wall time at the start, in milliseconds since 1970. None: that of the machine."""


class TargetServer:
    """A cluster that serves clients. Created by `open_target`."""

    def __init__(self, options: TargetOptions) -> None:
        self.clock = Clock(time.time_ns() // 1_000_000 if options.start_ms is None else options.start_ms)
        self.cluster = TargetCluster(options.nodes, self.clock, options.seed, options.settings)
        served_apis.offer(self.cluster, served_apis.SASL_VERSIONS)
        self.faults = FaultPlan(options.seed)
        self.failures: list[BaseException] = []
        """Errors of handlers: faults of this package."""
        self._options = options
        self._users = dict(options.users)
        self._before_request: list[BeforeRequest] = []
        self._nursery: trio.Nursery | None = None
        ports = {1: options.port}
        self._listeners = {
            node_id: NodeListener(node_id, options.host, ports.get(node_id, 0), options.tls)
            for node_id in self.cluster.node_ids
        }
        self._connections: set[TargetConnection] = set()
        self._last_number = 0

    @cached_property
    def judge(self) -> Judge:
        """Judge of all clients."""
        from kafka_share_proxy.conformance.judge.judge import Judge

        return Judge(self.cluster.offered)

    @cached_property
    def _served(self) -> ServedCluster:
        from kafka_share_proxy.conformance.target.request_serving import ServedCluster

        return ServedCluster(
            cluster=self.cluster,
            handlers={int(api.key): api.handle for api in served_apis.APIS},
            judge=self.judge,
            faults=self.faults,
            users=self._users,
            mechanisms=self._options.mechanisms,
            strict=self._options.strict,
            before_request=self._before_request,
            failures=self.failures,
        )

    async def open_ports(self) -> None:
        """Open all ports, or none of them. Raises OSError."""
        try:
            for node_id, listener in self._listeners.items():
                await listener.open()
                self.cluster.addresses[node_id] = (listener.host, listener.port)
        except OSError:
            for listener in self._listeners.values():
                await listener.close()
            raise

    def start(self, nursery: trio.Nursery) -> None:
        """Serve the open ports in tasks of this nursery."""
        self._nursery = nursery
        for listener in self._listeners.values():
            nursery.start_soon(listener.serve, self._accept)
        nursery.start_soon(self.cluster.run)

    @property
    def bootstrap(self) -> str:
        """HOST:PORT of all nodes, separated by commas."""
        return ",".join(f"{host}:{port}" for host, port in self.cluster.addresses.values())

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        """Connect in memory, for clients in the same loop. Raises ConnectionRefusedError."""
        from trio.testing import memory_stream_pair

        nodes = {address: node_id for node_id, address in self.cluster.addresses.items()}
        listener = self._listeners.get(nodes.get((host, port), 0))
        if listener is None or not listener.is_open:
            raise ConnectionRefusedError(f"no node accepts connections at {host}:{port}")
        client, served = memory_stream_pair()
        self._tasks.start_soon(listener.handle, self._accept, served)
        return client

    def accepts(self, node_id: int) -> bool:
        """Return True if a node accepts connections. Raises ValueError."""
        return self._listener(node_id).is_open

    def findings(self) -> ClientFindings:
        """Return the findings, including what clients have left undone by now."""
        return self.judge.inspect(trio.current_time())

    def add_user(self, user: str, password: str) -> None:
        """Accept a user. The first one switches SASL on for new connections."""
        self._users[user] = password

    async def take_node_down(self, node_id: int) -> None:
        """Let others lead, refuse connections and close the open ones. Raises ValueError."""
        self.cluster.take_node_down(node_id)
        await self._listeners[node_id].close()
        self.cut_connections(node_id)

    async def bring_node_up(self, node_id: int) -> None:
        """Accept connections on the same port as before. Raises ValueError, or OSError if the port is in use."""
        if node_id in self._listeners:
            await self.accept_connections(node_id)
        self.cluster.bring_node_up(node_id)

    async def refuse_connections(self, node_id: int) -> None:
        """Refuse new connections to a node, which leads on and serves the open ones. Raises ValueError."""
        await self._listener(node_id).close()

    async def accept_connections(self, node_id: int) -> None:
        """Accept connections to a node again. Raises ValueError, or OSError if the port is in use."""
        listener = self._listener(node_id)
        if not listener.is_open:
            await listener.open()
            self._tasks.start_soon(listener.serve, self._accept)

    def before_request(self, callback: BeforeRequest) -> None:
        """Await `callback` with API key, node and client id before each request is executed."""
        self._before_request.append(callback)

    def run_at(self, now_s: float, callback: Callable[[], Awaitable[None]]) -> None:
        """Run `callback` when the clock of the cluster has reached these seconds since its start."""

        async def run() -> None:
            await self.clock.wait_until(now_s)
            await callback()

        self._tasks.start_soon(run)

    @property
    def _tasks(self) -> trio.Nursery:
        if self._nursery is None:
            raise RuntimeError("the cluster has not started")
        return self._nursery

    def cut_connections(self, node_id: int) -> None:
        """Close all connections to a node."""
        for connection in tuple(self._connections):
            if connection.node_id == node_id:
                connection.close()

    def _listener(self, node_id: int) -> NodeListener:
        if node_id not in self._listeners:
            raise ValueError(f"there is no node {node_id}: the nodes are 1 to {len(self._listeners)}")
        return self._listeners[node_id]

    async def _accept(self, node_id: int, stream: trio.abc.Stream, host: str) -> None:
        from kafka_share_proxy.conformance.target.connection import TargetConnection
        from kafka_share_proxy.conformance.target.interfaces import ClientPeer

        self._last_number += 1
        connection = TargetConnection(stream, self._served, ClientPeer(self._last_number, node_id, host))
        self._connections.add(connection)
        try:
            await connection.run(self._note)
        finally:
            self._connections.discard(connection)

    def _note(self, line: str) -> None:
        if len(self.failures) <= FAILURES_SHOWN_MAX:
            print(f"conformance target: {line}", file=sys.stderr)  # noqa: T201  # a fault of this package


@asynccontextmanager
async def serving(server: TargetServer) -> AsyncIterator[None]:
    """Serve a cluster inside the block. Raises OSError if a port cannot be opened."""
    await server.open_ports()
    async with trio.open_nursery() as nursery:
        server.start(nursery)
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_target(options: TargetOptions | None = None) -> AsyncIterator[TargetServer]:
    """Serve a cluster inside the block. Raises OSError if a port cannot be opened, ValueError for wrong options."""
    server = TargetServer(options or TargetOptions())
    async with serving(server):
        yield server
