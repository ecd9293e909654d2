"""A frame that is collected whole before it is handled."""

from __future__ import annotations

from contextlib import suppress
from mmap import mmap

from kafka_share_proxy.forwarding.walk.walking import room
from kafka_share_proxy.wire.codec.frame_sizes import SIZE

PRESIZED_MAX = (4 << 20) + (64 << 10)
"""Largest frame for which memory is reserved before its bytes arrive: `ShareOptions.read_ahead_bytes` and the fields
around it. `ROOM_BYTES` of _walk.c.
"""


MAPPED_MIN = 128 << 10
"""Frame size from which a frame has its own memory mapping.

Growing buffers next to each other would leave as much again unused between them.
"""


def _mapped(size: int) -> memoryview | None:
    """Return a mapping for a large frame. None if the frame is small, or the system does not reserve memory."""
    if size < MAPPED_MIN:
        return None
    with suppress(OSError):
        return memoryview(mmap(-1, size))
    return None


class Gathering:
    """Frame, size included, that is collected whole.

    With `presized`, memory up to `PRESIZED_MAX` is reserved immediately. Other frames of `MAPPED_MIN` bytes or more get
    a mapping. In both cases `room` returns the free part.
    """

    __slots__ = ("_bytes", "_received", "_room", "_whole", "subject")

    def __init__(self, frame_size: int, subject: object, *, presized: bool = False) -> None:
        """`frame_size` is without the 4 size bytes. `subject` is stored for the caller."""
        self._whole = frame_size + SIZE.size
        self._room = room(self._whole) if presized and self._whole <= PRESIZED_MAX else _mapped(self._whole)
        self._bytes = bytearray()
        self._received = 0
        self.subject = subject

    def add(self, buffer: memoryview, start: int, end: int) -> int:
        """Copy the bytes of the frame. Return where the rest begins."""
        upto = min(end, start + self.missing)
        if self._room is None:
            self._bytes += buffer[start:upto]
        else:
            self._room[self._received : self._received + upto - start] = buffer[start:upto]
        self._received += upto - start
        return upto

    @property
    def room(self) -> memoryview | None:
        """Free memory to read the next bytes into, see `filled`. None if no memory is reserved."""
        return None if self._room is None or self.is_whole else self._room[self._received :]

    def filled(self, count: int) -> None:
        self._received += count

    @property
    def whole(self) -> int:
        return self._whole

    @property
    def received(self) -> int:
        return self._received

    @property
    def missing(self) -> int:
        return self._whole - self._received

    @property
    def is_whole(self) -> bool:
        return self._received == self._whole

    @property
    def frame(self) -> memoryview:
        return memoryview(self._bytes) if self._room is None else self._room[: self._received]
