"""Number of clients that the process's limit of open files allows.

Each client connection uses two descriptors, its own and that of its upstream connection. Linux starts processes with a
soft limit of 1024, which they may raise up to the hard limit. The system or the service manager sets the hard limit
(`ulimit -Hn`, LimitNOFILE=, --ulimit nofile).
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import NamedTuple

RESERVED = 256
"""Descriptors reserved for other uses than clients: listeners of the brokers, the admin listener and its connections
(32), the proxy's own connections to brokers and other proxies, pending connects to several addresses, files, the event
loop.
"""
PER_CLIENT = 2
"""Descriptors of a client: its connection and its upstream connection."""


class ClientCapacity(NamedTuple):
    """Number of clients that a limit of open files allows."""

    files: int
    """The soft limit."""
    connections: int
    """Possible client connections, at most the requested number."""


def raise_limit(connections: int) -> ClientCapacity:
    """Raise the soft limit as far as this number of client connections needs it and the system allows it."""
    capacity = expected_capacity(connections)
    with suppress(ValueError, OSError):  # systems may allow less than the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (capacity.files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return ClientCapacity(soft, _possible_connections(soft, connections))


def expected_capacity(connections: int) -> ClientCapacity:
    """Return the result that `raise_limit` would have, without changes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = PER_CLIENT * connections + RESERVED
    if soft == resource.RLIM_INFINITY:
        return ClientCapacity(needed, connections)
    reached = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    files = max(soft, reached)
    return ClientCapacity(files, _possible_connections(files, connections))


def shortage(capacity: ClientCapacity, connections: int) -> str:
    """Return advice for the operator, or "" if all connections fit."""
    if capacity.connections >= connections:
        return ""
    needed = PER_CLIENT * connections + RESERVED
    text = f"room for {capacity.connections} client connections, not limits.connections ({connections})"
    if not capacity.connections:
        text = "no room for client connections"
    return f"the limit of open files ({capacity.files}) leaves {text}; raise its hard limit (ulimit -Hn) to {needed}"


def _possible_connections(files: int, connections: int) -> int:
    if files == resource.RLIM_INFINITY:
        return connections
    return min(connections, max(files - RESERVED, 0) // PER_CLIENT)
