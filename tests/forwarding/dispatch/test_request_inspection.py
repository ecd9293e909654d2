"""Requests that pass only after a look into them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pytest
from kafka_share_proxy.forwarding.dispatch import request_inspection
from kafka_share_proxy.forwarding.dispatch.request_inspection import (
    HEAD_MAX,
    SILENT,
    AcksMatch,
    IdMatch,
    RememberedMatch,
    TopicMatch,
    WordMatch,
    inspect_beginning,
    inspect_to_amend,
)
from kafka_share_proxy.wire.codec import frames, headers
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import RemoteProtocolError


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
    """Its key is the bytes after the correlation id; a request that was not forwarded is judged again."""
    requested: list[bytes] = []

    def match(buffer: memoryview, at: int, end: int, frame_end: int) -> Named | None:
        requested.append(bytes(buffer[at + 12 : end]))
        return None if b"mine" in requested[-1] else PLAIN

    remembered = RememberedMatch(match)
    for number in range(3):
        for body, expected in ((b"topic", PLAIN), (b"mine", None)):
            frame = request(body, number)
            assert remembered(frame, 0, len(frame), len(frame)) is expected
    assert requested == [b"topic", b"mine", b"mine", b"mine"]


def test_what_is_remembered_is_bounded(monkeypatch) -> None:
    """Number and length are limited; part of a request is not remembered."""
    monkeypatch.setattr(request_inspection, "REMEMBERED_MAX", 3)
    remembered = RememberedMatch(lambda *_: PLAIN)
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
    """One with a word is left to the next match."""
    match = WordMatch((b"__view.", b"tag"), lambda *_: OTHER, PLAIN)
    for body, expected in ((b"orders", PLAIN), (b"__view.r2.orders", OTHER), (b"a tag", OTHER)):
        frame = request(body)
        assert match(frame, 0, len(frame), len(frame)) is expected
        assert match(frame, 0, len(frame) - 1, len(frame)) is None


def test_ids_and_topics_are_left_to_the_next_match() -> None:
    """Only the walk in C reads them itself."""
    frame = request(b"ids")
    assert TopicMatch(9, b"__view.", lambda *_: OTHER, PLAIN)(frame, 0, len(frame), len(frame)) is OTHER
    assert IdMatch({}, 13, lambda *_: OTHER, PLAIN)(frame, 0, len(frame), len(frame)) is OTHER


def test_a_request_is_inspected_with_the_received_bytes() -> None:
    """`serve_here` says yes where that does not tell."""
    inspect = inspect_beginning(lambda frame: len(frame) < 10, inspect_to_amend(lambda _: None, PLAIN))
    frame = request(b"produce")
    assert inspect(frame, 0, 12, len(frame)) is None
    assert inspect(frame, 0, len(frame), len(frame)) is PLAIN


VERSIONS = range(registry.versions(0)[0], registry.versions(0)[1] + 1)


def produce(version: int, acks: int, client_id: str | None, transactional_id: str | None) -> bytes:
    message = registry.message("ProduceRequest")(
        acks=acks, timeout_ms=1000, topic_data=[], transactional_id=transactional_id
    )
    return frames.request(0, version, 77, client_id, message)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("client_id", [None, "", "x" * 300])
@pytest.mark.parametrize("transactional_id", [None, "tx" * 100])
def test_a_produce_without_acks_expects_no_response(
    version: int, acks: int, client_id: str | None, transactional_id: str | None
) -> None:
    """It is recognised in the middle of a buffer with other frames around it, as soon as its acks are received."""
    match, data = AcksMatch(version, PLAIN), produce(version, acks, client_id, transactional_id)
    expected = PLAIN if acks else SILENT
    for around in (b"\x00", b"\xff"):
        buffer = memoryview(around * 5 + data + around * 40)
        verdicts = [match(buffer, 5, 5 + end, 5 + len(data)) for end in range(12, len(data) + 1)]
        first = verdicts.index(expected)
        assert verdicts == [None] * first + [expected] * (len(verdicts) - first)
        assert first < len(verdicts) - 1


def test_acks_beyond_the_limit_are_not_waited_for_in_pieces() -> None:
    """A tagged field in the header may be of any length; the proxy does not keep megabytes to find two bytes."""
    header = headers.encode_request_header(headers.RequestHeader(0, 9, 5, "c", ((9, bytes(HEAD_MAX)),)))
    data = header + produce(9, 1, None, None)[15:]
    frame = memoryview(struct.pack(">i", len(data)) + data)
    assert AcksMatch(9, PLAIN)(frame, 0, len(frame), len(frame)) is None


@pytest.mark.parametrize("broken", [b"\xff\xfe" + bytes(20), b"\xff\xff" + b"\xff" * 20])
def test_a_produce_that_is_none_is_the_peers_fault(broken: bytes) -> None:
    """A negative length, a varint without end."""
    frame = memoryview(struct.pack(">ihhi", 8 + len(broken), 0, 9, 1) + broken)
    with pytest.raises(RemoteProtocolError, match="ProduceRequest v9"):
        AcksMatch(9, PLAIN)(frame, 0, len(frame), len(frame))
