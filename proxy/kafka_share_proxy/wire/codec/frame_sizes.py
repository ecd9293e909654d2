"""First bytes of a frame: a size of 4 bytes, which does not count itself, and the start of the header.

The error for a wrong size names what the bytes probably are (a TLS hello read as a size is about 370 million).
"""

from __future__ import annotations

import struct

from kafka_share_proxy.wire.errors import RemoteProtocolError

REQUEST_HEAD = struct.Struct(">i4si")
"""Size, API key and version as four bytes, correlation id."""

RESPONSE_HEAD = struct.Struct(">ii")
"""Size, correlation id."""

SIZE = struct.Struct(">i")

REQUEST_MIN = REQUEST_HEAD.size - SIZE.size
"""Bytes of the smallest request: key, version, correlation id (ControlledShutdown)."""

RESPONSE_MIN = RESPONSE_HEAD.size - SIZE.size

_TLS_RECORDS = {0x14: "change of cipher", 0x15: "alert", 0x16: "handshake", 0x17: "data"}
_HTTP_WORDS = (
    b"GET ",
    b"POST",
    b"PUT ",
    b"HEAD",
    b"OPTI",
    b"DELE",
    b"PATC",
    b"CONN",
    b"TRAC",
    b"HTTP",
    b"PRI ",
    b"<!DO",
    b"<htm",
    b"<HTM",
)


def wrong_size(size: int, largest: int, smallest: int) -> RemoteProtocolError:
    """Return the error for a frame size outside of these limits, in bytes."""
    other_protocol = hint(SIZE.pack(size))
    if other_protocol:
        return RemoteProtocolError(f"no Kafka frame but {other_protocol}")
    if size < 0:
        return RemoteProtocolError(f"negative frame size {size}")
    if size < smallest:
        return RemoteProtocolError(f"frame of {size} bytes is too short for a header")
    return RemoteProtocolError(f"frame of {size} bytes is larger than the limit of {largest}")


def hint(first: bytes) -> str:
    """Return the likely protocol, or "" if the bytes may be a size."""
    if first[0] in _TLS_RECORDS and first[1] == 3 and first[2] <= 4:
        return f"a TLS {_TLS_RECORDS[first[0]]} record (TLS spoken to a plain-text port?)"
    if first in _HTTP_WORDS:
        return "HTTP (an HTTP client or health check on a Kafka port?)"
    if first == b"SSH-":
        return "SSH"
    return ""
