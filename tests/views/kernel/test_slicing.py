"""The front of the kernel: codecs, limits, errors, and what it gives to others."""

from __future__ import annotations

import pytest
from kafka_share_proxy.views.kernel import slicing
from kafka_share_proxy.views.kernel.slicing import CorruptBatch
from kafka_share_proxy.views.model.slots import EvenCut
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import compression, records

from tests.views.kernel.batches import CUTS, reading, sample
from tests.wire.old_messages import message, wrapper


@pytest.mark.parametrize("codec", range(5), ids=compression.NAMES)
def test_parts_of_compressed_batches_are_not_compressed(codec: int) -> None:
    """Every slot has its records, uncompressed; a batch that is kept whole is unchanged."""
    batch = sample(1, 100, codec=codec)
    for slot, part in enumerate(slicing.split(memoryview(batch), EvenCut(4))):
        assert part.batch is not None
        (header,) = records.iter_batches(part.batch)
        assert header.compression == compression.NONE
        assert records.decode_records(part.batch) == reading(batch, EvenCut(4), slot)
    (whole,) = slicing.split(memoryview(batch), EvenCut(1))
    assert whole == (batch, 1099, 100)


@pytest.mark.parametrize("codec", [compression.LZ4, compression.ZSTD])
@pytest.mark.parametrize("source", range(5), ids=compression.NAMES)
def test_responses_may_be_compressed(source: int, codec: int) -> None:
    """For a narrow network to the client."""
    batch = sample(2, 100, codec=source)
    for slot, part in enumerate(slicing.split(memoryview(batch), EvenCut(3), codec=codec)):
        assert part.batch is not None
        (header,) = records.iter_batches(part.batch)
        assert header.compression == codec
        assert records.decode_records(part.batch) == reading(batch, EvenCut(3), slot)


@pytest.mark.parametrize("cut", CUTS, ids=repr)
@pytest.mark.parametrize("from_offset", [0, 1020, 9999])
def test_a_part_can_be_cut_to_a_later_offset(cut, from_offset: int) -> None:
    """A cached part serves a reader that begins in its middle: split again, it gives what the source would."""
    batch = sample(3, 80, gaps=True)
    at_once = slicing.split(memoryview(batch), cut, from_offset=from_offset)
    for slot, part in enumerate(slicing.split(memoryview(batch), cut)):
        if part.batch is None:
            assert at_once[slot].batch is None
        else:
            (again,) = slicing.split(memoryview(part.batch), cut, [slot], from_offset)
            assert again == at_once[slot]


def test_a_last_batch_is_shortened() -> None:
    """Before a filler it ends at its last kept record; its records are those it had."""
    batch = sample(4, 60)
    part = next(p for p in slicing.split(memoryview(batch), EvenCut(8)) if p.batch is not None and p.last_kept < 1059)
    assert part.batch is not None
    shorter = slicing.shorten(part.batch, part.last_kept)
    (header,) = records.iter_batches(shorter)
    assert header.last_offset == part.last_kept
    assert records.decode_records(shorter) == records.decode_records(part.batch)
    with pytest.raises(ValueError, match="999"):
        slicing.shorten(part.batch, 999)


def test_damage_is_a_separate_error() -> None:
    """A consumer gets CORRUPT_MESSAGE."""
    damaged = bytearray(sample(5))
    damaged[80] ^= 1
    with pytest.raises(CorruptBatch) as caught:
        slicing.split(memoryview(damaged), EvenCut(2))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", range(1, 5), ids=compression.NAMES[1:])
def test_a_batch_that_decompresses_beyond_the_limit_is_refused(codec: int) -> None:
    """With any codec."""
    batch = records.build_batch(0, [records.Record(b"k", bytes(1 << 20))], codec=codec)
    with pytest.raises(CorruptBatch, match=r"bytes"):
        slicing.split(memoryview(batch), EvenCut(2), decompressed_max=1 << 19)


@pytest.mark.parametrize("codec", range(1, 8))
def test_broken_compression_is_refused(codec: int) -> None:
    """Also a codec that does not exist."""
    batch = bytearray(sample(6))
    batch[22] |= codec
    with pytest.raises(CorruptBatch):
        slicing.split(memoryview(records.seal(bytes(batch))), EvenCut(2))


def test_a_codec_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The data may be right: it is another error."""

    def missing(name: str) -> object:
        raise ImportError(name)

    batch = sample(7, codec=compression.ZSTD)
    monkeypatch.setattr(compression, "import_module", missing)
    with pytest.raises(CorruptBatch, match="zstandard") as caught:
        slicing.split(memoryview(batch), EvenCut(2))
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("slots", [[2], [-1], [0, 5]])
def test_a_slot_that_does_not_exist_is_a_bug(slots: list[int]) -> None:
    """In the caller, not in the batch."""
    with pytest.raises(ValueError, match="slots"):
        slicing.split(memoryview(sample(8)), EvenCut(2), slots)


def test_the_cost_of_a_batch_is_predicted() -> None:
    """Costs grow with bytes, records, and gzip most of all."""

    def cost(count: int, codec: int) -> float:
        (header,) = records.iter_batches(sample(9, count, codec=codec))
        return slicing.cost_estimate(header)

    assert 0 < cost(10, compression.NONE) < cost(1000, compression.NONE) < cost(1000, compression.LZ4)
    assert cost(1000, compression.LZ4) < cost(1000, compression.GZIP) < 1


def test_old_messages_are_divided_like_new_ones() -> None:
    """Every record has the slot that its key and offset say."""
    cut = EvenCut(4)
    inner = b"".join(message(n, b"%d" % n if n % 3 else None, b"v") for n in range(100))
    parts = slicing.split(memoryview(wrapper(599, inner, compression.SNAPPY)), cut, from_offset=510)
    for slot, part in enumerate(parts):
        assert part.batch is not None
        decoded = records.decode_records(part.batch)
        assert [r.offset for r in decoded] == [
            500 + n for n in range(10, 100) if cut.slot_of(b"%d" % n if n % 3 else None, 500 + n) == slot
        ]


def test_malformed_messages_of_magic_0_and_1_are_refused() -> None:
    good = wrapper(1, message(0, b"a", b"1"), compression.GZIP)
    with pytest.raises(CorruptBatch):
        slicing.split(memoryview(good[:-1]), EvenCut(2))
