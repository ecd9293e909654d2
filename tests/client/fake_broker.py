"""A scripted broker in memory, whose connections stall, trickle and break on demand."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import trio
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.codec.headers import RequestHeader
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.values import Address

from tests.support.small_broker import Net

VERSIONS = {key: registry.versions(key) for key in registry.API_KEYS}
HERE = Address("broker", 9092)

Respond = Callable[[RequestHeader, Any], Any]
"""Function that builds the response to a request; None: nothing does."""


class FakeBroker:
    """One broker; every connection to it is served alike."""

    def __init__(self, respond: Respond) -> None:
        self.respond = respond
        self.ranges = dict(VERSIONS)
        self.requests: list[tuple[str, Any]] = []
        """(API, request) of all requests received except ApiVersions."""
        self.correlation_ids: list[int] = []
        """Correlation ids of all requests."""
        self.connections = 0
        self.stalled = False
        """Responses are kept until `flow`."""
        self.trickle = 0
        """Bytes that are written at a time, one second after the other."""
        self.cut_after: int | None = None
        """Bytes of the next response after which the connection ends."""
        self.id_shift = 0
        """Added to correlation ids."""
        self.raw: bytes | None = None
        """Sent in place of the next response."""
        self._flows = trio.Event()
        self._scopes: list[trio.CancelScope] = []

    def flow(self) -> None:
        """Give the responses that were kept, and continue."""
        self.stalled = False
        self._flows.set()
        self._flows = trio.Event()

    def cut(self) -> None:
        """End all connections."""
        for scope in self._scopes:
            scope.cancel()
        self._scopes.clear()

    async def serve(self, stream: trio.abc.Stream) -> None:
        self.connections += 1
        reader = frames.FrameReader()
        with trio.CancelScope() as scope, suppress(trio.BrokenResourceError, ssl.SSLError):
            self._scopes.append(scope)
            async for data in stream:
                for frame in reader.receive_data(data):
                    await self._response(stream, frame)
        await trio.aclose_forcefully(stream)

    async def _response(self, stream: trio.abc.Stream, frame: bytes) -> None:
        header, request = frames.decode_request(frame)
        self.correlation_ids.append(header.correlation_id)
        if header.key == 18:
            message = self._versions()
            await stream.send_all(frames.response(18, header.version, header.correlation_id, message))
            return
        self.requests.append((registry.API_KEYS[header.key], request))
        message = self.respond(header, request)
        while self.stalled:
            await self._flows.wait()
        if message is None:
            return
        response = frames.response(header.key, header.version, header.correlation_id + self.id_shift, message)
        await self._write(stream, response if self.raw is None else self.raw)

    async def _write(self, stream: trio.abc.Stream, data: bytes) -> None:
        if self.cut_after is not None:
            await stream.send_all(data[: self.cut_after])
            self.cut_after = None
            raise trio.BrokenResourceError
        step = self.trickle or len(data)
        for begin in range(0, len(data), step):
            await stream.send_all(data[begin : begin + step])
            if self.trickle:
                await trio.sleep(1)

    def _versions(self) -> Any:
        message = registry.message("ApiVersionsResponse")
        return message(
            api_keys=[message.ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.ranges.items()]
        )


class FakeNet(Net):
    """Network of fake brokers by address; other addresses do not exist."""

    @property
    def settings(self) -> ClusterClientSettings:
        return ClusterClientSettings(connect=self, client_id="test", tls_setting="tls=")
