"""Connection of the proxy's own to one broker for frequent requests, driven by the loop itself.

A channel begins as a Trio stream, so that `cluster_connection.open_connection` can read versions and authenticate on
it. After `begin` the loop reads and writes it by plain calls: an append of share state needs no pass through Trio's
scheduler (see `reactor`). A channel that fails in any way is closed, and all pending requests are notified.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from math import inf
from typing import Any, NamedTuple, TypeVar

import trio

from kafka_share_proxy.brokers import dialling
from kafka_share_proxy.brokers.cluster_connection import (
    CLIENT_ID,
    BrokerVersions,
    ClusterClientSettings,
    ClusterConnection,
    open_connection,
)
from kafka_share_proxy.loop.polling import READ, WRITE
from kafka_share_proxy.loop.reactor import Reactor, ReactorTimer
from kafka_share_proxy.loop.transports import PlainTransport, TlsTransport
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.values import Address

RESPONSE_S = 10.0
"""Seconds without a response after which a channel is closed. Longer than brokers wait for replicas (`timeout_ms`)."""
READS_MAX = 16
"""Maximum number of reads in one call, so that a busy channel does not delay the others."""

R = TypeVar("R", bound=Message)
T = TypeVar("T")


class _InFlight(NamedTuple):
    correlation_id: int
    deadline: float
    decode: Callable[[bytes], tuple[int, Any]]
    done: Callable[[Any | None], None]


class Channel(trio.abc.Stream):
    """One connection. Owner of its socket in the sense of `faults`."""

    def __init__(
        self,
        reactor: Reactor,
        transport: PlainTransport | TlsTransport,
        frame_bytes: int,
        on_close: Callable[[Channel, str, int], None],
    ) -> None:
        """`on_close`: called once when the channel closes, with the reason and the number of requests in flight."""
        self.versions = BrokerVersions(ranges={}, response=None)
        self.expires = inf
        """Time (trio.current_time) at which to replace the SASL session."""
        self.closed = False
        self._on_close = on_close
        self._reactor = reactor
        self._transport = transport
        self._frames = frames.FrameReader(frame_bytes)
        self._has_begun = False
        self._changed = trio.Event()
        self._unsent = bytearray()
        self._in_flight: deque[_InFlight] = deque()
        self._correlation_ids = count(1)
        self._alarm: ReactorTimer | None = None
        self._trouble = ""
        transport.attach(self._on_event, READ)

    # Stream interface, used during the setup

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        self._check_open()
        self._unsent += data
        self._flush()
        while self._unsent:
            await self._wait()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See trio.abc.ReceiveStream. Empty at the end."""
        await trio.lowlevel.checkpoint()
        while True:
            self._check_open()
            buffer = self._reactor.buffer[: max_bytes or len(self._reactor.buffer)]
            with suppress(BlockingIOError):
                return bytes(buffer[: self._transport.recv_into(buffer)])
            self._transport.want(READ | WRITE if self._unsent else READ)
            await self._wait()

    async def aclose(self) -> None:
        self.close("closed")
        await trio.lowlevel.checkpoint()

    async def _wait(self) -> None:
        self._changed = trio.Event()
        await self._changed.wait()
        self._check_open()

    def _check_open(self) -> None:
        if self.closed:
            raise trio.BrokenResourceError(self._trouble or "closed")

    # Requests

    def begin(self, opened: ClusterConnection) -> None:
        self.versions, self.expires = opened.versions, opened.expires
        self._correlation_ids = opened.correlation_ids
        self._has_begun = True
        self._transport.want(READ)

    @property
    def waiting(self) -> int:
        return len(self._in_flight)

    @property
    def waiting_since(self) -> float:
        """Time (of the reactor) at which the oldest pending request was sent, or inf."""
        return self._in_flight[0].deadline - RESPONSE_S if self._in_flight else inf

    def highest(self, key: int, ours_max: int) -> int:
        """Raises RemoteProtocolError if the broker has no such API."""
        theirs = self.versions.ranges.get(key)
        if theirs is None or theirs[0] > ours_max:
            raise RemoteProtocolError(f"the broker has no version of API {key} up to {ours_max}")
        return min(ours_max, theirs[1])

    def send_request(
        self, key: int, version: int, message: RequestMessage[R], done: Callable[[R | None], None]
    ) -> None:
        """`done` is called once, with the response, or with None if the channel closes before it."""
        frame = frames.request(key, version, 0, CLIENT_ID, message)
        self.send_frame(frame, partial(frames.decode_response, key, version), done)

    def send_frame(
        self, frame: bytes, decode: Callable[[bytes], tuple[int, T]], done: Callable[[T | None], None]
    ) -> None:
        """Send the frame of a request with another correlation id. `decode`: returns the one of the response, and it.

        `done`: as in `send_request`.
        """
        if self.closed:
            done(None)
            return
        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        deadline = self._reactor.now() + RESPONSE_S
        self._in_flight.append(_InFlight(correlation_id, deadline, decode, done))
        self._unsent += frames.with_correlation_id(frame, correlation_id)
        if self._alarm is None:
            self._alarm = self._reactor.call_at(deadline, self._ring)
        try:
            self._flush()
        except OSError as error:
            self.close(str(error))

    def close(self, reason: str) -> None:
        if self.closed:
            return
        self.closed, self._trouble = True, reason
        self._transport.close()
        if self._alarm is not None:
            self._alarm.cancel()
        self._changed.set()
        in_flight, self._in_flight = self._in_flight, deque()
        self._on_close(self, reason, len(in_flight))
        for each in in_flight:
            each.done(None)

    def failed(self, error: Exception) -> None:
        self.close(str(error) or type(error).__name__)

    def _ring(self) -> None:
        self._alarm = None
        if not self._in_flight:
            return
        if self._in_flight[0].deadline <= self._reactor.now():
            self.close(f"no response within {RESPONSE_S:g} s")
        else:
            self._alarm = self._reactor.call_at(self._in_flight[0].deadline, self._ring)

    # The loop

    def _on_event(self, mask: int) -> None:
        if mask & WRITE:
            self._flush()
        if not self._has_begun:
            self._changed.set()
            if mask & ~WRITE:  # the woken task reads it; the loop need not report it again until then
                self._transport.want(WRITE if self._unsent else 0)
            return
        if mask & ~WRITE:
            self._receive()

    def _receive(self) -> None:
        buffer = self._reactor.buffer
        for _ in range(READS_MAX):
            try:
                size = self._transport.recv_into(buffer)
            except BlockingIOError:
                return
            if not size:
                self.close("the broker closed the connection")
                return
            for frame in self._frames.receive_data(buffer[:size]):
                self._responded(frame)
                if self.closed:
                    return
            if size < len(buffer):
                return

    def _responded(self, frame: bytes) -> None:
        if not self._in_flight:
            raise RemoteProtocolError("a response without a request")
        request = self._in_flight[0]  # removed after decoding, so that close() still notifies it if that fails
        correlation_id, response = request.decode(frame)
        if correlation_id != request.correlation_id:
            raise RemoteProtocolError(f"response {correlation_id} instead of {request.correlation_id}")
        self._in_flight.popleft()
        request.done(response)

    def _flush(self) -> None:
        while self._unsent:
            try:
                sent_bytes = self._transport.send(bytes(self._unsent))
            except BlockingIOError:
                break
            del self._unsent[:sent_bytes]
        self._transport.want(READ | WRITE if self._unsent else READ)


