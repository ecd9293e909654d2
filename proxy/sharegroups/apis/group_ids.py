"""Which group a request names, told from its first bytes: cheap, for `serve_here`.

A frame that cannot be read is not ours: the broker judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct, error
from typing import Any

from proxy.fleet.group_owners import HeldAnywhere
from proxy.forwarding.interfaces import Call
from proxy.forwarding.routes import Picks
from proxy.wire import headers, registry
from proxy.wire.errors import RemoteProtocolError

_LENGTH = Struct(">h").unpack_from

ServeHere = Callable[[memoryview], bool]
"""Request frame without size -> whether the handler answers it."""


def leading_string(frame: memoryview, index: int) -> str | None:
    """The string at this index of a request body that begins with strings; None where there is none to be read."""
    try:
        header, position = headers.decode_request_header(frame)
        read = _compact if headers.request_header_version(header.key, header.version) == 2 else _classic
        for _ in range(index):
            position = read(frame, position)[1]
        start, end = read(frame, position)
        return None if start > end or end > len(frame) else str(frame[start:end], "utf-8")
    except (RemoteProtocolError, registry.UnknownVersion, IndexError, error, UnicodeDecodeError):
        return None


def _classic(frame: memoryview, position: int) -> tuple[int, int]:
    length = _LENGTH(frame, position)[0]
    return position + 2, position + 2 + max(length, 0)


def _compact(frame: memoryview, position: int) -> tuple[int, int]:
    length, shift = 0, 0
    while True:
        byte = frame[position]
        length |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return position, position + max(length - 1, 0)
        if shift > 28:
            raise IndexError(position)


def names_held_group(groups: HeldAnywhere, index: int = 0) -> ServeHere:
    """Requests whose string at this index is the id of a share group."""

    def serve_here(frame: memoryview) -> bool:
        return len(groups) > 0 and leading_string(frame, index) in groups

    return serve_here


def any_entry(entries: Callable[[Any], Iterable[Any]], is_ours: Callable[[Any], bool]) -> Picks:
    """Requests in which one of the entries is ours; `entries` finds them in the decoded request."""

    async def picks(call: Call) -> bool:
        for entry in entries(call.message):
            if is_ours(entry):
                return True
            await call.work.step(len(entry) if isinstance(entry, str) else 0)
        return False

    return picks
