"""Compression codecs of records, by codec id (wire/README.md rules 17 and 18)."""

from __future__ import annotations

import mmap
import struct
import sys
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.errors import ProxyError, RemoteProtocolError

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_GZIP_WINDOW = 31
"""Window of 15 bits, with a gzip header."""
_XERIAL = b"\x82SNAPPY\x00"
"""Header of the snappy-java framing: 16 bytes, followed by blocks with their size."""
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK = 32 << 10
_ZSTD_LEVEL = 1
"""Level 3 costs a third more time for one percent fewer bytes."""

PIECE_BYTES = 256 << 10
"""Bytes decompressed in one step."""


class DecompressedTooLarge(RemoteProtocolError):
    """The data decompresses to more than the limit."""


class CodecMissing(ProxyError):
    """A batch is compressed by a codec whose library is not installed."""


def decompress(codec: int, data: Buffer, limit: int) -> bytes | memoryview:
    """Decompress in pieces, between which a thread releases the interpreter lock.

    Raises RemoteProtocolError for an unknown codec or broken data, DecompressedTooLarge beyond `limit` bytes, or
    CodecMissing.
    """
    if codec == NONE:
        return bytes(data) if isinstance(data, bytearray) else data
    decompress_codec = _DECOMPRESSORS.get(codec)
    if decompress_codec is None:
        raise RemoteProtocolError(f"unknown compression {codec}")
    whole = _DecompressedBytes(limit)
    decompress_codec(data if codec == LZ4 else bytes(data), whole)
    return whole.content()


