"""Listening sockets of the nodes: opened on free ports, closed and opened again on the same port."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from functools import partial

import trio

ACCEPTED_MAX = 1_000
"""Maximum number of connections at one node. A further one is closed immediately."""
BACKLOG = 128

Accept = Callable[[int, trio.abc.Stream, str], Awaitable[None]]
"""Called with node id, stream and address of the client for each connection, and returns at its end."""


class NodeListener:
    """The port of one node."""

    def __init__(self, node_id: int, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        """`port` 0: the kernel assigns one at the first `open`, which stays the same."""
        self.node_id = node_id
        self.host = host
        self.port = port
        self._tls = tls
        self._listener: trio.SocketListener | None = None
        self._scope: trio.CancelScope | None = None
        self._accepted = 0

    @property
    def is_open(self) -> bool:
        return self._listener is not None

    async def open(self) -> None:
        """Listen. No effect if it listens already. Raises OSError if the address is in use or not of this machine."""
        if self._listener is None:
            listeners = await trio.open_tcp_listeners(self.port, host=self.host, backlog=BACKLOG)
            for other in listeners[1:]:
                await other.aclose()
            self._listener = listeners[0]
            self.port = self._listener.socket.getsockname()[1]

    async def serve(self, accept: Accept) -> None:
        """Accept connections until `close` or cancelled. A connection outlives the listener."""
        listener = self._listener
        if listener is None:
            return
        async with trio.open_nursery() as connections:
            with trio.CancelScope() as self._scope:
                handle = partial(self.handle, accept)
                await trio.serve_listeners(handle, [listener], handler_nursery=connections)

    async def handle(self, accept: Accept, stream: trio.abc.Stream) -> None:
        """Serve one connection, of a socket or in memory."""
        if self._accepted >= ACCEPTED_MAX:
            await trio.aclose_forcefully(stream)
            return
        self._accepted += 1
        try:
            await accept(self.node_id, self._secured(stream), _host_of(stream))
        finally:
            self._accepted -= 1

    def _secured(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        if self._tls is None:
            return stream
        return trio.SSLStream(stream, self._tls, server_side=True, https_compatible=True)

    async def close(self) -> None:
        """Refuse connections from now on."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            if self._scope is not None:
                self._scope.cancel()
            await listener.aclose()


def _host_of(stream: trio.abc.Stream) -> str:
    """Return the address of the client; empty if it has gone, or is in this process."""
    if not isinstance(stream, trio.SocketStream):
        return ""
    try:
        return str(stream.socket.getpeername()[0])
    except OSError:
        return ""
