"""Complete frames: size, header and body."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from struct import Struct
from typing import Any

from kafka_share_proxy.wire.codec import headers
from kafka_share_proxy.wire.codec.compiler import Codec
from kafka_share_proxy.wire.codec.headers import RequestHeader
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.values import MIB

FRAME_BYTES_MAX = 100 * MIB
"""Largest frame accepted if the caller sets no limit (Kafka: socket.request.max.bytes)."""

_SIZE = Struct(">i")

PIECE_MIN = 16 << 10
"""Bytes from which a field is not copied."""


class Pieces:
    """Bytes in several parts of memory: the records of a partition, or a whole frame.

    `bytes` joins them. Valid until the buffers that they refer to change.
    """

    __slots__ = ("_size", "parts")

    def __init__(self, parts: Sequence[bytes | memoryview]) -> None:
        self.parts = parts
        self._size = sum(map(len, parts))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)

    def rest(self, begin: int) -> bytes:
        """Return the bytes from `begin` on, without copying those before."""
        parts: list[bytes | memoryview] = []
        for part in self.parts:
            parts.append(memoryview(part)[begin:] if begin else part)
            begin = max(0, begin - len(part))
        return b"".join(parts)


ResponseFrame = bytes | Pieces


def request(key: int, version: int, correlation_id: int, client_id: str | None, message: Message) -> bytes:
    """Return a frame with its size. Raises UnknownVersion or LocalProtocolError."""
    header = headers.encode_request_header(RequestHeader(key, version, correlation_id, client_id))
    return _frame(header, registry.request(key, version), message)


def with_correlation_id(request_frame: bytes, correlation_id: int) -> bytes:
    """Return the frame of a request, with its size, with another correlation id."""
    return request_frame[:8] + _SIZE.pack(correlation_id) + request_frame[12:]


def response(key: int, version: int, correlation_id: int, message: Message) -> bytes:
    """Return a frame with its size. Raises UnknownVersion or LocalProtocolError."""
    header = headers.encode_response_header(key, version, correlation_id)
    return _frame(header, registry.response(key, version), message)


def response_in_slices(key: int, version: int, correlation_id: int, message: Message) -> Generator[None, None, bytes]:
    parts: list[Any] = [b"", headers.encode_response_header(key, version, correlation_id)]
    yield from registry.response(key, version).encode_in_slices(message, parts)
    parts[0] = _SIZE.pack(sum(map(len, parts)))
    return b"".join(parts)


def response_frame(key: int, version: int, correlation_id: int, message: Message) -> ResponseFrame:
    """Encode as `response`, without copying large fields."""
    header = headers.encode_response_header(key, version, correlation_id)
    return _pieces(_parts(header, registry.response(key, version), message))


def response_frame_in_slices(
    key: int, version: int, correlation_id: int, message: Message
) -> Generator[None, None, ResponseFrame]:
    parts: list[Any] = [b"", headers.encode_response_header(key, version, correlation_id)]
    yield from registry.response(key, version).encode_in_slices(message, parts)
    parts[0] = _SIZE.pack(sum(map(len, parts)))
    return _pieces(parts)


def _pieces(parts: list[Any]) -> ResponseFrame:
    pieces: list[bytes | memoryview] = []
    small: list[bytes | memoryview] = []
    for part in parts:
        if len(part) < PIECE_MIN:
            small.append(bytes(part) if type(part) is Pieces else part)
            continue
        for piece in part.parts if type(part) is Pieces else (part,):
            if len(piece) < PIECE_MIN:
                small.append(piece)
            else:
                pieces += (b"".join(small), piece)
                small = []
    pieces.append(b"".join(small))
    return Pieces(pieces) if len(pieces) > 1 else bytes(pieces[0])


def decode_request(frame: Any) -> tuple[RequestHeader, Any]:
    """Decode a frame without size. Raises RemoteProtocolError or UnknownVersion."""
    header, offset = headers.decode_request_header(frame)
    return header, registry.request(header.key, header.version).decode(frame, offset)


def decode_request_in_slices(frame: Any, elements_max: int) -> Generator[None, None, tuple[RequestHeader, Any]]:
    """Raises TooManyElements beyond `elements_max` array elements."""
    header, offset = headers.decode_request_header(frame)
    message = yield from registry.request(header.key, header.version).decode_in_slices(frame, offset, elements_max)
    return header, message


def decode_response(key: int, version: int, frame: Any) -> tuple[int, Any]:
    """Decode a frame without size. Return (correlation id, message).

    Raises RemoteProtocolError or UnknownVersion.
    """
    offset = headers.response_body_offset(key, version, frame)
    return headers.correlation_id(frame), registry.response(key, version).decode(frame, offset)


def decode_response_in_slices(key: int, version: int, frame: Any) -> Generator[None, None, Any]:
    """Raises as `decode_response`."""
    offset = headers.response_body_offset(key, version, frame)
    return registry.response(key, version).decode_in_slices(frame, offset, len(frame))


class FrameReader:
    """Splitter of a byte stream into frames, for the proxy's own connections."""

    __slots__ = ("_buffer", "_limit")

    def __init__(self, limit: int = FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._limit = limit

    def receive_data(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Yield the frames that these bytes complete, without size.

        Raises RemoteProtocolError if a size is negative or above the limit. The reader cannot be used afterwards.
        """
        self._buffer += data
        while len(self._buffer) >= 4:
            size = _SIZE.unpack_from(self._buffer)[0]
            if not 0 <= size <= self._limit:
                raise RemoteProtocolError(f"a frame of {size} bytes; at most {self._limit} are accepted")
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(memoryview(self._buffer)[4 : 4 + size])
            del self._buffer[: 4 + size]
            yield frame

    def accept(self, limit: int) -> None:
        self._limit = limit

    @property
    def is_empty(self) -> bool:
        return not self._buffer


def _frame(header: bytes, codec: Codec[Any], message: Message) -> bytes:
    return b"".join(_parts(header, codec, message))


def _parts(header: bytes, codec: Codec[Any], message: Message) -> list[Any]:
    parts: list[Any] = [b"", header]
    codec.encode_into(message, parts)
    parts[0] = _SIZE.pack(sum(map(len, parts)))
    return parts
