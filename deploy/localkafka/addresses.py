"""Ports that are free now and stay free while a process that used them is restarted."""

from __future__ import annotations

import contextlib
import random
import socket
import sys
from pathlib import Path

HOST = "127.0.0.1"

_LOWEST = 10_240
_TRIES = 200
_BLOCK = 16
"""Ports are claimed in blocks of so many, one socket for each block."""
_LOWEST_EPHEMERAL = 32_768
"""Where the kernel's own ports begin, unless the kernel says otherwise."""

_claims: set[int] = set()
"""Blocks of this process, for as long as it lives."""


def free_ports(count: int) -> range:
    """Return `count` ports in a row that nothing listens on; raises OSError when none are found.

    They lie below the range from which the kernel takes ports for outgoing connections, so that no such connection can
    take one of them while its server is down for a moment. No port is given out twice, also not to two processes at the
    same time (Linux).
    """
    chance = random.SystemRandom()
    wanted = -(-count // _BLOCK)
    highest = _lowest_ephemeral_port() // _BLOCK - wanted
    for _ in range(_TRIES):
        first = chance.randrange(_LOWEST // _BLOCK, highest + 1)
        ports = range(first * _BLOCK, first * _BLOCK + count)
        if _claim(range(first, first + wanted)) and _all_free(ports):
            return ports
    raise OSError(f"no {count} free ports in a row found on {HOST}")


def _claim(blocks: range) -> bool:
    """Make these blocks this process's own: a name of the kernel's (abstract socket) belongs to one socket."""
    if not _claims.isdisjoint(blocks):
        return False
    if sys.platform == "linux":
        with contextlib.ExitStack() as stack:
            names = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in blocks]
            try:
                for name, block in zip(names, blocks, strict=True):
                    name.bind(f"\0localkafka-ports-{block * _BLOCK}")
            except OSError:
                return False
            for name in names:
                name.detach()  # stays open until the process ends
    _claims.update(blocks)
    return True


def _all_free(ports: range) -> bool:
    with contextlib.ExitStack() as held:
        for port in ports:
            listener = held.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((HOST, port))
            except OSError:
                return False
    return True


def _lowest_ephemeral_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return _LOWEST_EPHEMERAL
