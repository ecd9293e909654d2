"""Listening sockets that a service manager has opened before this process (sd_listen_fds(3), socket activation)."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping, Sequence

from kafka_share_proxy.loop import listeners

FIRST_DESCRIPTOR = 3
"""Number of the first descriptor that is passed (sd_listen_fds(3))."""
PID, COUNT, NAMES = "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"
WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


class ActivatedSockets:
    """Sockets of the service manager by address. Without any, addresses are bound as usual."""

    def __init__(self, sockets: Sequence[socket.socket] = ()) -> None:
        self._sockets = list(sockets)

    @property
    def addresses(self) -> list[str]:
        """Addresses of the sockets, for the log."""
        return [f"{sock.getsockname()[0]}:{sock.getsockname()[1]}" for sock in self._sockets]

    def bind(self, host: str, port: int, *, shares: bool = False) -> list[socket.socket]:
        """Return the sockets of the service manager for this address, else new ones. See `listeners.bind`.

        All callers with the same address get the same sockets, which accept independently.
        """
        activated = [sock.dup() for sock in self._sockets if _serves(sock, host, port)]
        for sock in activated:
            sock.setblocking(False)
        return activated or listeners.bind(host, port, shares=shares)


def activated_sockets(environment: MutableMapping[str, str] = os.environ) -> ActivatedSockets:
    """Take over what the service manager passed to this process. Child processes do not see it."""
    pid, count = environment.pop(PID, ""), environment.pop(COUNT, "")
    environment.pop(NAMES, None)
    if pid != str(os.getpid()) or not count.isdecimal():
        return ActivatedSockets()
    return ActivatedSockets([_adopted(FIRST_DESCRIPTOR + number) for number in range(int(count))])


def _adopted(descriptor: int) -> socket.socket:
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)


def _serves(sock: socket.socket, host: str, port: int) -> bool:
    bound_host, bound_port, *_ = sock.getsockname()
    if bound_port != port:
        return False
    return bound_host in WILDCARDS or bound_host in {each[4][0] for each in socket.getaddrinfo(host, port)}
