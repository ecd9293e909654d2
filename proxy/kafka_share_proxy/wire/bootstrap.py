"""Parser of bootstrap servers, `host:port,host:port` (bootstrap.servers)."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.wire.values import Address

DEFAULT_PORT = 9092


class BadServer(ValueError):
    """Not a host and a port. The text is the quoted input."""


def servers(parts: Iterable[str]) -> tuple[Address, ...]:
    """Parse comma-separated lists of servers, in order and without duplicates. Raises BadServer."""
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
