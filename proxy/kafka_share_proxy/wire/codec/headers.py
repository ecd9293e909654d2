"""Request and response headers: their versions and their fields (wire/README.md rules 10 and 11)."""

from __future__ import annotations

import struct
from functools import cache
from struct import Struct
from typing import Any, NamedTuple

from kafka_share_proxy.wire.codec import primitives
from kafka_share_proxy.wire.codec.primitives import Tags
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import RemoteProtocolError

CONTROLLED_SHUTDOWN_KEY = 7

_KEY_VERSION_ID = Struct(">hhi")
_PEEK = _KEY_VERSION_ID.unpack_from
PEEK_BYTES = _KEY_VERSION_ID.size
_START = Struct(">hhih")
CLIENT_ID_AT = _START.size
_INT32 = Struct(">i")
_CORRELATION_ID = _INT32.unpack_from


class RequestHeader(NamedTuple):
    """The header of a request."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    unknown_tags: Tags = ()


@cache
def request_header_version(key: int, version: int) -> int:
    """Raises UnknownVersion."""
    if key == CONTROLLED_SHUTDOWN_KEY and version == 0:
        return 0
    return 2 if version in registry.versioned_request_spec(key, version).flexible else 1


@cache
def response_header_version(key: int, version: int) -> int:
    """Raises UnknownVersion."""
    if key == ApiKey.API_VERSIONS:
        return 0
    return 1 if version in registry.versioned_response_spec(key, version).flexible else 0


def peek(frame: Any) -> tuple[int, int, int]:
    """Return key, version and correlation id.

    Raises RemoteProtocolError if the frame is too short.
    """
    try:
        key, version, correlation_id = _PEEK(frame, 0)
    except struct.error:
        raise RemoteProtocolError(f"a request of {len(frame)} bytes has no header") from None
    return key, version, correlation_id


def decode_request_header(frame: Any) -> tuple[RequestHeader, int]:
    """Return the header, and the position of the body in a frame without size.

    A client id that is not UTF-8 is decoded with replacement characters, as brokers do. Raises RemoteProtocolError or
    UnknownVersion.
    """
    key, version, correlation_id = peek(frame)
    header_version = request_header_version(key, version)
    if header_version == 0:
        return RequestHeader(key, version, correlation_id, None), 8
    try:
        client_id, position = _client_id(frame)
        if header_version == 1:
            return RequestHeader(key, version, correlation_id, client_id), position
        if frame[position] == 0:
            return RequestHeader(key, version, correlation_id, client_id), position + 1
        tags, position = primitives.read_tags(frame, position, len(frame))
    except (IndexError, struct.error) as error:
        raise RemoteProtocolError("a request header ends too early") from error
    return RequestHeader(key, version, correlation_id, client_id, tags), position


def encode_request_header(header: RequestHeader) -> bytes:
    """Raises UnknownVersion, or LocalProtocolError if the client id is too long."""
    header_version = request_header_version(header.key, header.version)
    encoded = b"" if header.client_id is None else header.client_id.encode()
    if header_version == 0:
        return _START.pack(header.key, header.version, header.correlation_id, 0)[:8]
    if len(encoded) > primitives.STRING_MAX:
        raise primitives.too_long(len(encoded))
    length = -1 if header.client_id is None else len(encoded)
    start = _START.pack(header.key, header.version, header.correlation_id, length) + encoded
    if header_version == 1:
        return start
    parts: list[bytes] = [start]
    primitives.write_tags(parts.append, [], header.unknown_tags)
    return b"".join(parts)


def correlation_id(frame: Any) -> int:
    """Return the correlation id of a frame without size. Raises RemoteProtocolError if it is too short."""
    try:
        number: int = _CORRELATION_ID(frame, 0)[0]
    except struct.error:
        raise RemoteProtocolError(f"a response of {len(frame)} bytes has no header") from None
    return number


def response_body_offset(key: int, version: int, frame: Any) -> int:
    """Return the position of the body in a frame without size.

    Raises RemoteProtocolError or UnknownVersion.
    """
    if response_header_version(key, version) == 0:
        if len(frame) < 4:
            raise RemoteProtocolError(f"a response of {len(frame)} bytes has no header")
        return 4
    try:
        return 5 if frame[4] == 0 else primitives.skip_tags(frame, 4, len(frame))
    except IndexError as error:
        raise RemoteProtocolError("a response header ends too early") from error


def encode_response_header(key: int, version: int, correlation_id: int, unknown_tags: Tags = ()) -> bytes:
    """Encode a response header. Raises UnknownVersion."""
    start = _INT32.pack(correlation_id)
    if response_header_version(key, version) == 0:
        return start
    if not unknown_tags:
        return start + b"\0"
    parts: list[bytes] = [start]
    primitives.write_tags(parts.append, [], unknown_tags)
    return b"".join(parts)


def _client_id(frame: Any) -> tuple[str | None, int]:
    length = _START.unpack_from(frame, 0)[3]
    if length == -1:
        return None, _START.size
    position = _START.size + length
    if length < 0 or position > len(frame):
        raise primitives.refusal("client id", length, len(frame) - _START.size)
    return str(frame[_START.size : position], "utf-8", "replace"), position
