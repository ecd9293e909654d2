"""Fetch v0-v3, while views are served: UNSUPPORTED_VERSION (35) for every partition (views/README.md rule 30).

Brokers up to 3.9 still serve these versions. View responses contain batches of magic 2, which began with v4. The
layouts, which the message definitions of 4.x no longer contain, are those of 3.x.
"""

from __future__ import annotations

import struct

from kafka_share_proxy.forwarding.dispatch.routes import Kind, Route
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError

VERSIONS = range(4)

_THROTTLE_SINCE, _MAX_BYTES_SINCE = 1, 3
_INT16, _INT32, _PARTITION = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">iqi")
_RESPONSE = struct.Struct(">ihqi")
"""Struct of partition, error code, high watermark, size of the records."""


def route(version: int) -> Route:
    return Route(kind=Kind.LOCAL, key=ApiKey.FETCH, version=version, handler=handle, opaque=True)


async def handle(call: Call[memoryview]) -> bytes:
    try:
        topics = _topics(bytes(call.message), call.version)
    except (struct.error, ValueError) as error:
        raise RemoteProtocolError(f"no Fetch v{call.version} request: {error}") from error
    parts = [_INT32.pack(call.correlation_id)]
    if call.version >= _THROTTLE_SINCE:
        parts.append(_INT32.pack(0))
    parts.append(_INT32.pack(len(topics)))
    for name, partitions in topics:
        parts += (_INT16.pack(len(name)), name, _INT32.pack(len(partitions)))
        parts += (_RESPONSE.pack(index, ErrorCode.UNSUPPORTED_VERSION, -1, 0) for index in partitions)
    body = b"".join(parts)
    return _INT32.pack(len(body)) + body


def _topics(frame: bytes, version: int) -> list[tuple[bytes, list[int]]]:
    """Raises struct.error or ValueError."""
    client_id = _INT16.unpack_from(frame, 8)[0]
    at = 10 + max(client_id, 0) + (16 if version >= _MAX_BYTES_SINCE else 12)
    count, at = _INT32.unpack_from(frame, at)[0], at + 4
    topics = []
    for _ in range(_fitting(count, frame, at)):
        size = _INT16.unpack_from(frame, at)[0]
        name, at = frame[at + 2 : at + 2 + size], at + 2 + size
        partitions, at = _INT32.unpack_from(frame, at)[0], at + 4
        numbers = [
            _PARTITION.unpack_from(frame, at + n * _PARTITION.size)[0] for n in range(_fitting(partitions, frame, at))
        ]
        topics.append((name, numbers))
        at += partitions * _PARTITION.size
    return topics


def _fitting(count: int, frame: bytes, at: int) -> int:
    if not 0 <= count <= len(frame) - at:
        raise ValueError(f"{count} entries in {len(frame) - at} bytes")
    return count
