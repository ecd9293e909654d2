"""Received bytes that one direction of a connection keeps between two walks.

They are moved out of the receive buffer, which all connections share (forwarding/README.md rules 41 and 42).
"""

from __future__ import annotations

READ_AFTER_PAUSE = 16 << 10
"""Bytes received in one call after a walk that left more than this unprocessed."""

NOTHING = memoryview(b"")


def keep(buffer: memoryview, at: int, end: int, shared: memoryview) -> memoryview:
    """Return buffer[at:end] outside of the `shared` receive buffer. Copied again only when half of the memory is
    unused.
    """
    if at >= end:
        return NOTHING
    if buffer is shared or 2 * (end - at) <= memory_of(buffer):
        return memoryview(bytearray(buffer[at:end]))
    return buffer[at:end]


def must_read_little(unprocessed: int, before: bool) -> bool:
    """True if the next read must be short after a walk with unprocessed bytes. `before`: the last one was."""
    return unprocessed > (0 if before else READ_AFTER_PAUSE)


def memory_of(data: memoryview) -> int:
    """Return the memory of kept bytes."""
    return len(data.obj)  # type: ignore[arg-type]  # bytes or a bytearray
