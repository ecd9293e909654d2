"""A client of the target over a socket, byte by byte where a test needs it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import trio
from kafka_share_proxy.conformance.target.controlled import ControlledTarget, open_controlled_target
from kafka_share_proxy.conformance.target.server import TargetOptions, TargetServer
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages, registry

LIMIT_S = 30.0
"""Seconds that any step may take on a busy machine."""
VERSIONS = messages.ApiVersionsRequest(client_software_name="test", client_software_version="1")
NODES = (1, 2, 3)
METADATA = messages.MetadataRequest(topics=None)


class TargetClient:
    """One connection."""

    def __init__(self, stream: trio.abc.Stream, client_id: str = "test") -> None:
        self.stream = stream
        self.client_id = client_id
        self._numbers = count(1)
        self._buffer = b""

    async def call(self, request: Any, version: int | None = None) -> Any:
        """Send a request and return the response."""
        key, version, number = await self.send(request, version)
        received, response = frames.decode_response(key, version, await self.frame())
        assert received == number
        return response

    async def send(self, request: Any, version: int | None = None) -> tuple[int, int, int]:
        """Send a request. Return key, version and correlation id."""
        name = type(request).SPEC.name.removesuffix("Request")
        key = next(key for key, each in registry.API_KEYS.items() if each == name)
        version = (3 if key == 18 else registry.versions(key)[1]) if version is None else version
        number = next(self._numbers)
        await self.stream.send_all(frames.request(key, version, number, self.client_id, request))
        return key, version, number

    async def frame(self) -> bytes:
        """Return the next frame, without its size."""
        size = int.from_bytes(await self.exactly(4), "big")
        return await self.exactly(size)

    async def exactly(self, size: int) -> bytes:
        """Return that many bytes. Raises ConnectionError if the connection ends before."""
        with trio.fail_after(LIMIT_S):
            while len(self._buffer) < size:
                self._buffer += await self._some()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    async def rest(self) -> bytes:
        """Return all bytes until the end of the connection."""
        with trio.fail_after(LIMIT_S):
            try:
                for _ in range(100_000):
                    self._buffer += await self._some()
            except ConnectionError:
                pass
        return self._buffer

    async def _some(self) -> bytes:
        try:
            data = bytes(await self.stream.receive_some(65_536))
        except trio.BrokenResourceError as error:
            raise ConnectionError("the connection broke") from error
        if not data:
            raise ConnectionError("the connection was closed")
        return data


OPENED: dict[TargetServer, list[trio.abc.Stream]] = {}
"""Streams of the clients of each cluster, closed at its end."""


@asynccontextmanager
async def served(*, fails: bool = False, **options: Any) -> AsyncIterator[ControlledTarget]:
    """Serve a cluster, which must not fail unless the test says so."""
    async with open_controlled_target(TargetOptions(**options)) as server:
        OPENED[server] = []
        try:
            yield server
        finally:
            for stream in OPENED.pop(server):
                await trio.aclose_forcefully(stream)
        assert bool(server.failures) == fails


async def connected(
    server: TargetServer, node: int = 1, client_id: str = "test", tls: ssl.SSLContext | None = None
) -> TargetClient:
    """Return a connection to a node."""
    host, port = server.cluster.addresses[node]
    with trio.fail_after(LIMIT_S):
        stream: trio.abc.Stream = await trio.open_tcp_stream(host, port)
    OPENED[server].append(stream)
    if tls is not None:
        stream = trio.SSLStream(stream, tls, server_hostname="localhost")
    return TargetClient(stream, client_id)
