"""New addresses between old bytes: the common case of rewriting an answer.

`wire.endpoints` gives where host and port stand. Everything else in the new frame is copied, unknown tags included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from proxy.cluster.addresses import AddressBook
from proxy.values import Address

SIZE = 4
"""Bytes of the size prefix in front of a frame."""


class Endpoint(Protocol):
    """A host and a port in an answer (`wire.endpoints`): [start:end) are the bytes of both."""

    node_id: int
    start: int
    end: int
    host: str | None
    port: int


def placed(found: Iterable[Any], book: AddressBook) -> list[tuple[Any, Address]] | None:
    """Our address for every endpoint that has one; None when a broker has to be left out.

    An empty host is no address ("no coordinator", node -1): it stays as it is.
    """
    pairs = []
    for endpoint in found:
        if not endpoint.host:
            continue
        ours = book.advertise(endpoint.node_id, Address(endpoint.host, endpoint.port))
        if ours is None:
            return None
        pairs.append((endpoint, ours))
    return pairs


def splice(
    frame: memoryview, replacements: Sequence[tuple[Any, Address]], encode: Callable[[str, int], bytes]
) -> bytes:
    """The frame with a size prefix and the given endpoints replaced; `encode` gives the bytes of one."""
    parts: list[bytes | memoryview] = [b""]
    position, length = 0, len(frame)
    for endpoint, address in replacements:
        new = encode(*address)
        parts += (frame[position : endpoint.start], new)
        length += len(new) - (endpoint.end - endpoint.start)
        position = endpoint.end
    parts.append(frame[position:])
    parts[0] = length.to_bytes(SIZE, "big")
    return b"".join(parts)
