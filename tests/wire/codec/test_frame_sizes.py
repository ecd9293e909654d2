"""Valid sizes of a frame, and the meaning of four other bytes at their position."""

from __future__ import annotations

import struct

import pytest
from kafka_share_proxy.wire.codec.frame_sizes import REQUEST_MIN, RESPONSE_MIN, hint, wrong_size


def test_sizes_of_kafka_frames_are_not_taken_for_something_else() -> None:
    sizes = [8, 100, 1 << 16, 100 << 20]
    assert [hint(struct.pack(">i", size)) for size in sizes] == [""] * 4


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"\x16\x03\x01\x02", "no Kafka frame but a TLS handshake record (TLS spoken to a plain-text port?)"),
        (b"\x15\x03\x03\x00", "no Kafka frame but a TLS alert record (TLS spoken to a plain-text port?)"),
        (b"GET ", "no Kafka frame but HTTP (an HTTP client or health check on a Kafka port?)"),
        (b"SSH-", "no Kafka frame but SSH"),
        (b"\xff\xff\xff\xff", "negative frame size -1"),
        (b"\x00\x00\x00\x03", "frame of 3 bytes is too short for a header"),
        (b"\x00\x00\x04\x01", "frame of 1025 bytes is larger than the limit of 1024"),
    ],
)
def test_a_wrong_size_is_reported_with_the_likely_protocol(first: bytes, words: str) -> None:
    """The limit is 1024 bytes, the shortest frame has 4."""
    assert str(wrong_size(struct.unpack(">i", first)[0], 1024, RESPONSE_MIN)) == words


def test_the_shortest_frames() -> None:
    """A response has a correlation id at least, a request key and version before it."""
    assert (RESPONSE_MIN, REQUEST_MIN) == (4, 8)
