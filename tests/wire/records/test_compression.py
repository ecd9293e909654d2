"""Opening compressed records, within limits."""

from __future__ import annotations

import gzip
import random
import struct
import sys

import pytest
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import compression

CODECS = [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD]
DATA = b"some records " * 5_000


@pytest.mark.parametrize("codec", range(5))
def test_compressed_bytes_decompress_to_the_same_bytes(codec: int) -> None:
    """Compressed bytes open to the same bytes, empty ones too; compression makes them smaller."""
    for data in (b"", b"x", DATA):
        assert compression.decompress(codec, compression.compress(codec, data), len(DATA)) == data
    assert (len(compression.compress(codec, DATA)) < len(DATA) // 5) == (codec != compression.NONE)


@pytest.mark.parametrize("codec", CODECS)
def test_data_that_decompresses_beyond_the_limit_is_refused(codec: int) -> None:
    """A small batch that opens to more than the limit is refused at the limit."""
    bomb = compression.compress(codec, bytes(5_000_000))
    assert len(bomb) < 500_000
    with pytest.raises(RemoteProtocolError):
        compression.decompress(codec, bomb, 100_000)


@pytest.mark.parametrize("codec", CODECS)
def test_broken_data_is_refused(codec: int) -> None:
    """Cut off or spoilt: RemoteProtocolError or other bytes, never another error."""
    closed, draw = compression.compress(codec, DATA), random.Random(codec)
    refused = 0
    for _ in range(200):
        spoilt = bytearray(closed)
        spoilt[draw.randrange(len(spoilt))] ^= 1 << draw.randrange(8)
        for broken in (bytes(spoilt), closed[: draw.randrange(len(closed))], draw.randbytes(40)):
            try:
                compression.decompress(codec, broken, len(DATA))
            except RemoteProtocolError:
                refused += 1
    assert refused > 200


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    """Three bits can name more codecs than there are."""
    with pytest.raises(RemoteProtocolError, match=str(codec)):
        compression.decompress(codec, b"x", 10)


@pytest.mark.parametrize(
    ("codec", "module"),
    [(compression.SNAPPY, "cramjam"), (compression.LZ4, "lz4.frame"), (compression.ZSTD, "zstandard")],
)
def test_a_missing_library_is_named(codec: int, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries are optional: without one, the error says which to install."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(compression.CodecMissing, match=module.split(".")[0]):
        compression.decompress(codec, b"x", 10)


def test_snappy_with_and_without_framing() -> None:
    """snappy-java frames its blocks, librdkafka does not always."""
    import cramjam

    raw = bytes(cramjam.snappy.compress_raw(DATA))
    framed = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(raw)) + raw
    assert compression.decompress(compression.SNAPPY, raw, len(DATA)) == DATA
    assert compression.decompress(compression.SNAPPY, framed, len(DATA)) == DATA
    for size in (-1, 0, len(raw) + 1, 2**31 - 1):
        broken = framed[:16] + struct.pack(">i", size) + raw
        with pytest.raises(RemoteProtocolError):
            compression.decompress(compression.SNAPPY, broken, len(DATA))


def test_gzip_of_other_writers_is_decompressed() -> None:
    """As Python's own module writes it."""
    assert compression.decompress(compression.GZIP, gzip.compress(DATA), len(DATA)) == DATA


def test_lz4_blocks_do_not_depend_on_each_other() -> None:
    """Kafka's Java clients read no others: bit 5 of the flags, which follow the magic of the frame."""
    assert compression.compress(compression.LZ4, b"x" * 200_000)[4] & 0x20


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "size", [0, 1, compression.PIECE_BYTES, compression.PIECE_BYTES + 1, 3 * compression.PIECE_BYTES]
)
def test_memoryviews_of_any_size_are_decompressed(codec: int, size: int) -> None:
    """Data that opens to several pieces, of bytes that do not compress and of those that do."""
    for data in (random.Random(size).randbytes(size), bytes(size)):
        closed = b"before" + compression.compress(codec, data)
        decompressed = compression.decompress(codec, memoryview(closed)[6:], size)
        assert bytes(decompressed) == data
        if size:
            with pytest.raises(RemoteProtocolError):
                compression.decompress(codec, memoryview(closed)[6:], size - 1)


def test_lz4_of_linked_blocks_is_decompressed() -> None:
    """Clients other than Java's may write them."""
    import lz4.frame

    data = DATA * 20
    closed = lz4.frame.compress(data, block_linked=True, store_size=False)
    assert bytes(compression.decompress(compression.LZ4, closed, len(data))) == data
    for end in range(0, len(closed), 97):
        with pytest.raises(RemoteProtocolError):
            compression.decompress(compression.LZ4, closed[:end], len(data))
