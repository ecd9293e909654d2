"""Fast path for common OffsetCommit frames: the committed offsets and their positions are read in one pass over the
bytes.

The C extension `wire.codec._commit_frames` does the pass, or the Python fallback here; `KERNEL` names the one in use.
Uncommon requests (tagged fields, null or empty arrays, many partitions, invalid bytes) are left to the generated codec.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple, TypeVar

from kafka_share_proxy.wire import kernels
from kafka_share_proxy.wire.codec.primitives import STRING_MAX, Buffer

try:
    from kafka_share_proxy.wire.codec import _commit_frames
except ImportError:  # no compiler was available at installation
    _commit_frames = None  # type: ignore[assignment]

BUILT_VERSION = 2
"""`VERSION` of the extension that matches this file. An older one is not used."""
VERSIONS = range(2, 11)
PARTITIONS_MAX = 64
"""Maximum number of partitions on the fast path."""
FLEXIBLE_SINCE = 8
SHORT_MAX = 30
"""Characters of metadata, in UTF-8 at most 126 bytes, that the extension writes."""
COMPACT_BYTE_MAX = 0x7F
"""Length with one byte."""

_RETENTION_UNTIL, _EPOCH_SINCE, _INSTANCE_SINCE, _IDS_SINCE, _THROTTLE_SINCE = 4, 6, 7, 10, 3
_UUID = 16
_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")
_OFFSET_AND_EPOCH = Struct(">qi")
_HEADERS = {"request": 12, "response": 8}
"""Bytes before the client id, or before the body."""

T = TypeVar("T")


class CommittedEntry(NamedTuple):
    """One partition of a request, with positions of its fields."""

    topic: str | bytes
    """Topic name; topic id from v10 on."""
    partition: int
    offset: int
    leader_epoch: int
    """-1 below v6, which has no leader epoch."""
    metadata: str | None
    offset_at: int
    metadata_at: int
    after_metadata: int


class CommitParts(NamedTuple):
    """Fields of an OffsetCommit request."""

    client_id: str | None
    group_id: str
    member_id: str
    entries: list[CommittedEntry]
    """Entries in the order of the request, grouped by topic. The extension returns plain tuples."""


class _NotFast(Exception):
    pass


class _Reader:
    """Python fallback of the reader in C."""

    def __init__(self, frame: Buffer, at: int, version: int) -> None:
        if version not in VERSIONS or len(frame) < at:
            raise _NotFast
        self.frame, self.at, self.version = bytes(frame), at, version
        self.is_flexible = version >= FLEXIBLE_SINCE

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.frame) - self.at:
            raise _NotFast
        self.at += count
        return self.frame[self.at - count : self.at]

    def number(self, layout: Struct) -> int:
        return int(layout.unpack(self.take(layout.size))[0])

    def compact(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value - 1
        raise _NotFast

    def text(self, *, is_compact: bool) -> str | None:
        length = self.compact() if is_compact else self.number(_INT16)
        if length == -1:
            return None
        try:
            return self.take(_NONE if length > STRING_MAX else length).decode()
        except UnicodeDecodeError:
            raise _NotFast from None

    def present_text(self) -> str:
        text = self.text(is_compact=self.is_flexible)
        if text is None:
            raise _NotFast
        return text

    def array(self) -> int:
        count = self.compact() if self.is_flexible else self.number(_INT32)
        if not 0 < count <= PARTITIONS_MAX:
            raise _NotFast
        return count

    def no_tags(self) -> None:
        if self.is_flexible and self.take(1) != b"\0":
            raise _NotFast

    def end(self, result: T) -> T:
        """Return `result` if the frame ends here."""
        if self.at != len(self.frame):
            raise _NotFast
        return result


_NONE = -1


def _python_read(frame: Buffer, version: int) -> CommitParts | None:
    try:
        return _parts(_Reader(frame, _HEADERS["request"], version))
    except _NotFast:
        return None


def _parts(reader: _Reader) -> CommitParts:
    client_id = reader.text(is_compact=False)
    reader.no_tags()
    group_id = reader.present_text()
    reader.take(_INT32.size)  # the generation
    member_id = reader.present_text()
    if reader.version >= _INSTANCE_SINCE:
        reader.text(is_compact=reader.is_flexible)
    if reader.version <= _RETENTION_UNTIL:
        reader.take(_INT64.size)
    entries: list[CommittedEntry] = []
    for _ in range(reader.array()):
        _read_topic(reader, entries)
    reader.no_tags()
    return reader.end(CommitParts(client_id, group_id, member_id, entries))


def _read_topic(reader: _Reader, entries: list[CommittedEntry]) -> None:
    topic = reader.take(_UUID) if reader.version >= _IDS_SINCE else reader.present_text()
    for _ in range(reader.array()):
        if len(entries) >= PARTITIONS_MAX:
            raise _NotFast
        partition = reader.number(_INT32)
        offset_at = reader.at
        offset = reader.number(_INT64)
        epoch = reader.number(_INT32) if reader.version >= _EPOCH_SINCE else -1
        metadata_at = reader.at
        metadata = reader.text(is_compact=reader.is_flexible)
        entries.append(CommittedEntry(topic, partition, offset, epoch, metadata, offset_at, metadata_at, reader.at))
        reader.no_tags()
    reader.no_tags()


def _python_accepted(frame: Buffer, version: int, partitions: int) -> bool:
    try:
        return _is_accepted(_Reader(frame, _HEADERS["response"], version), partitions)
    except _NotFast:
        return False


def _is_accepted(reader: _Reader, partitions: int) -> bool:
    reader.no_tags()
    if reader.version >= _THROTTLE_SINCE:
        reader.take(_INT32.size)
    accepted_count = 0
    for _ in range(reader.array()):
        if reader.version >= _IDS_SINCE:
            reader.take(_UUID)
        else:
            reader.take(reader.compact() if reader.is_flexible else reader.number(_INT16))
        for _ in range(reader.array()):
            accepted_count += 1
            reader.take(_INT32.size)
            if reader.number(_INT16):
                return False
            reader.no_tags()
        reader.no_tags()
    reader.no_tags()
    return reader.end(accepted_count == partitions)


def _python_rewritten(
    frame: Buffer, version: int, entries: list[CommittedEntry], fields: list[tuple[int, int, str | None]]
) -> bytes:
    pieces: list[Buffer] = []
    at = _INT32.size
    for (_, _, _, _, _, offset_at, metadata_at, after_metadata), (offset, leader_epoch, metadata) in zip(
        entries, fields, strict=True
    ):
        pieces.append(frame[at:offset_at])
        pieces.append(_OFFSET_AND_EPOCH.pack(offset, leader_epoch) if version >= _EPOCH_SINCE else _INT64.pack(offset))
        pieces.append(frame[metadata_at:after_metadata] if metadata is None else _text(version, metadata.encode()))
        at = after_metadata
    body = b"".join((*pieces, frame[at:]))
    return _INT32.pack(len(body)) + body


def _text(version: int, text: bytes) -> bytes:
    size = len(text)
    if size > STRING_MAX:
        raise ValueError(f"{size} bytes are no string of a request")
    if version < FLEXIBLE_SINCE:
        return _INT16.pack(size) + text
    compact, remaining = bytearray(), size + 1
    while remaining > COMPACT_BYTE_MAX:
        compact.append(remaining & COMPACT_BYTE_MAX | 0x80)
        remaining >>= 7
    return bytes(compact) + remaining.to_bytes(1, "big") + text


KERNEL = kernels.choose("wire.codec._commit_frames", _commit_frames, BUILT_VERSION)

read: Callable[[Buffer, int], CommitParts | None] = _commit_frames.read if KERNEL == "c" else _python_read  # type: ignore[assignment]
accepted: Callable[[Buffer, int, int], bool] = _commit_frames.accepted if KERNEL == "c" else _python_accepted
"""True if a response frame has that many partitions, all without an error. False also for an uncommon one."""
_short_rewritten = _commit_frames.rewritten if KERNEL == "c" else _python_rewritten
"""Accepts metadata of at most SHORT_MAX bytes."""


def rewritten(
    frame: Buffer, version: int, entries: list[CommittedEntry], fields: list[tuple[int, int, str | None]]
) -> bytes:
    """Return the request frame with an offset, a leader epoch and metadata for each entry.

    Metadata None means unchanged. Below v6 no leader epoch is written. Raises ValueError if metadata is longer than
    Kafka's strings.
    """
    for _, _, metadata in fields:
        if metadata is not None and len(metadata) > SHORT_MAX:
            return _python_rewritten(frame, version, entries, fields)
    rewritten_frame: bytes = _short_rewritten(frame, version, entries, fields)
    return rewritten_frame
