"""A connection of the suite: requests by hand, decoded responses, raw bytes, every wait bounded."""

from __future__ import annotations

import itertools
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from kafka_share_proxy.conformance.suite.building import KEYS, build
from kafka_share_proxy.conformance.suite.exchanges import Exchange, Trail
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions.message_classes import Message
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.values import MIB, Address

RESPONSE_S = 20.0
"""Seconds to wait for a response, in addition to the wait that the request itself allows."""
CLOSE_S = 10.0
"""Seconds within which the peer must close a connection that it refuses."""
RECEIVE_BYTES = 64 << 10
FRAME_BYTES_MAX = 64 * MIB

_LOST = (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError, OSError)


class ConnectionFailed(ProxyError):
    """The connection could not be made, or the peer closed it or did not respond in time."""


class BadResponse(ProxyError):
    """The response cannot be decoded, or belongs to another request."""


class PeerConnection:
    """One connection to a broker. Requests may be pipelined: `send`, `send`, `receive`, `receive`."""

    def __init__(self, stream: trio.abc.Stream, address: Address, client_id: str | None, trail: Trail) -> None:
        self.address = address
        self.client_id = client_id
        self._stream = stream
        self._trail = trail
        self._numbers = itertools.count(1)
        self._buffer = bytearray()
        self._exclusive = trio.Lock()

    async def aclose(self) -> None:
        """Close the connection. Repeated calls are allowed."""
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(self._stream)

    async def request(self, api: str, version: int, **values: Any) -> Any:
        """Send a request and return the decoded response. Raises ConnectionFailed, BadResponse."""
        return await self.send_message(KEYS[api], version, build(api, **values), values.get("max_wait_ms", 0) / 1000)

    async def send_message(self, key: int, version: int, message: Message, wait_s: float = 0) -> Any:
        """Send a request that allows the broker to wait for `wait_s`, and return the decoded response."""
        async with self._alone():
            exchange = await self.send(key, version, message)
            return await self.receive(exchange, wait_s)

    async def send(self, key: int, version: int, message: Message) -> Exchange:
        """Send a request without waiting for its response."""
        frame = frames.request(key, version, next(self._numbers), self.client_id, message)
        await self.send_bytes(frame)
        return self._trail.begin(key, version, frame[4:])

    async def send_frame(self, key: int, version: int, frame: bytes) -> Exchange:
        """Send a frame made by hand, without size; it is preceded by its size."""
        await self.send_bytes(struct.pack(">i", len(frame)) + frame)
        return self._trail.begin(key, version, frame)

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are. Raises ConnectionFailed."""
        try:
            with trio.fail_after(RESPONSE_S):
                await self._stream.send_all(data)
        except trio.TooSlowError:
            raise ConnectionFailed(f"{self.address} received nothing for {RESPONSE_S:.0f} s") from None
        except _LOST as error:
            raise ConnectionFailed(f"{self.address} closed the connection: {error}") from None

    async def receive(self, exchange: Exchange, wait_s: float = 0) -> Any:
        """Return the decoded response to a request, the next one. Raises ConnectionFailed, BadResponse."""
        frame = await self.receive_frame(exchange, wait_s)
        number = int.from_bytes(exchange.request[4:8], "big", signed=True)
        try:
            correlation_id, message = frames.decode_response(exchange.key, exchange.version, frame)
        except ProxyError as error:
            raise BadResponse(f"the response to {exchange.name} cannot be decoded: {error}") from None
        if correlation_id != number:
            raise BadResponse(f"correlation id {correlation_id} in the response to request {number}")
        return message

    async def receive_frame(self, exchange: Exchange, wait_s: float = 0) -> bytes:
        """Return the next frame without size, and keep it in the exchange. Raises ConnectionFailed."""
        try:
            with trio.fail_after(RESPONSE_S + wait_s):
                size = int(struct.unpack(">i", await self._exactly(4))[0])
                if not 4 <= size <= FRAME_BYTES_MAX:
                    raise BadResponse(f"a response of {size} bytes")
                exchange.response = await self._exactly(size)
        except trio.TooSlowError:
            exchange.ending = f"no response within {RESPONSE_S + wait_s:.0f} s"
            raise ConnectionFailed(f"{exchange.name}: {exchange.ending}") from None
        except ConnectionFailed:
            exchange.ending = "the peer closed the connection"
            raise
        return exchange.response

    async def is_closed_by_peer(self) -> bool:
        """Wait until the peer closes the connection; False if it sends something or does nothing within CLOSE_S."""
        with trio.move_on_after(CLOSE_S):
            try:
                return not self._buffer and not await self._stream.receive_some(1)
            except _LOST:
                return True
        return False

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Keep others from sending between a request and its response."""
        async with self._exclusive:
            yield

    async def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            await self._more()
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def _more(self) -> None:
        try:
            data = await self._stream.receive_some(RECEIVE_BYTES)
        except _LOST as error:
            raise ConnectionFailed(f"{self.address} closed the connection: {error}") from None
        if not data:
            raise ConnectionFailed(f"{self.address} closed the connection")
        self._buffer += data
