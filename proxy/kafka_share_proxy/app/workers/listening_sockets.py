"""Listening sockets of all workers. They stay open at the supervisor, so that no waiting connection is ever reset."""

from __future__ import annotations

import socket
from collections.abc import Collection
from typing import Protocol

from kafka_share_proxy.loop import listeners

Key = tuple[int, str, int]
"""Place of the worker, host and port."""


class Bind(Protocol):
    """Function like `listeners.bind`."""

    def __call__(self, host: str, port: int, *, shares: bool = False) -> list[socket.socket]: ...


class ListeningSockets:
    """Sockets by place and address: all places share a port, and a new worker at a place gets its sockets again."""

    def __init__(self, bind: Bind = listeners.bind) -> None:
        """`bind`: see `listeners.bind`."""
        self._bind = bind
        self._sockets: dict[Key, list[socket.socket]] = {}

    def open(self, place: int, host: str, port: int) -> list[socket.socket]:
        """Return the sockets of a place. Raises OSError with a reason, also if another program has the port."""
        key = place, host, port
        if key not in self._sockets:
            if not any((host, port) == each[1:] for each in self._sockets):
                self._try(host, port)
            self._sockets[key] = self._bind(host, port, shares=True)
        return self._sockets[key]

    def close_others(self, used: Collection[Key]) -> None:
        """Close the sockets that no worker has requested."""
        for key in self._sockets.keys() - set(used):
            for sock in self._sockets.pop(key):
                sock.close()

    def close(self) -> None:
        self.close_others(())

    def _try(self, host: str, port: int) -> None:
        """Bind without sharing: a second proxy on this port would otherwise get a part of the clients unnoticed."""
        for sock in self._bind(host, port):
            sock.close()