async def open_channel(
    reactor: Reactor,
    address: Address,
    settings: ClusterClientSettings,
    on_close: Callable[[Channel, str, int], None],
) -> Channel:
    """Dial, secure, read the versions, authenticate. `on_close`: see Channel.

    Raises UpstreamLost if the broker cannot be reached, AuthenticationFailed if it refuses the identity,
    RemoteProtocolError if it does not speak Kafka.
    """
    channels: list[Channel] = []

    async def connect(host: str, port: int) -> trio.abc.Stream:
        sock = await dialling.connect(Address(host, port), settings.dial_timeout_s)
        channels.append(Channel(reactor, _transport(reactor, sock, settings, host), settings.response_bytes, on_close))
        return channels[-1]

    opened = await open_connection(address, replace(settings, tls=None, connect=connect))
    channel = channels[-1]
    channel.begin(opened)
    return channel


def _transport(
    reactor: Reactor, sock: Any, settings: ClusterClientSettings, host: str
) -> PlainTransport | TlsTransport:
    if settings.tls is None:
        return PlainTransport(reactor, sock)
    return TlsTransport(
        reactor,
        sock,
        settings.tls.current,
        server_side=False,
        server_hostname=settings.server_name or host,
        handshake_timeout_s=settings.dial_timeout_s,
    )
