"""Requests that pass only after a look into them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from proxy.forwarding import request_inspection
from proxy.forwarding.request_inspection import IdLook, RememberedLook, WordLook, look_at_beginning, look_to_amend


@dataclass(frozen=True)
class Named:
    """Expected."""

    name: str
    rewrite: None = None


PLAIN, OTHER = Named("plain"), Named("other")


def request(body: bytes, correlation_id: int = 1) -> memoryview:
    head = struct.pack(">hhi", 3, 9, correlation_id)
    return memoryview(bytearray(struct.pack(">i", len(head) + len(body)) + head + body))


def test_what_repeats_is_judged_once() -> None:
    """By the bytes behind the correlation id; a request that did not pass is judged again."""
    asked: list[bytes] = []

    def look(buffer: memoryview, at: int, end: int, frame_end: int) -> Named | None:
        asked.append(bytes(buffer[at + 12 : end]))
        return None if b"mine" in asked[-1] else PLAIN

    remembered = RememberedLook(look)
    for number in range(3):
        for body, expected in ((b"topic", PLAIN), (b"mine", None)):
            frame = request(body, number)
            assert remembered(frame, 0, len(frame), len(frame)) is expected
    assert asked == [b"topic", b"mine", b"mine", b"mine"]


def test_what_is_remembered_is_bounded(monkeypatch) -> None:
    """In number and in length; part of a request is not remembered."""
    monkeypatch.setattr(request_inspection, "REMEMBERED_MAX", 3)
    remembered = RememberedLook(lambda *_: PLAIN)
    for number in range(8):
        frame = request(bytes([number]))
        remembered(frame, 0, len(frame), len(frame))
        assert len(remembered.remembered) <= 3
    remembered.remembered.clear()
    long, part = request(bytes(2000)), request(b"part")
    remembered(long, 0, len(long), len(long))
    remembered(part, 0, len(part) - 1, len(part))
    assert not remembered.remembered


def test_a_request_without_the_words_passes_once_it_is_whole() -> None:
    """One with a word is left to the look behind."""
    look = WordLook((b"__view.", b"tag"), lambda *_: OTHER, PLAIN)
    for body, expected in ((b"orders", PLAIN), (b"__view.r2.orders", OTHER), (b"a tag", OTHER)):
        frame = request(body)
        assert look(frame, 0, len(frame), len(frame)) is expected
        assert look(frame, 0, len(frame) - 1, len(frame)) is None


def test_ids_are_left_to_the_look_behind() -> None:
    """Only the walk in C reads them itself."""
    frame = request(b"ids")
    assert IdLook({}, 26, lambda *_: OTHER, PLAIN)(frame, 0, len(frame), len(frame)) is OTHER


def test_a_request_is_looked_at_with_what_has_come() -> None:
    """`serve_here` says yes where that does not tell."""
    look = look_at_beginning(lambda frame: len(frame) < 10, look_to_amend(lambda _: None, PLAIN))
    frame = request(b"produce")
    assert look(frame, 0, 12, len(frame)) is None
    assert look(frame, 0, len(frame), len(frame)) is PLAIN
