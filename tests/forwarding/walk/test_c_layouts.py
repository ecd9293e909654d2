"""Layouts of messages in C match the message definitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_share_proxy.forwarding.dispatch.request_inspection import MatchKind
from kafka_share_proxy.forwarding.walk import c_layouts
from kafka_share_proxy.wire.errors import LocalProtocolError

HEADER = Path(c_layouts.__file__).with_name("layouts.h")


def test_the_header_equals_the_definitions() -> None:
    """`python -m kafka_share_proxy.forwarding.walk.c_layouts` writes it."""
    assert HEADER.read_text() == c_layouts.written()


def test_every_name_is_used_by_the_walk() -> None:
    """Unused names are not written."""
    text = HEADER.with_name("_walk.c").read_text()
    names = [name for name, _, _ in c_layouts.constants()]
    assert [name for name in names if name not in text] == []
    assert {f"MATCH_{kind.name}" for kind in MatchKind} <= set(names)


def test_layouts_that_come_to_differ_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition of Fetch v11 has no tags, and one of v9 fewer fields: C would read them all alike."""
    for since in (11, 9):
        monkeypatch.setattr(c_layouts, "FETCH_IDS_SINCE", since)
        with pytest.raises(LocalProtocolError):
            c_layouts.written()
    monkeypatch.setattr(c_layouts, "FETCH_IDS_SINCE", 12)
    assert c_layouts.written() == HEADER.read_text()
