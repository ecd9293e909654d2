"""Account of the memory that TLS connections of clients use, with one limit for all of them.

Measured with OpenSSL 3 and CPython 3.11: 46 KiB for a handshake that waits for its client, 15 KiB for an established
connection, and 138 KiB after 64 KiB were received and sent in one go, because memory buffers keep their size.
"""

from __future__ import annotations

from math import inf

HANDSHAKE_BYTES = 48 * 1024
"""Memory of an unfinished handshake after the ClientHello."""
ESTABLISHED_BYTES = 16 * 1024
"""Memory of an established connection without its buffers."""
CHUNK_BYTES = 64 * 1024
"""Maximum bytes encrypted, or read from the kernel, in one step."""
SHORT_CHUNK_BYTES = 16 * 1024
"""The same while memory is short, so that small buffers stay small."""


def buffer_bytes(pending: int) -> int:
    """Return the memory that a buffer keeps after it once held `pending` bytes (OpenSSL's BUF_MEM_grow)."""
    return pending * 4 // 3


class TlsMemory:
    """Estimate of the bytes in use."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: float = inf) -> None:
        self.limit = limit
        self.used = 0

    @property
    def has_room(self) -> bool:
        return self.used + HANDSHAKE_BYTES <= self.limit

    @property
    def chunk_bytes(self) -> int:
        return CHUNK_BYTES if 2 * self.used <= self.limit else SHORT_CHUNK_BYTES
