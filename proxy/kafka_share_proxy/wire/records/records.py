"""Record batches: iteration over their headers, and decoding of their records.

Layout: wire/README.md rules 14 and 28.

State is appended in uncompressed batches of a few records without headers. The C extension
`kafka_share_proxy.wire.records._small_batches` builds these, or the general code here; `KERNEL` names the
implementation in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from struct import Struct
from typing import NamedTuple, Protocol

from kafka_share_proxy.wire import kernels
from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.codec.varints import varlong
from kafka_share_proxy.wire.errors import LocalProtocolError, RemoteProtocolError
from kafka_share_proxy.wire.records import compression, record_positions
from kafka_share_proxy.wire.records.record_positions import RecordPositions
from kafka_share_proxy.wire.values import MIB

try:
    from kafka_share_proxy.wire.records import _small_batches
except ImportError:  # no compiler was available at installation
    _small_batches = None  # type: ignore[assignment]

BUILT_VERSION = 4
"""`VERSION` of the extension that matches this file. An older one is not used."""
HEADER = Struct(">qiibIhiqqqhii")
"""Base offset, size, leader epoch, magic, crc, attributes, last offset delta, base timestamp, max timestamp, producer
id, producer epoch, base sequence, number of records.
"""
RECORD_OVERHEAD = 36
"""Maximum bytes of a record in addition to its key, value and headers."""
HEADER_OVERHEAD = 10
"""Maximum bytes of the lengths of one header of a record."""
VARINTS_REMEMBERED = 16_384
"""Number of encoded lengths and deltas that are cached."""
LOG_OVERHEAD = 12
"""Bytes of the offset and size fields, which the size does not include."""
OPENED_BYTES_MAX = 16 * MIB
"""Bytes of decompressed batches after which one poll of a consumer opens no further batch."""
DECOMPRESSED_MAX = 64 * MIB
"""Maximum bytes of one batch after decompression (wire/README.md rule 17)."""

NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
CREATE_TIME, LOG_APPEND_TIME = range(2)
"""Origin of the timestamps of a batch: producer or broker (TimestampType, KIP-32)."""
COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20

_SIZE_AT = 8
_MAGIC_AT = 16
_CRC_AT = 17
_CRC_FROM = 21
_SIZE_MIN = {0: 14, 1: 22, 2: HEADER.size - LOG_OVERHEAD}
"""Smallest size field, by magic (LegacyRecord.RECORD_OVERHEAD_V0 and _V1)."""

_unpack_start = Struct(">qi").unpack_from
_unpack_header = HEADER.unpack_from
_UINT32 = Struct(">I")
_OFFSET_MAX = (1 << 63) - 1
_INT64 = Struct(">q")


class HeaderFields(Protocol):
    """Fields that every representation of a batch header has."""

    @property
    def attributes(self) -> int:
        """Bits: `COMPRESSION_MASK` and the other masks."""

    @property
    def position(self) -> int: ...

    @property
    def size(self) -> int:
        """Bytes including the offset and size fields."""


class BatchProperties:
    """Properties derived from the fields of a batch header."""

    __slots__ = ()

    @property
    def is_control(self: HeaderFields) -> bool:
        """True if the batch contains control records, such as a transaction marker."""
        return bool(self.attributes & CONTROL_MASK)

    @property
    def is_transactional(self: HeaderFields) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def compression(self: HeaderFields) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self: HeaderFields) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_MASK)

    @property
    def timestamp_type(self: HeaderFields) -> int:
        """CREATE_TIME or LOG_APPEND_TIME."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else CREATE_TIME

    @property
    def end(self: HeaderFields) -> int:
        """Byte position of the next batch."""
        return self.position + self.size


