"""One record batch, taken apart for the slots of a view: the front of the filter kernel.

The kernel is the C extension `proxy.views.kernel._slicing` where it could be built, else its twin in plain Python,
about a hundred times slower; `KERNEL` says which. Compressed records are opened here, into bounded memory; batches of
magic 0 and 1 are written anew as magic 2. Parts come uncompressed unless a codec is asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from proxy.views.kernel import slicing_in_python
from proxy.views.model.slots import KERNEL_VERSION, Cut
from proxy.wire import compression, legacy, records
from proxy.wire.batches import Batch
from proxy.wire.errors import ErrorCode, ProxyError, RemoteProtocolError
from proxy.wire.records import COMPRESSION_MASK, DECOMPRESSED_MAX, HEADER

try:
    from proxy.views.kernel import _slicing
except ImportError:  # no compiler was there when this was installed
    _slicing = None  # type: ignore[assignment]

REFUSALS = (ValueError, RemoteProtocolError, compression.CodecMissing)
"""What kernels and codecs raise over bytes that are no record batch, or none that can be read here."""

_MAGIC_AT = 16
_ATTRIBUTES_AT = 22
"""The lower byte of them."""
_LAST_OFFSET_DELTA_AT = 23


class CorruptBatch(ProxyError):
    """These bytes are no record batch; `code` is what a consumer is told."""

    code = ErrorCode.CORRUPT_MESSAGE


class BatchTooLarge(CorruptBatch):
    """It becomes larger when opened than was allowed for."""


class CodecUnavailable(CorruptBatch):
    """The batch may be right, but the library of its codec is not installed here; the text says which."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class Slice(NamedTuple):
    """One slot's part of one source batch."""

    batch: bytes | memoryview | None
    """A whole batch of magic 2 with the kept records, byte for byte; the source itself when all are kept; None: none
    is."""
    last_kept: int
    """Offset of the last kept record; -1: none is."""
    records: int


_as_slice: Callable[[slicing_in_python.Part], Slice] = partial(tuple.__new__, Slice)
"""`Slice._make` without its frame: it is run for every slot of every batch."""

_EXPANSION = 4
"""Bytes of JSON in a byte of it compressed."""
_CALL_NS = 3_000
_BYTE_NS = (0.1, 4.5, 1.1, 1.1, 1.4, 1.0, 1.0, 1.0)
"""By codec, of opened records; what the kernel does with them included."""
_RECORD_NS = {"c": 20, "python": 10_000}
_LEGACY_BYTE_NS = 100
"""Old messages are read in Python."""

Kernel = Callable[[memoryview, bytes | memoryview | None, Cut, Sequence[int], int], list[slicing_in_python.Part]]
"""(batch, its records where they had to be opened, cut, slots, from_offset); raises ValueError."""


def _by_extension(
    batch: memoryview, body: bytes | memoryview | None, cut: Cut, slots: Sequence[int], from_offset: int
) -> list[slicing_in_python.Part]:
    return _slicing.split(batch, body, cut.packed, slots, from_offset)


KERNELS: Mapping[str, Kernel] = {
    **({"c": _by_extension} if _slicing is not None and _slicing.VERSION == KERNEL_VERSION else {}),
    "python": slicing_in_python.split,
}
"""Those that work here, the best first."""
KERNEL = next(iter(KERNELS))
"""Which one is used: "c" or "python"."""
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
    """The parts of one batch for some slots, in their order; all slots in one pass.

    Splitting a part again with the same cut gives the same part; so a cached part is cut to a later `from_offset`.

    Args:
        batch: exactly one batch that is no control batch. A message of magic 0 or 1, wrapper or not, counts as one.
        cut: which slot has which record.
        slots: those that are wanted, none twice; None: all.
        from_offset: records below it are dropped.
        codec: how parts are compressed (`compression.NONE`, `LZ4` or `ZSTD`).
        decompressed_max: bytes that a compressed batch may have when opened.

    Raises:
        CorruptBatch: these bytes are no record batch. BatchTooLarge: too many when opened. CodecUnavailable.
        ValueError: a slot that the cut does not have.
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
    """As `split`; and how many bytes were opened for it, 0 where the batch is not compressed."""
    wanted = range(cut.slots) if slots is None else slots
    if wanted and not 0 <= min(wanted) <= max(wanted) < cut.slots:
        raise ValueError(f"slots {list(wanted)} of {cut.slots}")
    size = 0
    try:
        if len(batch) > _MAGIC_AT and batch[_MAGIC_AT] < 2:
            batch = memoryview(legacy.as_batch(batch, decompressed_max))
            size = len(batch)
        body = opened(batch, decompressed_max)
        size = size if body is None else len(body)
        parts = list(map(_as_slice, _kernel(batch, body, cut, wanted, from_offset)))
    except compression.CodecMissing as error:
        raise CodecUnavailable(str(error)) from error
    except compression.OpenedTooLarge as error:
        raise BatchTooLarge(str(error)) from error
    except (ValueError, RemoteProtocolError) as error:
        raise CorruptBatch(str(error)) from error
    if codec != compression.NONE:
        parts = [_compressed(part, batch, codec) for part in parts]
    return parts, size


def opened(batch: memoryview, decompressed_max: int) -> bytes | memoryview | None:
    """The records of a compressed batch; None: they stand in it as they are, or it is none.

    Raises:
        RemoteProtocolError: wrong checksum, broken data, or too much of it. compression.CodecMissing.
    """
    if len(batch) < HEADER.size or not batch[_ATTRIBUTES_AT] & COMPRESSION_MASK:
        return None
    if not records.has_valid_checksum(batch):
        raise RemoteProtocolError("the checksum of a compressed record batch is wrong")
    packed = bytes(batch[HEADER.size :])
    return compression.opened(batch[_ATTRIBUTES_AT] & COMPRESSION_MASK, packed, decompressed_max)


def _compressed(part: Slice, source: memoryview, codec: int) -> Slice:
    if part.batch is None or part.batch is source:
        return part
    body = compression.compress(codec, bytes(part.batch[HEADER.size :]))
    return part._replace(batch=slicing_in_python.rebuilt(part.batch, body, part.records, codec))


def cost_estimate(header: Batch) -> float:
    """Seconds that splitting the batch will take, about; above a millisecond it is the work of another thread.

    Calibrated by tests/bench/slicing.py on records of JSON. Records that are compressed far better take longer.
    """
    size = header.size * (1 if header.compression == compression.NONE else _EXPANSION)
    nanoseconds = _CALL_NS + size * _BYTE_NS[header.compression] + header.records_count * _RECORD_NS[KERNEL]
    if header.magic < 2:
        nanoseconds += size * _LEGACY_BYTE_NS
    return nanoseconds / 1e9


def shorten(batch: bytes | memoryview, last_offset: int) -> bytes:
    """The batch with another last offset: that of its last kept record, when a filler follows it.

    Raises:
        ValueError: it does not reach so far back.
    """
    delta = last_offset - struct.unpack_from(">q", batch)[0]
    if not 0 <= delta < 1 << 31:
        raise ValueError(f"a record batch cannot end at offset {last_offset}")
    end = _LAST_OFFSET_DELTA_AT + 4
    return records.seal(b"".join((batch[:_LAST_OFFSET_DELTA_AT], struct.pack(">i", delta), batch[end:])))
