"""ShareFetch responses without errors, encoded in one pass: every response of a group at work is one.

The generated codec needs an object for each partition and range, and a part for each field. v1 and v2 have one layout.
All other responses (an error, a moved leader, tagged fields, very many partitions) are left to the generated codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct

from kafka_share_proxy.wire.codec.frames import PIECE_MIN, Pieces, ResponseFrame
from kafka_share_proxy.wire.codec.primitives import uvarint

FetchedPartition = tuple[int, memoryview | bytes, Iterable[tuple[int, int, int]]]
"""Partition index, records, and acquired ranges: first offset, last offset, delivery count."""

_SIZE = Struct(">i")
_HEAD = Struct(">iBihBi")
"""Correlation id, no tagged fields of the header, throttle time, no error, no error message, lock duration."""
_PARTITION = Struct(">ihBhBiiB")
"""Index, no error and message, no acknowledgement error and message, current leader, its tagged fields."""
_NO_ERROR = (0, 0, 0, 0, -1, -1, 0)
_RANGE = Struct(">qqhB")
"""Fields of a range, no tagged fields."""
_NO_TAGS = b"\0"
_NO_ENDPOINTS = b"\1\0"
"""An empty array, and no tagged fields of the response."""


def frame_without_errors(
    correlation_id: int, throttle_time_ms: int, lock_duration_ms: int, topics: Mapping[bytes, list[FetchedPartition]]
) -> ResponseFrame:
    """Return a frame with its size, like `frames.response_frame`, which does not copy large fields."""
    pieces: list[bytes | memoryview] = []
    small = [_HEAD.pack(correlation_id, 0, throttle_time_ms, 0, 0, lock_duration_ms), uvarint(len(topics) + 1)]
    size = 0
    for topic_id, partitions in topics.items():
        small += (topic_id, uvarint(len(partitions) + 1))
        for index, records, acquired in partitions:
            small += (_PARTITION.pack(index, *_NO_ERROR), uvarint(len(records) + 1))
            if len(records) < PIECE_MIN:
                small.append(bytes(records))
            else:
                piece = b"".join(small)
                pieces += (piece, records)
                size += len(piece) + len(records)
                small = []
            ranges = [_RANGE.pack(*each, 0) for each in acquired]
            small += (uvarint(len(ranges) + 1), *ranges, _NO_TAGS)
        small.append(_NO_TAGS)
    small.append(_NO_ENDPOINTS)
    last = b"".join(small)
    if not pieces:
        return _SIZE.pack(len(last)) + last
    pieces[0] = _SIZE.pack(size + len(last)) + bytes(pieces[0])
    pieces.append(last)
    return Pieces(pieces)
