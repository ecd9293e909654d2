"""Frames of a byte stream that passes, collected for a trace. Large frames are collected in part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafka_share_proxy.wire.codec.frame_sizes import SIZE
from kafka_share_proxy.wire.errors import RemoteProtocolError


class CollectedFrame(NamedTuple):
    """A frame without its size."""

    data: bytes
    """Bytes of the frame: all, or the first ones."""
    size: int

    @property
    def is_whole(self) -> bool:
        return len(self.data) == self.size


class FrameCollector:
    """Splitter of a byte stream."""

    __slots__ = ("_data", "_head", "_kept_max", "_remaining", "_skip")

    def __init__(self, skip: int, kept_max: int) -> None:
        """`skip`: bytes until the first frame begins. `kept_max`: maximum bytes collected of a frame."""
        self._skip = skip
        self._kept_max = kept_max
        self._head = bytearray()
        self._data = bytearray()
        self._remaining = 0
        """Bytes of the current frame that have not arrived."""

    def feed(self, data: memoryview) -> Iterator[CollectedFrame]:
        """Yield the frames that these bytes complete.

        Raises RemoteProtocolError for a negative size. The collector cannot be used afterwards.
        """
        at = min(self._skip, len(data))
        self._skip -= at
        while at < len(data):
            at = self._body(data, at) if self._remaining else self._size(data, at)
            if not self._remaining and len(self._head) == SIZE.size:
                yield self._completed()

    def _size(self, data: memoryview, at: int) -> int:
        upto = min(len(data), at + SIZE.size - len(self._head))
        self._head += data[at:upto]
        if len(self._head) == SIZE.size:
            (self._remaining,) = SIZE.unpack(self._head)
            if self._remaining < 0:
                raise RemoteProtocolError(f"a frame of {self._remaining} bytes")
        return upto

    def _body(self, data: memoryview, at: int) -> int:
        upto = min(len(data), at + self._remaining)
        self._remaining -= upto - at
        self._data += data[at : min(upto, at + self._kept_max - len(self._data))]
        return upto

    def _completed(self) -> CollectedFrame:
        (size,) = SIZE.unpack(self._head)
        frame = CollectedFrame(bytes(self._data), size)
        self._head.clear()
        self._data = bytearray()
        return frame
