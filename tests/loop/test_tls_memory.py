"""The memory of TLS connections is bounded."""

from __future__ import annotations

from kafka_share_proxy.loop.tls_memory import CHUNK_BYTES, HANDSHAKE_BYTES, SHORT_CHUNK_BYTES, TlsMemory


def test_from_half_of_the_limit_on_chunks_are_small_and_at_the_limit_there_is_no_room() -> None:
    memory = TlsMemory(4 * HANDSHAKE_BYTES)
    memory.used = 2 * HANDSHAKE_BYTES
    assert (memory.chunk_bytes, memory.has_room) == (CHUNK_BYTES, True)
    memory.used += 1
    assert (memory.chunk_bytes, memory.has_room) == (SHORT_CHUNK_BYTES, True)
    memory.used += HANDSHAKE_BYTES
    assert not memory.has_room
