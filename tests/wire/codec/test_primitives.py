"""Varints, tag sections, limits."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.codec import primitives
from kafka_share_proxy.wire.errors import LocalProtocolError, RemoteProtocolError


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (16383, "ff7f"), (2**31 - 1, "ffffffff07")],
)
def test_a_uvarint_has_seven_bits_a_byte(value: int, data: str) -> None:
    """Seven bits a byte, least significant first."""
    assert primitives.uvarint(value) == bytes.fromhex(data)
    assert primitives.read_uvarint(b"x" + bytes.fromhex(data) + b"y", 1) == (value, 1 + len(data) // 2)


@pytest.mark.parametrize("data", ["ffffffffff01", "ffffffffffff", "ffffffff1f"])
def test_a_uvarint_has_32_bits_at_most(data: str) -> None:
    """A longer one is refused instead of growing."""
    with pytest.raises(RemoteProtocolError):
        primitives.read_uvarint(bytes.fromhex(data), 0)


def test_tag_sections_survive() -> None:
    """The tags are written again unchanged, in the order of the tags."""
    parts: list[bytes] = []
    primitives.write_tags(parts.append, [(1, b"known")], ((0, b""), (7, b"x" * 200)))
    data = b"".join(parts)
    assert primitives.read_tags(data + b"rest", 0, len(data) + 4) == (
        ((0, b""), (1, b"known"), (7, b"x" * 200)),
        len(data),
    )
    assert primitives.skip_tags(data + b"rest", 0, len(data) + 4) == len(data)


@pytest.mark.parametrize("data", ["ffffffff0f", "0200", "01000501", "9151" + "00" * 20_900])
def test_tag_sections_are_limited(data: str) -> None:
    """Neither more tags than the bytes hold, nor more than 10,000, nor one longer than the rest."""
    raw = bytes.fromhex(data)
    with pytest.raises(RemoteProtocolError):
        primitives.read_tags(raw, 0, len(raw))
    with pytest.raises(RemoteProtocolError):
        primitives.skip_tags(raw, 0, len(raw))


def test_compact_strings_have_the_limit_of_old_ones() -> None:
    """Kafka refuses longer strings in every version."""
    assert primitives.string_uvarint(0x8000) == primitives.uvarint(0x8000)
    with pytest.raises(LocalProtocolError):
        primitives.string_uvarint(0x8001)


def test_only_short_array_structs_are_kept() -> None:
    """The cache must not grow with every length a peer thinks of."""
    structs = primitives.ArrayStructs("i", "h")
    assert structs[3].size == 14
    assert structs[100_000].size == 400_002
    assert list(structs) == [3]
