"""One client connection: bytes in and out, requests in order, responses in order.

How it works: one task receives, one serves. The receiving task stops at PIPELINED_MAX requests that wait, as a broker
mutes the channel, and sees the end of the connection while a request is served.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from kafka_share_proxy.conformance.judge.events import ConnectionEnded
from kafka_share_proxy.conformance.target.authentication import AUTHENTICATION_BYTES_MAX
from kafka_share_proxy.conformance.target.interfaces import ClientPeer
from kafka_share_proxy.conformance.target.request_serving import ServedCluster, ServedConnection
from kafka_share_proxy.wire.codec.frames import FRAME_BYTES_MAX, FrameReader
from kafka_share_proxy.wire.errors import RemoteProtocolError

PIPELINED_MAX = 16
"""Maximum number of complete requests of one connection that wait for the one before."""
READ_BYTES = 64 << 10
SEND_TIMEOUT_S = 30.0
"""Seconds after which a connection is closed whose client does not read the response."""

Received = tuple[bytes, float]
"""Request frame without size, and the time at which its last byte arrived."""


class TargetConnection:
    """One connection of a client to a node."""

    def __init__(self, stream: trio.abc.Stream, served: ServedCluster, peer: ClientPeer) -> None:
        self._stream = stream
        self._served = served
        self._peer = peer
        self._requests = ServedConnection(served, peer)
        self._by_client = False
        self._scope: trio.CancelScope | None = None

    @property
    def node_id(self) -> int:
        return self._peer.node_id

    async def run(self, notes: Callable[[str], None]) -> None:
        """Serve until the connection ends. `notes` receives a line about a fault of this package."""
        try:
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                frames_in, frames_out = trio.open_memory_channel[Received](PIPELINED_MAX)
                nursery.start_soon(self._receive, frames_in)
                await self._serve(frames_out)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, RemoteProtocolError):
            pass  # the client closed the connection, or sent what is no request
        except* Exception as group:
            self._served.failures += group.exceptions
            notes(f"a request of connection {self._peer.number} failed: {group.exceptions[0]!r}")
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)
            self._end()

    def close(self) -> None:
        """Close the connection: its node is down."""
        if self._scope is not None:
            self._scope.cancel()

    def _end(self) -> None:
        for callback in self._peer.on_close:
            callback()
        ended = ConnectionEnded(at=trio.current_time(), connection=self._peer.number, by_client=self._by_client)
        self._served.judge.observe(ended)

    async def _receive(self, frames_in: trio.MemorySendChannel[Received]) -> None:
        reader = FrameReader(FRAME_BYTES_MAX)
        while True:
            reader.accept(AUTHENTICATION_BYTES_MAX if self._requests.must_authenticate else FRAME_BYTES_MAX)
            data = await self._received()
            if not data:
                self._by_client = True
                self.close()
                return
            received_at = trio.current_time()
            for frame in reader.receive_data(data):
                await frames_in.send((frame, received_at))

    async def _received(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(READ_BYTES))
        except trio.BrokenResourceError:
            return b""

    async def _serve(self, frames_out: trio.MemoryReceiveChannel[Received]) -> None:
        """Serve one request after the other. A response is sent before the next request starts."""
        async for frame, received_at in frames_out:
            outgoing = await self._requests.serve(frame, received_at)
            if outgoing.data:
                with trio.fail_after(SEND_TIMEOUT_S):
                    await self._stream.send_all(outgoing.data)
            if outgoing.closes:
                return
