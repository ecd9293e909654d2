"""The same consumers as in the scripted world, on real brokers: one thread, blocking sockets, the real clock."""

from __future__ import annotations

import itertools
import select
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from kafka_share_proxy.consumer.requests import ANY_NODE, FailureKind, Lane, RequestFailure, UnsentRequest
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.codec.frames import FrameReader
from kafka_share_proxy.wire.definitions import registry

from tests.consumer.world import Member

KEYS = {name: key for key, name in registry.API_KEYS.items()}
STEP_S = 0.02
CONNECT_S = 10.0


class Polled(Protocol):
    """An application that is driven: one of ours, or a stock client's."""

    def poll(self) -> Any:
        """Poll once."""
        ...


class LiveConnection:
    """Connection to one node, for one member and one lane."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), CONNECT_S)
        self.reader = FrameReader()
        self.waiting: dict[int, tuple[Member, UnsentRequest, int]] = {}


class LiveWorld:
    """Members, their connections, and the versions that the brokers speak."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self._bootstrap = (host, int(port))
        self.members: list[Member] = []
        self.wire: list[str] = []
        self._connections: dict[tuple[str, int, Lane], LiveConnection] = {}
        self._numbers = itertools.count(1)
        self._versions = self._request_versions()

    def __enter__(self) -> LiveWorld:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.socket.close()

    @property
    def now(self) -> float:
        return time.monotonic()

    def member(self, name: str, **options: Any) -> Member:
        self.members.append(Member(self, name, **options))  # type: ignore[arg-type]  # as much of a World as it needs
        return self.members[-1]

    def settle(self) -> None:
        """Send all requests that are due."""
        for member in self.members:
            for request in member.core.poll(self.now):
                self._send(member, request)

    def run(self, seconds: float, polling: Iterable[Polled] = ()) -> None:
        """Let time pass; these applications poll in every step."""
        end, listed = self.now + seconds, list(polling)
        while self.now < end:
            self._poll_all(listed)

    def _poll_all(self, polling: Iterable[Polled]) -> None:
        for each in polling:
            each.poll()
        self.settle()
        self._receive()

    def until(self, condition: Callable[[], Any], polling: Iterable[Polled], seconds: float = 60.0) -> None:
        """Let time pass until it is so; looked at after every turn, for the next poll may end it."""
        end, listed = self.now + seconds, list(polling)
        while not condition() and self.now < end:
            self._poll_all(listed)
        assert condition(), f"not after {seconds} s: {self.wire[-10:]}"

    def _request_versions(self) -> dict[str, tuple[int, int]]:
        connection = LiveConnection(*self._bootstrap)
        message = registry.message("ApiVersionsRequest")(client_software_name="live", client_software_version="1")
        connection.socket.sendall(frames.request(KEYS["ApiVersions"], 3, 1, "live", message))
        with connection.socket:
            responded: list[bytes] = []
            while not responded:
                responded += connection.reader.receive_data(connection.socket.recv(1 << 16))
        _, response = frames.decode_response(KEYS["ApiVersions"], 3, responded[0])
        return {
            registry.API_KEYS[each.api_key]: (each.min_version, each.max_version)
            for each in response.api_keys
            if each.api_key in registry.API_KEYS
        }

    def _send(self, member: Member, request: UnsentRequest) -> None:
        version = min(request.versions[1], self._versions[request.api][1])
        assert version >= max(request.versions[0], self._versions[request.api][0]), request.api
        self.wire.append(f"{member.name} {request.api}")
        connection = self._connection(member, request)
        number = next(self._numbers)
        connection.waiting[number] = (member, request, version)
        connection.socket.sendall(frames.request(KEYS[request.api], version, number, member.name, request.message))

    def _connection(self, member: Member, request: UnsentRequest) -> LiveConnection:
        key = (member.name, request.node_id, request.lane)
        if key not in self._connections:
            host, port = self._bootstrap
            if request.node_id != ANY_NODE and request.node_id in member.core.metadata.nodes:
                host, port, _ = member.core.metadata.nodes[request.node_id]
            elif request.node_id == member.core.coordinator.node_id and member.core.coordinator.address:
                host, port = member.core.coordinator.address
            self._connections[key] = LiveConnection(host, port)
        return self._connections[key]

    def _receive(self) -> None:
        by_socket = {connection.socket: (key, connection) for key, connection in self._connections.items()}
        if not by_socket:
            time.sleep(STEP_S)
            return
        for ready in select.select(list(by_socket), [], [], STEP_S)[0]:
            key, connection = by_socket[ready]
            data = ready.recv(1 << 20)
            if not data:
                self._ended(key, connection)
                continue
            for frame in connection.reader.receive_data(data):
                self._response(connection, frame)

    def _response(self, connection: LiveConnection, frame: bytes) -> None:
        member, request, version = connection.waiting.pop(int.from_bytes(frame[:4], "big"))
        _, response = frames.decode_response(KEYS[request.api], version, frame)
        if member in self.members:
            member.core.on_response(request, response, self.now)

    def _ended(self, key: tuple[str, int, Lane], connection: LiveConnection) -> None:
        connection.socket.close()
        del self._connections[key]
        for member, request, _ in connection.waiting.values():
            if member in self.members:
                member.core.on_response(request, RequestFailure(FailureKind.DISCONNECTED), self.now)
