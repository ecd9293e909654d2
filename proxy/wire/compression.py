"""Compressed records: codec id -> how to open and close them, never into more memory than allowed.

gzip is of the standard library; the others need `cramjam` (snappy), `lz4` and `zstandard`, imported when first met.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from proxy.errors import ProxyError, RemoteProtocolError

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_GZIP_WINDOW = 31
"""zlib: window of 15 bits, with a gzip header."""
_XERIAL = b"\x82SNAPPY\x00"
"""The framing of snappy-java, which Kafka's clients write: a header of 16 bytes, then blocks with their size."""
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK = 32 << 10
_ZSTD_LEVEL = 1
"""Level 3 costs a third more for one percent fewer bytes."""


class CodecMissing(ProxyError):
    """A batch is compressed by a codec whose library is not installed."""


def decompress(codec: int, data: bytes, limit: int) -> bytes:
    """Open compressed records.

    Raises:
        RemoteProtocolError: unknown codec, broken data, or more than `limit` bytes. CodecMissing.
    """
    if codec == NONE:
        return data
    opener = _OPENERS.get(codec)
    if opener is None:
        raise RemoteProtocolError(f"unknown compression {codec}")
    opened = opener(data, limit)
    if len(opened) > limit:
        raise RemoteProtocolError(f"a record batch of more than {limit} bytes when decompressed")
    return opened


def compress(codec: int, data: bytes) -> bytes:
    """Close records. Raises CodecMissing; KeyError for a codec that does not exist."""
    return _CLOSERS[codec](data)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise CodecMissing(f"records are compressed by a codec that needs the package {name.split('.')[0]}") from error


def _broken(codec: int, error: Exception) -> RemoteProtocolError:
    return RemoteProtocolError(f"broken {NAMES[codec]} data in a record batch: {error}")


def _open_gzip(data: bytes, limit: int) -> bytes:
    opener = zlib.decompressobj(_GZIP_WINDOW)
    try:
        opened = opener.decompress(data, limit + 1)
    except zlib.error as error:
        raise _broken(GZIP, error) from error
    if not opener.eof and len(opened) <= limit:
        raise RemoteProtocolError("broken gzip data in a record batch: it ends too early")
    return opened


def _close_gzip(data: bytes) -> bytes:
    closer = zlib.compressobj(wbits=_GZIP_WINDOW)
    return closer.compress(data) + closer.flush()


def _open_snappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL):
        return _open_snappy_block(data, limit)
    parts, position, total = [], len(_XERIAL_HEADER), 0
    while position < len(data):
        if position + 4 > len(data):
            raise RemoteProtocolError("broken snappy data in a record batch: half a block size")
        size = struct.unpack_from(">i", data, position)[0]
        position += 4
        if not 0 < size <= len(data) - position:
            raise RemoteProtocolError(f"broken snappy data in a record batch: a block of {size} bytes")
        opened = _open_snappy_block(data[position : position + size], limit - total)
        total += len(opened)
        parts.append(opened)
        position += size
    return b"".join(parts)


def _open_snappy_block(data: bytes, limit: int) -> bytes:
    snappy = _library("cramjam").snappy
    try:
        announced = snappy.decompress_raw_len(data)
        if announced > limit:
            raise RemoteProtocolError(f"a snappy block announces {announced} bytes")
        return bytes(snappy.decompress_raw(data))
    except (ValueError, RuntimeError, _library("cramjam").DecompressionError) as error:
        raise _broken(SNAPPY, error) from error


def _close_snappy(data: bytes) -> bytes:
    snappy = _library("cramjam").snappy
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _SNAPPY_BLOCK):
        block = bytes(snappy.compress_raw(data[start : start + _SNAPPY_BLOCK]))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _open_lz4(data: bytes, limit: int) -> bytes:
    opener = _library("lz4.frame").LZ4FrameDecompressor()
    try:
        opened: bytes = opener.decompress(data, limit + 1)
    except (RuntimeError, ValueError, EOFError) as error:
        raise _broken(LZ4, error) from error
    if not opener.eof and len(opened) <= limit:
        raise RemoteProtocolError("broken lz4 data in a record batch: it ends too early")
    return opened


def _close_lz4(data: bytes) -> bytes:
    # Kafka's Java clients refuse frames whose blocks depend on each other.
    return bytes(_library("lz4.frame").compress(data, store_size=False, block_linked=False))


def _open_zstd(data: bytes, limit: int) -> bytes:
    zstandard = _library("zstandard")
    parts, total = [], 0
    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            while total <= limit:
                part = reader.read(min(1 << 20, limit + 1 - total))
                if not part:
                    break
                parts.append(part)
                total += len(part)
    except zstandard.ZstdError as error:
        raise _broken(ZSTD, error) from error
    return b"".join(parts)


def _close_zstd(data: bytes) -> bytes:
    return bytes(_library("zstandard").ZstdCompressor(level=_ZSTD_LEVEL).compress(data))


_OPENERS: dict[int, Callable[[bytes, int], bytes]] = {
    GZIP: _open_gzip,
    SNAPPY: _open_snappy,
    LZ4: _open_lz4,
    ZSTD: _open_zstd,
}
_CLOSERS: dict[int, Callable[[bytes], bytes]] = {
    NONE: bytes,
    GZIP: _close_gzip,
    SNAPPY: _close_snappy,
    LZ4: _close_lz4,
    ZSTD: _close_zstd,
}
