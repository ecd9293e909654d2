"""Frames from a byte stream that arrives in any pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.forwarding.client_trace.frame_collector import CollectedFrame, FrameCollector
from kafka_share_proxy.wire.errors import RemoteProtocolError

KEPT = 8


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


@given(st.lists(st.binary(max_size=20), max_size=6), st.integers(0, 9), st.lists(st.integers(1, 7), max_size=40))
def test_frames_are_the_same_however_their_bytes_arrive(frames: list[bytes], skipped: int, cuts: list[int]) -> None:
    stream = memoryview(bytes(skipped) + b"".join(map(framed, frames)))
    collector, collected = FrameCollector(skipped, KEPT), []
    for cut in [*cuts, len(stream)]:
        collected += list(collector.feed(stream[:cut]))
        stream = stream[cut:]
    assert collected == [CollectedFrame(data[:KEPT], len(data)) for data in frames]
    assert [frame.is_whole for frame in collected] == [len(data) <= KEPT for data in frames]


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        list(FrameCollector(0, KEPT).feed(memoryview(b"\xff\xff\xff\xff")))
