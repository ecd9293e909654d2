"""Which group a request names, told from its first bytes: cheap, for `serve_here`.

A frame that cannot be read is not ours: the broker judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct, error
from typing import Any

from proxy.apis.share_fleet import HeldAnywhere
from proxy.errors import RemoteProtocolError
from proxy.wire import frames, headers, registry

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


def lists_held_group(groups: HeldAnywhere, names: Callable[[Any], Iterable[str]]) -> ServeHere:
    """Requests that name a share group, as `names` finds them in the decoded request; for APIs that are rare."""

    def serve_here(frame: memoryview) -> bool:
        if not groups:
            return False
        request = decoded(frame)
        return request is not None and any(name in groups for name in names(request))

    return serve_here


def decoded(frame: memoryview) -> Any:
    """The request, or None where it cannot be read."""
    try:
        return frames.decode_request(frame)[1]
    except (RemoteProtocolError, registry.UnknownVersion):
        return None
