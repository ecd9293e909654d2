"""Keys as text."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.key_text import key_text, printable


@pytest.mark.parametrize(
    ("key", "most", "shown"),
    [
        (b"alice", 64, "alice"),
        ("grüße".encode(), 3, "gr..."),
        ("grüße".encode(), 4, "grü..."),
        (b"\xff\x00", 64, "0xff00"),
        (b"\x1b[31m", 64, "0x1b5b33316d"),
        (b"", 64, "0x"),
        (b"alice", 2, "al..."),
    ],
)
def test_a_key_is_text_where_it_can_be_printed(key: bytes, most: int, shown: str) -> None:
    assert key_text(key, most) == shown


def test_control_characters_do_not_reach_a_terminal() -> None:
    assert printable("a\x1b[2J\u202e\nb \u00fc") == "a?[2J??b \u00fc"
