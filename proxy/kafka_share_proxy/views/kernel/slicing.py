"""Splitting one record batch for the slots of a view: the front end of the filter kernel.

The kernel is the C extension `views.kernel._slicing` if it could be built, otherwise its Python fallback, which is
about a hundred times slower. Rules: views/README.md 37 to 40.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kafka_share_proxy.views.kernel import slicing_in_python
from kafka_share_proxy.views.model import slots
from kafka_share_proxy.views.model.slots import Cut
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, RemoteProtocolError
from kafka_share_proxy.wire.records import compression, legacy, records
from kafka_share_proxy.wire.records.batches import Batch
from kafka_share_proxy.wire.records.records import COMPRESSION_MASK, DECOMPRESSED_MAX, HEADER

try:
    from kafka_share_proxy.views.kernel import _slicing
except ImportError:  # there was no compiler at installation
    _slicing = None  # type: ignore[assignment]

KERNEL = slots.KERNEL

_MAGIC_AT = 16
_ATTRIBUTES_AT = 22
_LAST_OFFSET_DELTA_AT = 23


class CorruptBatch(ProxyError):
    """Raised for bytes that are no record batch. `code` is the error for the consumer."""

    code = ErrorCode.CORRUPT_MESSAGE


class BatchTooLarge(CorruptBatch):
    """Raised for a batch that decompresses to more bytes than allowed."""


class CodecUnavailable(CorruptBatch):
    """Raised if the library of the batch's codec is not installed."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class Slice(NamedTuple):
    """The part of one source batch for one slot."""

    batch: bytes | memoryview | None
    """The source itself if all records are kept, None if none is."""
    last_kept: int
    """Offset of the last kept record, or -1."""
    records: int
    """Number of kept records."""


_as_slice: Callable[[type[Slice], slicing_in_python.Part], Slice] = tuple.__new__
"""`Slice._make` without its frame."""

_EXPANSION = 4
"""Decompressed bytes for each compressed byte of JSON."""
_CALL_NS = 3_000
"""Nanoseconds of one batch without records."""
_BYTE_NS = (0.1, 4.5, 1.1, 1.1, 1.4, 1.0, 1.0, 1.0)
"""Nanoseconds for each decompressed byte, by codec."""
_RECORD_NS = {"c": 20, "python": 10_000}
"""Nanoseconds for each record, by kernel."""
_LEGACY_BYTE_NS = 100
"""Nanoseconds for each byte of a message of magic 0 or 1, which Python decodes."""

Kernel = Callable[[memoryview, bytes | memoryview | None, Cut, Sequence[int], int], list[slicing_in_python.Part]]
"""(batch, its decompressed records if it is compressed, cut, slots, from_offset) -> parts. Raises ValueError."""


def _by_extension(
    batch: memoryview, body: bytes | memoryview | None, cut: Cut, slots: Sequence[int], from_offset: int
) -> list[slicing_in_python.Part]:
    return _slicing.split(batch, body, cut.packed, slots, from_offset)


KERNELS: Mapping[str, Kernel] = {
    **({"c": _by_extension} if KERNEL == "c" else {}),
    "python": slicing_in_python.split,
}
_kernel = KERNELS[KERNEL]


def split(
    batch: memoryview,
    cut: Cut,
    slots: Sequence[int] | None = None,
    from_offset: int = 0,
    *,
    codec: int = compression.NONE,
    decompressed_max: int = DECOMPRESSED_MAX,
) -> list[Slice]:
    """Return the parts of one batch for some slots, in their order. `slots` None: all.

    Splitting a part again with the same cut returns the same part. A cached part can therefore be cut to a later
    `from_offset`. The batch is not a control batch.

    Raises CorruptBatch, BatchTooLarge (`decompressed_max`), CodecUnavailable, ValueError for a slot that the cut does
    not have.
    """
    return split_counted(batch, cut, slots, from_offset, codec=codec, decompressed_max=decompressed_max)[0]


