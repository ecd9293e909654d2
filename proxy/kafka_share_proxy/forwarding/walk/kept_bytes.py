"""Received bytes that one direction of a connection keeps between two walks.

A walk leaves bytes unprocessed if a frame's head is incomplete, if a request is served here, or if the connection's
share of the loop iteration is over (`Reactor.share_ends`). They are moved out of the receive buffer, which all
connections share.
"""

from __future__ import annotations

READ_AFTER_PAUSE = 16 << 10
"""Bytes received in one call after a walk that left more than this unprocessed.

A client that pipelines more than the available time allows then has this much kept, not a whole receive buffer.
"""

NOTHING = memoryview(b"")


def keep(buffer: memoryview, at: int, end: int, shared: memoryview) -> memoryview:
    """Return buffer[at:end] outside of the `shared` receive buffer, writable.

    Kept bytes are copied again only when half of their memory is unused: at most twice per byte on average.
    """
    if at >= end:
        return NOTHING
    if buffer is shared or 2 * (end - at) <= memory_of(buffer):
        return memoryview(bytearray(buffer[at:end]))
    return buffer[at:end]


def must_read_little(left: int, before: bool) -> bool:
    """Return True if the next read must be short after a walk that left `left` bytes. `before`: the last one was."""
    return left > (0 if before else READ_AFTER_PAUSE)


def memory_of(kept: memoryview) -> int:
    """Return the memory of kept bytes."""
    return len(kept.obj)  # type: ignore[arg-type]  # bytes or a bytearray
