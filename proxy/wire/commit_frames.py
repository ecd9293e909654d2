"""OffsetCommit in its commonest form: what a request commits and where that stands, in one pass over its bytes.

A proxy that serves individual commits reads thousands of them a second, changes two fields, and sends the rest on as it
came. The pass is made by the C extension `proxy.wire._commit_frames` where it could be built, else by its twin here;
`KERNEL` says which. What is out of the common (tagged fields, null or empty arrays, many partitions, bytes that are no
such request) is left to the generated codec.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple, TypeVar

from proxy.wire.primitives import STRING_MAX, Buffer

try:
    from proxy.wire import _commit_frames
except ImportError:  # no compiler was there when this was installed
    _commit_frames = None  # type: ignore[assignment]

BUILT_VERSION = 2
"""`VERSION` of the extension that belongs to this file: one left over from an older source is not used."""
VERSIONS = range(2, 11)
"""Of the API."""
PARTITIONS_MAX = 64
"""Requests with more are left to the codec, which reads them in slices."""
FLEXIBLE_SINCE = 8

_RETENTION_UNTIL, _EPOCH_SINCE, _INSTANCE_SINCE, _IDS_SINCE, _THROTTLE_SINCE = 4, 6, 7, 10, 3
_UUID = 16
_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")
_OFFSET_AND_EPOCH = Struct(">qi")
_HEADERS = {"request": 12, "response": 8}
"""Bytes of size, API key, version and correlation id; of size and correlation id."""

T = TypeVar("T")


class CommittedEntry(NamedTuple):
    """One partition of a request, and where its fields stand in the frame."""

    topic: str | bytes
    """Its name; its id from v10 on."""
    partition: int
    offset: int
    leader_epoch: int
    """-1 below v6, which has none."""
    metadata: str | None
    offset_at: int
    metadata_at: int
    behind_metadata: int


class CommitParts(NamedTuple):
    """What a request says."""

    client_id: str | None
    group_id: str
    member_id: str
    entries: list[CommittedEntry]
    """By topic in the order of the request; plain tuples where the extension made them."""


class _NotUsual(Exception):
    """Left to the codec."""


class _Reader:
    """The twin of the one in C."""

    def __init__(self, frame: Buffer, at: int, version: int) -> None:
        if version not in VERSIONS or len(frame) < at:
            raise _NotUsual
        self.frame, self.at, self.version = bytes(frame), at, version
        self.is_flexible = version >= FLEXIBLE_SINCE

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if not 0 <= count <= len(self.frame) - self.at:
            raise _NotUsual
        self.at += count
        return self.frame[self.at - count : self.at]

    def number(self, layout: Struct) -> int:
        """The next integer."""
        return int(layout.unpack(self.take(layout.size))[0])

    def compact(self) -> int:
        """The count of a compact array or string; -1: null."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value - 1
        raise _NotUsual

    def text(self, *, is_compact: bool) -> str | None:
        """The next string."""
        length = self.compact() if is_compact else self.number(_INT16)
        if length == -1:
            return None
        try:
            return self.take(_NONE if length > STRING_MAX else length).decode()
        except UnicodeDecodeError:
            raise _NotUsual from None

    def present_text(self) -> str:
        """The next string, which must be there."""
        found = self.text(is_compact=self.is_flexible)
        if found is None:
            raise _NotUsual
        return found

    def array(self) -> int:
        """The number of elements."""
        count = self.compact() if self.is_flexible else self.number(_INT32)
        if not 0 < count <= PARTITIONS_MAX:
            raise _NotUsual
        return count

    def no_tags(self) -> None:
        """Nothing is tagged."""
        if self.is_flexible and self.take(1) != b"\0":
            raise _NotUsual

    def end(self, found: T) -> T:
        """The same, where nothing follows."""
        if self.at != len(self.frame):
            raise _NotUsual
        return found


_NONE = -1


def _twin_read(frame: Buffer, version: int) -> CommitParts | None:
    try:
        return _parts(_Reader(frame, _HEADERS["request"], version))
    except _NotUsual:
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
            raise _NotUsual
        partition = reader.number(_INT32)
        offset_at = reader.at
        offset = reader.number(_INT64)
        epoch = reader.number(_INT32) if reader.version >= _EPOCH_SINCE else -1
        metadata_at = reader.at
        metadata = reader.text(is_compact=reader.is_flexible)
        entries.append(CommittedEntry(topic, partition, offset, epoch, metadata, offset_at, metadata_at, reader.at))
        reader.no_tags()
    reader.no_tags()


def _twin_accepted(frame: Buffer, version: int, partitions: int) -> bool:
    try:
        return _is_accepted(_Reader(frame, _HEADERS["response"], version), partitions)
    except _NotUsual:
        return False


def _is_accepted(reader: _Reader, partitions: int) -> bool:
    reader.no_tags()
    if reader.version >= _THROTTLE_SINCE:
        reader.take(_INT32.size)
    found = 0
    for _ in range(reader.array()):
        if reader.version >= _IDS_SINCE:
            reader.take(_UUID)
        else:
            reader.take(reader.compact() if reader.is_flexible else reader.number(_INT16))
        for _ in range(reader.array()):
            found += 1
            reader.take(_INT32.size)
            if reader.number(_INT16):
                return False
            reader.no_tags()
        reader.no_tags()
    reader.no_tags()
    return reader.end(found == partitions)


def _twin_rewritten(
    frame: Buffer, version: int, entries: list[CommittedEntry], fields: list[tuple[int, int, str | None]]
) -> bytes:
    pieces: list[Buffer] = []
    at = _INT32.size
    for (_, _, _, _, _, offset_at, metadata_at, behind), (offset, leader_epoch, metadata) in zip(
        entries, fields, strict=True
    ):
        pieces.append(frame[at:offset_at])
        pieces.append(_OFFSET_AND_EPOCH.pack(offset, leader_epoch) if version >= _EPOCH_SINCE else _INT64.pack(offset))
        pieces.append(frame[metadata_at:behind] if metadata is None else _short_text(version, metadata))
        at = behind
    body = b"".join((*pieces, frame[at:]))
    return _INT32.pack(len(body)) + body


def _short_text(version: int, text: str) -> bytes:
    size = (len(text) + 1).to_bytes(1, "big") if version >= FLEXIBLE_SINCE else _INT16.pack(len(text))
    return size + text.encode()


KERNEL = "c" if _commit_frames is not None and _commit_frames.VERSION == BUILT_VERSION else "python"

read: Callable[[Buffer, int], CommitParts | None] = _commit_frames.read if KERNEL == "c" else _twin_read  # type: ignore[assignment]
"""(request frame with its size, version) -> what it says; None: it is out of the common."""
accepted: Callable[[Buffer, int, int], bool] = _commit_frames.accepted if KERNEL == "c" else _twin_accepted
"""(response frame with its size, version, partitions) -> whether it has so many partitions, all without an error. False
also where it is out of the common."""
rewritten: Callable[[Buffer, int, list[CommittedEntry], list[tuple[int, int, str | None]]], bytes] = (
    _commit_frames.rewritten if KERNEL == "c" else _twin_rewritten
)
"""(request frame with its size, version, its entries, an offset, a leader epoch and metadata for each) -> the request
with these; metadata None: as it is. New metadata is ASCII text of at most 60 characters. Below v6 there is no leader
epoch, and none is written."""
