"""Listening sockets of the loop, bound synchronously: a response never contains a port that is closed."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path

from kafka_share_proxy.loop.polling import READ
from kafka_share_proxy.loop.reactor import Reactor

PORT_MAX = 65535
BACKLOG = 1024
ACCEPT_S = 0.0005
"""Seconds that one listener spends on new connections in one loop iteration, after the first one."""
PAUSE_S = 1.0
"""Seconds without accepting when the process or the system has no descriptor left."""

_SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def bind(host: str, port: int, *, shares: bool = False) -> list[socket.socket]:
    """Return listening sockets on every address of the host.

    `shares`: other sockets with `shares` may have the same address, and the kernel spreads connections over them.

    Raises OSError with a reason: the port is in use, above 65535 or not allowed, or the host is not local.
    """
    if not 0 <= port <= PORT_MAX:
        raise OSError(errno.EINVAL, f"cannot listen on {host}:{port}: ports end at {PORT_MAX}")
    sockets: list[socket.socket] = []
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(addresses):
            sockets.append(_bind_one(family, kind, protocol, address, shares=shares))
            if port == 0:
                break  # a second address would get another port
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return sockets


def bind_local(path: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """Return a listening Unix socket, and replace one that another process left. Raises OSError."""
    Path(path).unlink(missing_ok=True)
    return _bind_one(socket.AF_UNIX, kind, 0, path)


def _bind_one(family: int, kind: int, protocol: int, address: object, *, shares: bool = False) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    try:
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)  # type: ignore[arg-type]
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


class Listener:
    """Accepts connections on one socket until it is closed."""

    def __init__(
        self,
        reactor: Reactor,
        sock: socket.socket,
        accepted: Callable[[socket.socket, str], None],
        trouble: Callable[[Exception], None],
    ) -> None:
        """`trouble` gets the reason when accepting pauses."""
        self._reactor = reactor
        self._socket = sock
        self._accepted = accepted
        self._trouble = trouble
        self._is_open = self._is_watched = True
        self._is_local = sock.family == socket.AF_UNIX
        self.port: int = 0 if self._is_local else sock.getsockname()[1]
        """0 for a Unix socket."""
        reactor.register(sock.fileno(), READ, self._ready)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._stop_watching()
            self._reactor.close(self._socket)

    def failed(self, error: Exception) -> None:
        """Pause accepting (see faults.FaultOwner)."""
        self._trouble(error)
        if self._is_open:
            self._stop_watching()
            self._reactor.call_at(self._reactor.now() + PAUSE_S, self._resume)

    def _ready(self, _mask: int) -> None:
        end = self._reactor.now() + ACCEPT_S
        while self._is_open:
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _SCARCE:
                    raise
                continue  # the client left before it was accepted
            if self._is_local:
                self._accepted(sock, "")
            else:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._accepted(sock, str(address[0]))
            if self._reactor.now() >= end:
                return

    def _stop_watching(self) -> None:
        if self._is_watched:
            self._reactor.unregister(self._socket.fileno())
            self._is_watched = False

    def _resume(self) -> None:
        if self._is_open and not self._is_watched:
            self._reactor.register(self._socket.fileno(), READ, self._ready)
            self._is_watched = True
