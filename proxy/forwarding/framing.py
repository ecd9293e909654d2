"""Frames as both sides of a connection see them: a 4-byte size, then that many bytes.

Sizes are judged here, once: a size below the smallest header or above the limit ends the connection, and what it
probably was is said, for most of them are no Kafka at all (a TLS hello read as a size is about 370 million).
"""

from __future__ import annotations

import struct
from contextlib import suppress
from mmap import mmap

from proxy.forwarding.walking import room
from proxy.wire.errors import RemoteProtocolError

REQUEST_HEAD = struct.Struct(">i4si")
"""Size, API key and version as four bytes, correlation id: the part of a request header every version has."""

ANSWER_HEAD = struct.Struct(">ii")
"""Size, correlation id."""

SIZE = struct.Struct(">i")

REQUEST_MIN = REQUEST_HEAD.size - SIZE.size
"""Smallest request: key, version, correlation id (request header v0 of ControlledShutdown has nothing more)."""

ANSWER_MIN = ANSWER_HEAD.size - SIZE.size

_TLS_RECORDS = {0x14: "change of cipher", 0x15: "alert", 0x16: "handshake", 0x17: "data"}
_HTTP_WORDS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC", b"HTTP", b"PRI ")


def wrong_size(size: int, largest: int, smallest: int) -> RemoteProtocolError:
    """The error for a size outside smallest..largest, with what the bytes look like.

    Args:
        size: as read, signed.
        largest: the limit, bytes.
        smallest: the shortest frame that can be meant, bytes.
    """
    looks_like = hint(SIZE.pack(size))
    if looks_like:
        return RemoteProtocolError(f"no Kafka frame but {looks_like}")
    if size < 0:
        return RemoteProtocolError(f"negative frame size {size}")
    if size < smallest:
        return RemoteProtocolError(f"frame of {size} bytes is too short for a header")
    return RemoteProtocolError(f"frame of {size} bytes is larger than the limit of {largest}")


def hint(first: bytes) -> str:
    """What four bytes in the place of a size probably are; empty when they may be a size."""
    if first[0] in _TLS_RECORDS and first[1] == 3 and first[2] <= 4:
        return f"a TLS {_TLS_RECORDS[first[0]]} record (TLS spoken to a plain-text port?)"
    if first in _HTTP_WORDS:
        return "HTTP (an HTTP client or health check on a Kafka port?)"
    if first == b"SSH-":
        return "SSH"
    return ""


PRESIZED_MAX = (4 << 20) + (64 << 10)
"""Most bytes of a frame for which there is room before they come, where its sender is believed: as much as is read
ahead for share groups (`ShareOptions.read_ahead_bytes`), and what stands around it. `ROOM_BYTES` of _walk.c."""


MAPPED_MIN = 128 << 10
"""From this size on a frame has memory of its own from the system, which takes its pages as they are written to and
gives them back at its end: buffers that grow beside each other would leave as much again unused between them."""


def _mapped(size: int) -> memoryview | None:
    """Memory for so many bytes; None where they are few, or the system gives no more in advance."""
    if size < MAPPED_MIN:
        return None
    with suppress(OSError):
        return memoryview(mmap(-1, size))
    return None


class Gathering:
    """One frame, size included, that is collected whole; grows with what came, not with what was announced.

    With `presized` there is memory for all of it at once, unless it is longer than `PRESIZED_MAX`. Where there is room
    in advance, `room` gives what is free of it, to be read into.
    """

    __slots__ = ("_bytes", "_come", "_room", "_whole", "subject")

    def __init__(self, frame_size: int, subject: object, *, presized: bool = False) -> None:
        """`frame_size` without the 4 size bytes; `subject`: what the frame is for, kept for the caller."""
        self._whole = frame_size + SIZE.size
        self._room = room(self._whole) if presized and self._whole <= PRESIZED_MAX else _mapped(self._whole)
        self._bytes = bytearray()
        self._come = 0
        self.subject = subject

    def add(self, buffer: memoryview, start: int, end: int) -> int:
        """Take what belongs to the frame from buffer[start:end]; return where the rest begins."""
        upto = min(end, start + self.left)
        if self._room is None:
            self._bytes += buffer[start:upto]
        else:
            self._room[self._come : self._come + upto - start] = buffer[start:upto]
        self._come += upto - start
        return upto

    @property
    def room(self) -> memoryview | None:
        """Where the next bytes of the frame may be read into, see `filled`; None when there is no room in advance."""
        return None if self._room is None or self.is_whole else self._room[self._come :]

    def filled(self, count: int) -> None:
        """So many bytes were read into `room`."""
        self._come += count

    @property
    def whole(self) -> int:
        """How many bytes it has."""
        return self._whole

    @property
    def come(self) -> int:
        """How many bytes have come."""
        return self._come

    @property
    def left(self) -> int:
        """How many bytes have not come."""
        return self._whole - self._come

    @property
    def is_whole(self) -> bool:
        """Whether the last byte has come."""
        return self._come == self._whole

    @property
    def frame(self) -> memoryview:
        """What has come of the frame, with its size; writable, and nobody else's."""
        return memoryview(self._bytes) if self._room is None else self._room[: self._come]
