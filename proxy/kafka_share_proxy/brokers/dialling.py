"""Upstream connections: names are resolved off the loop, every address of every target is tried in order.

If an address is slow, the next is tried concurrently, and the first connection wins.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

import trio

from kafka_share_proxy.loop.first_success import race
from kafka_share_proxy.wire.values import Address


class Dialled(NamedTuple):
    """New connection to a broker."""

    sock: socket.socket
    address: Address
    """Target of the connection, by name (TLS verifies the host)."""


Done = Callable[[Dialled | OSError], None]
"""Called once, from a Trio task; never after the cancelling call."""

Dial = Callable[[Sequence[Address], Done], Callable[[], None]]


class Dialler:
    """Dialler in the background of one nursery."""

    def __init__(self, nursery: trio.Nursery, timeout_s: float) -> None:
        self._nursery = nursery
        self._timeout_s = timeout_s
        self._last_good: dict[tuple[Address, ...], Address] = {}

    def __call__(self, targets: Sequence[Address], done: Done) -> Callable[[], None]:
        """Dial in order. The target that accepted last time is tried first."""
        scope = trio.CancelScope()
        self._nursery.start_soon(self._dial, tuple(targets), done, scope, name="dial")
        return scope.cancel

    async def _dial(self, targets: tuple[Address, ...], done: Done, scope: trio.CancelScope) -> None:
        result: Dialled | OSError = OSError("no upstream address is known")
        with scope:
            result = await self._dial_any(self._last_good_first(targets))
        if isinstance(result, Dialled) and not scope.cancel_called:
            self._remember(targets, result.address)
        if not scope.cancel_called:
            done(result)
        elif isinstance(result, Dialled):
            result.sock.close()

    async def _dial_any(self, targets: Sequence[Address]) -> Dialled | OSError:
        if not targets:
            return OSError("no upstream address is known")
        try:
            index, sock = await first_connected([partial(connect, target, self._timeout_s) for target in targets])
        except OSError as error:
            return error
        return Dialled(sock, targets[index])

    def _last_good_first(self, targets: tuple[Address, ...]) -> list[Address]:
        good = self._last_good.get(targets)
        return sorted(targets, key=lambda target: target != good)

    def _remember(self, targets: tuple[Address, ...], target: Address) -> None:
        if len(targets) > 1:
            if len(self._last_good) >= _REMEMBERED_MAX:
                self._last_good.clear()
            self._last_good[targets] = target


_REMEMBERED_MAX = 100
"""Maximum number of target lists whose last good target is cached."""


async def connect(target: Address, timeout_s: float) -> socket.socket:
    """Return a non-blocking socket to the first address that accepts.

    Raises:
        OSError: none does, each within `timeout_s` seconds. The text has the target and the reason.
    """
    with trio.move_on_after(timeout_s):
        try:
            addresses = await trio.socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise OSError(f"{target}: {error.strerror or error}") from error
        attempts = [
            partial(_connect_one, family, kind, protocol, address, timeout_s)
            for family, kind, protocol, _, address in addresses
        ]
        try:
            return (await first_connected(attempts))[1]
        except OSError as error:
            raise OSError(f"{target}: {error}") from error
    raise OSError(f"{target}: no connection within {timeout_s:g} s")


async def connect_locally(path: str) -> socket.socket:
    """Return a non-blocking socket to a Unix socket. Raises OSError if no process listens there."""
    await trio.lowlevel.checkpoint()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(path)
    except OSError as error:
        sock.close()
        raise OSError(f"{path}: {error.strerror}") from error
    return sock


async def first_connected(attempts: Sequence[Callable[[], Awaitable[socket.socket]]]) -> tuple[int, socket.socket]:
    """Return the index and the socket of the first attempt that connects.

    Raises:
        OSError: none did. The text has all reasons.
    """
    outcome = await race(attempts, OSError, _close)
    if outcome.winner is None:
        raise OSError("; ".join(dict.fromkeys(_reason_of(error) for error in outcome.failures.values())))
    return outcome.winner


async def _close(sock: socket.socket) -> None:
    sock.close()


def _reason_of(error: Exception) -> str:
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


async def _connect_one(family: int, kind: int, protocol: int, address: object, timeout_s: float) -> socket.socket:
    sock = trio.socket.socket(family, kind, protocol)
    try:
        with trio.move_on_after(timeout_s):
            await sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain = socket.socket(family, kind, protocol, fileno=sock.detach())
            plain.setblocking(False)
            return plain
        raise OSError(f"no connection within {timeout_s:g} s")
    finally:
        sock.close()