@dataclass(slots=True)
class BatchHeader(BatchProperties):
    """Header of one batch, or of one message of magic 0 and 1, with Kafka's "none" for missing fields.

    A compressed wrapper of magic 0 or 1 contains only the offset of its last message, also as base_offset.
    """

    base_offset: int
    last_offset: int
    position: int
    size: int
    """Bytes including the offset and size fields."""
    magic: int
    leader_epoch: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    """Milliseconds since 1970."""
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int


class Record(NamedTuple):
    """Record of a batch. An `offset` of -1 is replaced by the base offset plus the index when a batch is built."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int = NO_TIMESTAMP
    """Milliseconds since 1970."""
    offset: int = -1
    timestamp_type: int = CREATE_TIME


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[BatchHeader]:
    """Yield the header of each batch from `position` on. Raises RemoteProtocolError.

    A truncated last batch, which is normal, ends the iteration.
    """
    end = len(buffer)
    while position + _MAGIC_AT < end:
        _, length = _unpack_start(buffer, position)
        magic = buffer[position + _MAGIC_AT]
        if length < _SIZE_MIN.get(magic, 1 << 31):
            raise RemoteProtocolError(f"a record batch of magic {magic} and size {length}")
        size = length + LOG_OVERHEAD
        if position + size > end:
            return
        yield _read_header(buffer, position, size) if magic == 2 else _read_message(buffer, position, size, magic)
        position += size


def _read_header(buffer: Buffer, position: int, size: int) -> BatchHeader:
    (
        base_offset,
        _,
        leader_epoch,
        magic,
        _,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    ) = _unpack_header(buffer, position)
    if base_offset < 0 or last_offset_delta < 0 or records_count < 0 or base_offset > _OFFSET_MAX - last_offset_delta:
        raise RemoteProtocolError(f"a record batch at offset {base_offset} with last offset delta {last_offset_delta}")
    return BatchHeader(
        base_offset,
        base_offset + last_offset_delta,
        position,
        size,
        magic,
        leader_epoch,
        attributes,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    )


def _read_message(buffer: Buffer, position: int, size: int, magic: int) -> BatchHeader:
    offset = _unpack_start(buffer, position)[0]
    if offset < 0:
        raise RemoteProtocolError(f"a message at offset {offset}")
    attributes = buffer[position + _MAGIC_AT + 1]
    timestamp = _INT64.unpack_from(buffer, position + _MAGIC_AT + 2)[0] if magic == 1 else NO_TIMESTAMP
    attributes &= COMPRESSION_MASK | TIMESTAMP_TYPE_MASK
    return BatchHeader(offset, offset, position, size, magic, -1, attributes, timestamp, timestamp, -1, -1, -1, 1)


def build_batch(
    base_offset: int,
    records: Iterable[Record],
    *,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    codec: int = compression.NONE,
    last_offset: int | None = None,
) -> bytes:
    """Build one batch of magic 2 with its checksum.

    Args:
        base_offset: offset of the batch; producers write 0.
        records: at least one, unless `last_offset` is given; a timestamp of -1 stays -1.
        leader_epoch: -1 unless a broker wrote it.
        producer_id: -1, as producer_epoch and base_sequence, for a producer that is not idempotent.
        producer_epoch: see producer_id.
        base_sequence: see producer_id.
        is_transactional: attribute bit 4.
        is_control: attribute bit 5.
        codec: compression of the records (`compression.NONE`, `GZIP`...).
        last_offset: last offset if the last record is missing (compaction). None to use that of the last record.

    Raises:
        LocalProtocolError: there is no record, a record is out of order, or a value has the wrong type.
    """
    placed = list(records)
    attributes = codec | (TRANSACTIONAL_MASK if is_transactional else 0) | (CONTROL_MASK if is_control else 0)
    if last_offset is None:
        small = _build_small(placed, base_offset, leader_epoch, producer_id, producer_epoch, base_sequence, attributes)
        if small is not None:
            return small if codec == compression.NONE else _compressed(small, codec)
    deltas = [r.offset - base_offset if r.offset >= 0 else i for i, r in enumerate(placed)]
    last = base_offset + deltas[-1] if last_offset is None and placed else last_offset
    if last is None or last < base_offset or (placed and not 0 <= min(deltas) <= max(deltas) <= last - base_offset):
        raise LocalProtocolError(f"a record batch from {base_offset} to {last} cannot hold these {len(placed)} records")
    base_timestamp = placed[0].timestamp if placed else NO_TIMESTAMP
    body = b"".join([_record(r, delta, r.timestamp - base_timestamp) for r, delta in zip(placed, deltas, strict=True)])
    body = compression.compress(codec, body)
    header = HEADER.pack(
        base_offset,
        HEADER.size - LOG_OVERHEAD + len(body),
        leader_epoch,
        2,
        0,
        attributes,
        last - base_offset,
        base_timestamp,
        max((r.timestamp for r in placed), default=NO_TIMESTAMP),
        producer_id,
        producer_epoch,
        base_sequence,
        len(placed),
    )
    return seal(header + body)


def bytes_max(records: Iterable[Record]) -> int:
    """Return the maximum bytes of a batch of these records that is not compressed."""
    size = HEADER.size
    names: dict[str, int] = {}
    for record in records:
        key, value, headers = record[:3]
        size += RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
        for name, content in headers:
            if name not in names:
                names[name] = HEADER_OVERHEAD + len(name.encode())
            size += names[name] + (len(content) if content else 0)
    return size


def _compressed(batch: bytes, codec: int) -> bytes:
    """Compress the records of a batch whose attributes name the codec already."""
    body = compression.compress(codec, batch[HEADER.size :])
    size = _UINT32.pack(HEADER.size - LOG_OVERHEAD + len(body))
    return seal(batch[:_SIZE_AT] + size + batch[LOG_OVERHEAD : HEADER.size] + body)


def _not_built(*_: object) -> None:
    """Return None: the general code builds the batch."""


KERNEL = kernels.choose("wire.records._small_batches", _small_batches, BUILT_VERSION)
_build_small: Callable[..., bytes | None] = _small_batches.build if KERNEL == "c" else _not_built


def _unknown(*_: object) -> bool:
    """Return False: every batch must be decompressed."""
    return False


has_only_keys: Callable[[Buffer, bytes], bool] = _small_batches.has_only if KERNEL == "c" else _unknown
"""Returns True if the checksum is valid and all keys begin with the prefix. False also means unknown: it does not
decompress.
"""


def _nothing_kept(_data: Buffer, start: int, _stop: int, next_offset: int, *_: object) -> tuple[int, int, int]:
    """Stop immediately: every batch must be decoded."""
    return start, next_offset, -1


keep_last: Callable[..., tuple[int, int, int]] = _small_batches.keep_last if KERNEL == "c" else _nothing_kept
"""Take in plain batches of one writer: the last value of each key. Arguments and result are those of
`_small_batches.keep_last`. A batch before which it stops must be decoded.
"""


def _record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    key, value, headers = record[:3]
    deltas = b"\0" + _varlong(timestamp_delta) + _varlong(offset_delta)
    body = b"".join((deltas, _sized(key), _sized(value), _varlong(len(headers))))
    if headers:
        body += b"".join([_sized(name.encode()) + _sized(content) for name, content in headers])
    return _varlong(len(body)) + body


def _sized(value: bytes | None) -> bytes:
    return b"\1" if value is None else _varlong(len(value)) + value


_varlong = lru_cache(maxsize=VARINTS_REMEMBERED)(varlong)


def seal(batch: bytes) -> bytes:
    """Return the batch with its checksum."""
    return batch[:_CRC_AT] + _UINT32.pack(checksum(batch)) + batch[_CRC_FROM:]


def checksum(batch: Buffer) -> int:
    """Return the CRC-32C of a batch (wire/README.md rule 14)."""
    return _crc32c()(memoryview(batch)[_CRC_FROM:])


@cache
def _crc32c() -> Callable[[memoryview], int]:
    from crc32c import crc32c  # imported here because the forwarding path does not need it

    return crc32c


def has_valid_checksum(batch: Buffer) -> bool:
    return len(batch) >= HEADER.size and _UINT32.unpack_from(batch, _CRC_AT)[0] == checksum(batch)


def decode_records(batch: Buffer, decompressed_max: int = DECOMPRESSED_MAX) -> list[Record]:
    """Decode the records of one batch of magic 2.

    Raises RemoteProtocolError for no such batch, a wrong checksum, or more than `decompressed_max` bytes, or
    CodecMissing.
    """
    header = read_header(batch)
    if not has_valid_checksum(batch):
        raise RemoteProtocolError(f"the checksum of the record batch at offset {header.base_offset} is wrong")
    area, positions = find_records(batch, header, decompressed_max)
    return positions.build(area, Record, header.timestamp_type)


def read_header(batch: Buffer) -> BatchHeader:
    """Return the header of one whole batch of magic 2. Raises RemoteProtocolError if the bytes are none."""
    header = next(iter_batches(batch), None)
    if header is None or header.size != len(batch) or header.magic != 2:
        raise RemoteProtocolError("not exactly one whole record batch of magic 2")
    return header


def find_records(
    batch: Buffer, header: BatchHeader, decompressed_max: int = DECOMPRESSED_MAX
) -> tuple[Buffer, RecordPositions]:
    """Return the decompressed area of a batch with verified checksum, and the positions of its records in it.

    Raises RemoteProtocolError if a record is invalid, or there are more than `decompressed_max` bytes, or CodecMissing.
    """
    area: Buffer = memoryview(batch)[HEADER.size :]
    if header.compression != compression.NONE:
        area = compression.decompress(header.compression, area, decompressed_max)
    return area, _positions(area, header)


def open_batch(
    data: Buffer, start: int, end: int, open_payload: Callable[[int, Buffer], Buffer], *, check_crcs: bool = True
) -> tuple[Buffer, RecordPositions]:
    """Call `find_records` for the batch in `data[start:end]`.

    Args:
        data: a memoryview, so that the compressed records are not copied.
        start: position of the batch.
        end: its end.
        open_payload: called with the codec and the compressed records; returns the decompressed ones.
        check_crcs: verify the checksum.

    Raises:
        RemoteProtocolError: no such batch, a wrong checksum or an invalid record.
        Exception: raised by `open_payload`.
    """
    try:
        area, columns = _open_batch(data, start, end, check_crcs, open_payload)
    except ValueError as error:
        raise RemoteProtocolError(str(error)) from error
    return area, RecordPositions(columns)


def _python_open_batch(
    data: Buffer, start: int, end: int, check_crcs: bool, open_payload: Callable[[int, Buffer], Buffer]
) -> tuple[Buffer, bytes]:
    batch = memoryview(data)[start:end]
    header = read_header(batch)
    if check_crcs and not has_valid_checksum(batch):
        raise RemoteProtocolError(f"the checksum of the record batch at offset {header.base_offset} is wrong")
    area: Buffer = batch[HEADER.size :]
    if header.compression != compression.NONE:
        area = open_payload(header.compression, area)
    return area, _positions(area, header).columns


def _positions(area: Buffer, header: BatchHeader) -> RecordPositions:
    append_time = header.max_timestamp if header.is_log_append_time else None
    count, first, last = header.records_count, header.base_offset, header.last_offset
    return record_positions.find(area, count, first, last, header.base_timestamp, append_time)


_open_batch: Callable[[Buffer, int, int, bool, Callable[[int, Buffer], Buffer]], tuple[Buffer, bytes]]
_open_batch = _python_open_batch if record_positions.EXTENSION is None else record_positions.EXTENSION.open_batch
