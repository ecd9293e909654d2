"""How many clients the process's limit of open files has room for.

Each client connection takes two descriptors, its own and that of its upstream connection. Linux starts processes with a
soft limit of 1024 and lets them raise it up to the hard one; how far that goes is the system's or the service manager's
to say (`ulimit -Hn`, LimitNOFILE=, --ulimit nofile).
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import NamedTuple

KEPT = 256
"""Descriptors that clients never get: listeners of the brokers, the admin listener and its connections (32), the
proxy's own connections to brokers and other proxies, dials under way to several addresses, files, the loop's own."""
OF_A_CLIENT = 2


class Room(NamedTuple):
    """What a limit of open files leaves for clients."""

    files: int
    """The soft limit."""
    connections: int
    """So many client connections have room; never more than were wanted, 0 where nothing is left."""


def raise_limit(connections: int) -> Room:
    """Raise the soft limit as far as so many client connections need it and the hard limit allows."""
    found = look(connections)
    with suppress(ValueError, OSError):  # systems may allow less than the hard limit says
        resource.setrlimit(resource.RLIMIT_NOFILE, (found.files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Room(soft, _left(soft, connections))


def look(connections: int) -> Room:
    """What `raise_limit` would bring about; changes nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OF_A_CLIENT * connections + KEPT
    if soft == resource.RLIM_INFINITY:
        return Room(wanted, connections)
    reached = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    files = max(soft, reached)
    return Room(files, _left(files, connections))


def shortage(room: Room, connections: int) -> str:
    """What to tell the operator where the room is less than was wanted; empty where it is enough."""
    if room.connections >= connections:
        return ""
    needed = OF_A_CLIENT * connections + KEPT
    what = f"room for {room.connections} client connections, not limits.connections ({connections})"
    if not room.connections:
        what = "no room for client connections"
    return f"the limit of open files ({room.files}) leaves {what}; raise its hard limit (ulimit -Hn) to {needed}"


def _left(files: int, connections: int) -> int:
    if files == resource.RLIM_INFINITY:
        return connections
    return min(connections, max(files - KEPT, 0) // OF_A_CLIENT)
