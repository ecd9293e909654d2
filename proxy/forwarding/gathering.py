"""One frame that is collected whole before anybody looks at it."""

from __future__ import annotations

from contextlib import suppress
from mmap import mmap

from proxy.forwarding.walking import room
from proxy.wire.frame_sizes import SIZE

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
