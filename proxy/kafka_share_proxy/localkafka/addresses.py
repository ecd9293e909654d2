"""Free ports that stay free while a process that uses them is restarted."""

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
"""Ports per block, with one socket for each block."""
_LOWEST_EPHEMERAL = 32_768

_claims: set[int] = set()


def free_ports(count: int) -> range:
    """Return `count` consecutive ports on which no process listens. Raises OSError if none are found.

    They are below the kernel's range for outgoing connections, which could otherwise occupy one while its server is
    down. No port is returned twice, not even to two processes (Linux).
    """
    chance = random.SystemRandom()
    blocks_needed = -(-count // _BLOCK)
    highest = _lowest_ephemeral_port() // _BLOCK - blocks_needed
    for _ in range(_TRIES):
        first = chance.randrange(_LOWEST // _BLOCK, highest + 1)
        ports = range(first * _BLOCK, first * _BLOCK + count)
        if _claim(range(first, first + blocks_needed)) and _all_free(ports):
            return ports
    raise OSError(f"no {count} free ports in a row found on {HOST}")


def _claim(blocks: range) -> bool:
    """Return False if one is taken. An abstract socket name has only one owner."""
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
