"""Ports that are free now and stay free while a process that used them is restarted."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

HOST = "127.0.0.1"

_LOWEST = 10_240
_TRIES = 200


def free_ports(count: int) -> range:
    """Return `count` ports in a row that nothing listens on; raises OSError when none are found.

    They lie below the range from which the kernel takes ports for outgoing connections, so that no such
    connection can take one of them while its server is down for a moment.
    """
    chance = random.SystemRandom()
    for _ in range(_TRIES):
        first = chance.randrange(_LOWEST, _lowest_ephemeral_port() - count)
        ports = range(first, first + count)
        if _all_free(ports):
            return ports
    raise OSError(f"no {count} free ports in a row found on {HOST}")


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
        return 32_768