class _DecompressedBytes:
    """Decompressed bytes in one mmap, because joining pieces would hold the interpreter lock for long."""

    __slots__ = ("_limit", "_mapping", "_parts", "size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._mapping: mmap.mmap | None = None
        self.size = 0

    @property
    def remaining(self) -> int:
        return self._limit - self.size

    def add(self, part: bytes | memoryview) -> None:
        """Append decompressed bytes. Raises DecompressedTooLarge."""
        if len(part) > self.remaining:
            raise DecompressedTooLarge(f"a record batch of more than {self._limit} bytes when decompressed")
        if self._mapping is None and self.size + len(part) <= PIECE_BYTES:
            self._parts.append(bytes(part))
        else:
            self._to_mapping()[self.size : self.size + len(part)] = part
        self.size += len(part)

    def fill(self, size: int, write: Callable[[memoryview], int]) -> None:
        """Let `write` fill the next bytes. Raises ValueError if it writes fewer than `size`."""
        with memoryview(self._to_mapping()) as whole, whole[self.size : self.size + size] as target:
            if write(target) != size:
                raise ValueError("less than was announced")
        self.size += size

    def _to_mapping(self) -> mmap.mmap:
        if self._mapping is None:
            self._mapping = mmap.mmap(-1, self._limit)  # pages that are not written use no memory
            self._mapping[: self.size] = b"".join(self._parts)
            self._parts.clear()
        return self._mapping

    def content(self) -> bytes | memoryview:
        return b"".join(self._parts) if self._mapping is None else memoryview(self._mapping)[: self.size]


def compress(codec: int, data: bytes) -> bytes:
    """Compress records. Raises CodecMissing, or KeyError for an unknown codec."""
    return _COMPRESSORS[codec](data)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise CodecMissing(f"records are compressed by a codec that needs the package {name.split('.')[0]}") from error


def _broken(codec: int, error: Exception) -> RemoteProtocolError:
    return RemoteProtocolError(f"broken {NAMES[codec]} data in a record batch: {error}")


def _decompress_gzip(data: bytes, whole: _DecompressedBytes) -> None:
    decompressor = zlib.decompressobj(_GZIP_WINDOW)
    try:
        for start in range(0, len(data), PIECE_BYTES):
            part = data[start : start + PIECE_BYTES]
            while part and not decompressor.eof:
                whole.add(decompressor.decompress(part, PIECE_BYTES))
                part = decompressor.unconsumed_tail
        while not decompressor.eof and (part := decompressor.decompress(b"", PIECE_BYTES)):
            whole.add(part)  # the data that the library still holds
    except zlib.error as error:
        raise _broken(GZIP, error) from error
    if not decompressor.eof:
        raise RemoteProtocolError("broken gzip data in a record batch: it ends too early")


def _compress_gzip(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=_GZIP_WINDOW)
    return compressor.compress(data) + compressor.flush()


def _decompress_snappy(data: bytes, whole: _DecompressedBytes) -> None:
    if not data.startswith(_XERIAL):
        _decompress_snappy_block(data, whole)
        return
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if position + 4 > len(data):
            raise RemoteProtocolError("broken snappy data in a record batch: half a block size")
        size = struct.unpack_from(">i", data, position)[0]
        position += 4
        if not 0 < size <= len(data) - position:
            raise RemoteProtocolError(f"broken snappy data in a record batch: a block of {size} bytes")
        _decompress_snappy_block(data[position : position + size], whole)
        position += size


def _decompress_snappy_block(data: bytes, whole: _DecompressedBytes) -> None:
    snappy = _library("cramjam").snappy
    try:
        announced = snappy.decompress_raw_len(data)
        if announced > whole.remaining:
            raise DecompressedTooLarge(f"a snappy block announces {announced} bytes")
        if announced <= PIECE_BYTES:
            whole.add(memoryview(snappy.decompress_raw(data)))
        else:
            whole.fill(announced, lambda target: snappy.decompress_raw_into(data, target))
    except (ValueError, RuntimeError, _library("cramjam").DecompressionError) as error:
        raise _broken(SNAPPY, error) from error


def _compress_snappy(data: bytes) -> bytes:
    snappy = _library("cramjam").snappy
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _SNAPPY_BLOCK):
        block = bytes(snappy.compress_raw(data[start : start + _SNAPPY_BLOCK]))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _decompress_lz4(data: Buffer, whole: _DecompressedBytes) -> None:
    frame: Any = sys.modules.get("lz4.frame") or _library("lz4.frame")  # an import takes a tenth of a batch's time
    context, rest, is_ended = frame.create_decompression_context(), data, False
    try:
        while not is_ended:
            part, consumed, is_ended = frame.decompress_chunk(context, rest, PIECE_BYTES)
            if not part and not consumed:
                break
            whole.add(part)
            rest = b"" if is_ended else memoryview(rest)[consumed:]
    except (RuntimeError, ValueError, EOFError) as error:
        raise _broken(LZ4, error) from error
    if not is_ended:
        raise RemoteProtocolError("broken lz4 data in a record batch: it ends too early")


def _compress_lz4(data: bytes) -> bytes:
    # Kafka's Java clients refuse frames whose blocks depend on each other.
    return bytes(_library("lz4.frame").compress(data, store_size=False, block_linked=False))


def _decompress_zstd(data: bytes, whole: _DecompressedBytes) -> None:
    zstandard = _library("zstandard")
    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            while part := reader.read(PIECE_BYTES):
                whole.add(part)
    except zstandard.ZstdError as error:
        raise _broken(ZSTD, error) from error


def _compress_zstd(data: bytes) -> bytes:
    return bytes(_library("zstandard").ZstdCompressor(level=_ZSTD_LEVEL).compress(data))


_DECOMPRESSORS: dict[int, Callable[[Any, _DecompressedBytes], None]] = {
    GZIP: _decompress_gzip,
    SNAPPY: _decompress_snappy,
    LZ4: _decompress_lz4,
    ZSTD: _decompress_zstd,
}
_COMPRESSORS: dict[int, Callable[[bytes], bytes]] = {
    NONE: bytes,
    GZIP: _compress_gzip,
    SNAPPY: _compress_snappy,
    LZ4: _compress_lz4,
    ZSTD: _compress_zstd,
}
