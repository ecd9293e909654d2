"""Number of clients that the process's limit of open files allows.

Each client connection uses two descriptors, its own and that of its upstream connection. Linux starts processes with a
soft limit of 1024, which they may raise up to the hard limit. The system or the service manager sets the hard limit
(`ulimit -Hn`, LimitNOFILE=, --ulimit nofile).
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import NamedTuple

KEPT = 256
"""Descriptors reserved for other uses than clients: listeners of the brokers, the admin listener and its connections
(32), the proxy's own connections to brokers and other proxies, pending connects to several addresses, files, the event
loop.
"""
OF_A_CLIENT = 2


class Room(NamedTuple):
    """Capacity for clients under a limit of open files."""

    files: int
    """The soft limit."""
    connections: int
    """Possible client connections, at most the requested number."""


def raise_limit(connections: int) -> Room:
    room = expected_room(connections)
    with suppress(ValueError, OSError):  # systems may allow less than the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (room.files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Room(soft, _connection_room(soft, connections))


def expected_room(connections: int) -> Room:
    """Return the result that `raise_limit` would have, without changes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OF_A_CLIENT * connections + KEPT
    if soft == resource.RLIM_INFINITY:
        return Room(needed, connections)
    reached = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    files = max(soft, reached)
    return Room(files, _connection_room(files, connections))


def shortage(room: Room, connections: int) -> str:
    """Return advice for the operator, or "" if all connections fit."""
    if room.connections >= connections:
        return ""
    needed = OF_A_CLIENT * connections + KEPT
    room_text = f"room for {room.connections} client connections, not limits.connections ({connections})"
    if not room.connections:
        room_text = "no room for client connections"
    return f"the limit of open files ({room.files}) leaves {room_text}; raise its hard limit (ulimit -Hn) to {needed}"


def _connection_room(files: int, connections: int) -> int:
    if files == resource.RLIM_INFINITY:
        return connections
    return min(connections, max(files - KEPT, 0) // OF_A_CLIENT)
