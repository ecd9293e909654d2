"""Generated decoders refuse bytes that are no message, quickly and in little memory."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from kafka_share_proxy.wire.codec import decoding
from kafka_share_proxy.wire.codec.compiler import Codec
from kafka_share_proxy.wire.definitions import registry, specs
from kafka_share_proxy.wire.errors import RemoteProtocolError

from tests.wire.samples import Samples, every_codec

HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08")
NEGATIVE = (b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\x00\x00\x00", b"\xff\xfe")
POSITIONS = 50
"""Positions of wrong values, spread over the message."""
AMPLIFICATION_MAX = 400
"""Bytes of objects per byte read: one structure of the fewest bytes, with all its attributes and empty lists."""


def refused(codec: Codec, data: bytes) -> bool:
    """True if the bytes are refused; anything but a message or RemoteProtocolError fails the test."""
    try:
        codec.decode(data)
    except RemoteProtocolError:
        return True
    return False


def test_any_bytes_give_a_message_or_remote_protocol_error() -> None:
    """All messages and versions: cut off anywhere, negative and huge lengths anywhere, bytes changed at random."""
    refusals = 0
    for name, version in every_codec():
        codec, draw = registry.codec(name, version), random.Random(f"{name}-{version}")
        data = codec.encode(Samples(f"fuzz-{name}-{version}", tags=True).message(codec.spec, version))[:4096]
        for position in range(0, len(data), max(1, len(data) // 12)):
            broken = [data[:position], data[:position] + draw.randbytes(12) + data[position + 12 :]]
            broken += [data[:position] + lie + data[position + len(lie) :] for lie in (*NEGATIVE[:2], *HUGE[:2])]
            refusals += sum(refused(codec, one) for one in broken)
    assert refusals > 10_000


@pytest.mark.parametrize("lie", [*NEGATIVE, *HUGE])
@pytest.mark.parametrize(("key", "version"), [(3, 0), (3, 12), (1, 4), (1, 12), (18, 0), (18, 3), (78, 2)])
def test_lying_lengths_cost_nothing(key: int, version: int, lie: bytes) -> None:
    """A length is judged before anything is allocated for it."""
    codec = registry.response(key, version)
    data = codec.encode(Samples(f"lie-{key}-{version}").message(codec.spec, version))[:1024]
    refused(codec, data)
    tracemalloc.start()
    try:
        for position in range(0, len(data), max(1, len(data) // POSITIONS)):
            refused(codec, data[:position] + lie + data[position + len(lie) :])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40_000 + AMPLIFICATION_MAX * len(data)


def test_counts_are_limited() -> None:
    """More than a million elements are refused although the bytes would be there."""
    data = (2_000_000).to_bytes(4, "big") + bytes(2_000_000)
    with pytest.raises(RemoteProtocolError, match="2000000"):
        registry.codec("ConsumerProtocolAssignment", 0).decode(data)


def test_random_bytes_are_refused_by_nearly_every_codec() -> None:
    """Noise is refused by nearly every codec, and never breaks one."""
    draw = random.Random(1)
    noise = [draw.randbytes(size) for size in (0, 1, 3, 17, 60, 300)]
    for name, version in every_codec():
        codec = registry.codec(name, version)
        assert refused(codec, noise[-1]), codec
        for one in noise:
            refused(codec, one)


@pytest.mark.parametrize("text", [b"\xff\xfe", b"\xc3", b"\xed\xa0\x80"])
def test_strings_must_be_utf8(text: bytes) -> None:
    """A group id that is no text is refused, also in messages that are read from a view."""
    data = len(text).to_bytes(2, "big") + text
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        registry.request(11, 0).decode(data + bytes(30))
    fetch = bytes.fromhex("ffffffff 00000001 00000001 00".replace(" ", "")) + (1).to_bytes(4, "big") + data
    with pytest.raises(RemoteProtocolError):
        registry.request(1, 4).decode(fetch + bytes(30))


def test_null_is_refused_if_the_field_is_not_nullable() -> None:
    """HeartbeatRequest: the group id is never null; neither is an element of an array of strings."""
    with pytest.raises(RemoteProtocolError, match="GroupId"):
        registry.request(12, 0).decode(b"\xff\xff" + bytes(20))
    with pytest.raises(RemoteProtocolError, match="GroupId"):
        registry.request(12, 4).decode(b"\0" + bytes(20))
    with pytest.raises(RemoteProtocolError, match="Groups"):
        registry.request(15, 0).decode(b"\0\0\0\1\xff\xff")


def test_only_messages_with_records_are_read_from_views() -> None:
    """Slicing bytes is quicker; records are too large to copy."""
    assert decoding.has_views(specs.load("FetchResponse"))
    assert decoding.has_views(specs.load("ShareFetchResponse"))
    assert not decoding.has_views(specs.load("MetadataResponse"))