def split_counted(
    batch: memoryview,
    cut: Cut,
    slots: Sequence[int] | None = None,
    from_offset: int = 0,
    *,
    codec: int = compression.NONE,
    decompressed_max: int = DECOMPRESSED_MAX,
) -> tuple[list[Slice], int]:
    """Return the result of `split`, and the number of decompressed bytes, 0 if the batch is not compressed."""
    requested_slots = range(cut.slots) if slots is None else slots
    slots_of_cut = cut.slots
    for slot in requested_slots:  # mostly one or a few: min() and max() take longer
        if not 0 <= slot < slots_of_cut:
            raise ValueError(f"slots {list(requested_slots)} of {slots_of_cut}")
    size = 0
    try:
        body = None
        if len(batch) <= _ATTRIBUTES_AT or batch[_MAGIC_AT] != 2 or batch[_ATTRIBUTES_AT] & COMPRESSION_MASK:
            if len(batch) > _MAGIC_AT and batch[_MAGIC_AT] < 2:
                batch = memoryview(legacy.as_batch(batch, decompressed_max))
                size = len(batch)
            body = decompressed_records(batch, decompressed_max)
            size = size if body is None else len(body)
        parts = [_as_slice(Slice, part) for part in _kernel(batch, body, cut, requested_slots, from_offset)]
    except compression.CodecMissing as error:
        raise CodecUnavailable(str(error)) from error
    except compression.DecompressedTooLarge as error:
        raise BatchTooLarge(str(error)) from error
    except (ValueError, RemoteProtocolError) as error:
        raise CorruptBatch(str(error)) from error
    if codec != compression.NONE:
        parts = [_compressed(part, batch, codec) for part in parts]
    return parts, size


def decompressed_records(batch: memoryview, decompressed_max: int) -> bytes | memoryview | None:
    """Return the decompressed records. None if they are not compressed.

    Raises RemoteProtocolError for a wrong checksum, broken data, or too much of it; compression.CodecMissing.
    """
    if len(batch) < HEADER.size or not batch[_ATTRIBUTES_AT] & COMPRESSION_MASK:
        return None
    if not records.has_valid_checksum(batch):
        raise RemoteProtocolError("the checksum of a compressed record batch is wrong")
    packed = bytes(batch[HEADER.size :])
    return compression.decompress(batch[_ATTRIBUTES_AT] & COMPRESSION_MASK, packed, decompressed_max)


def _compressed(part: Slice, source: memoryview, codec: int) -> Slice:
    if part.batch is None or part.batch is source:
        return part
    body = compression.compress(codec, bytes(part.batch[HEADER.size :]))
    return part._replace(batch=slicing_in_python.rebuilt(part.batch, body, part.records, codec))


def cost_estimate(header: Batch) -> float:
    """Estimate the seconds that splitting takes. Calibrated by tests/bench/slicing.py on JSON."""
    size = header.size * (1 if header.compression == compression.NONE else _EXPANSION)
    nanoseconds = _CALL_NS + size * _BYTE_NS[header.compression] + header.records_count * _RECORD_NS[KERNEL]
    if header.magic < 2:
        nanoseconds += size * _LEGACY_BYTE_NS
    return nanoseconds / 1e9


def shorten(batch: bytes | memoryview, last_offset: int) -> bytes:
    """Return the batch with another last offset.

    Raises:
        ValueError: the batch cannot end at that offset, for example because it begins after it.
    """
    delta = last_offset - struct.unpack_from(">q", batch)[0]
    if not 0 <= delta < 1 << 31:
        raise ValueError(f"a record batch cannot end at offset {last_offset}")
    end = _LAST_OFFSET_DELTA_AT + 4
    return records.seal(b"".join((batch[:_LAST_OFFSET_DELTA_AT], struct.pack(">i", delta), batch[end:])))
