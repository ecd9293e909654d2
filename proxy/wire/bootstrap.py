"""Servers to begin with, as people write them: `host:port,host:port` (bootstrap.servers)."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.wire.values import Address

DEFAULT_PORT = 9092


class BadServer(ValueError):
    """Not a host and a port; its text is what was written, quoted."""


def servers(parts: Iterable[str]) -> tuple[Address, ...]:
    """Servers out of lists with commas, each once, in their order; perhaps none. Raises BadServer."""
    written = (each.strip() for part in parts for each in part.split(",") if each.strip())
    return tuple(dict.fromkeys(map(_server, written)))


def _server(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if "/" in text or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise BadServer(repr(text))
    return Address(host, int(port))
