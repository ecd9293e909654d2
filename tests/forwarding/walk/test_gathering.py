"""Gathering one frame."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from kafka_share_proxy.forwarding.walk.gathering import PRESIZED_MAX, Gathering

STATUS = Path("/proc/self/statm")


def resident() -> int:
    """Bytes of this process in memory."""
    return int(STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_frame_is_whole_with_its_last_byte_and_leaves_the_rest() -> None:
    frame = struct.pack(">i", 10) + bytes(range(10))
    buffer = memoryview(frame + b"next")
    gathering = Gathering(10, "subject")
    assert gathering.add(buffer, 0, 3) == 3
    assert not gathering.is_whole
    assert gathering.add(buffer, 3, len(buffer)) == 14
    assert gathering.is_whole
    assert bytes(gathering.frame) == frame


def test_memory_follows_the_received_bytes_not_the_announced_size() -> None:
    gathering = Gathering(64 << 20, None)
    gathering.add(memoryview(bytes(100)), 0, 100)
    assert len(gathering.frame) == 100


def test_a_presized_frame_is_read_into_its_place() -> None:
    """Some of it arrived with the bytes before it, the rest is read directly."""
    frame = struct.pack(">i", 10) + bytes(range(10))
    gathering = Gathering(10, None, presized=True)
    assert gathering.add(memoryview(frame[:6]), 0, 6) == 6
    while not gathering.is_whole:
        room = gathering.room
        assert room is not None
        room[:3] = frame[len(frame) - len(room) :][: len(room[:3])]
        gathering.filled(len(room[:3]))
    assert bytes(gathering.frame) == frame
    assert gathering.room is None


def test_what_is_longer_than_the_room_in_advance_takes_pages_as_they_come() -> None:
    assert len(Gathering(PRESIZED_MAX - 4, None, presized=True).room or b"") == PRESIZED_MAX
    size = PRESIZED_MAX - 3
    frame = struct.pack(">i", size) + os.urandom(size)
    gathering = Gathering(size, None, presized=True)
    assert len(gathering.room or b"") == len(frame)
    assert gathering.add(memoryview(frame), 0, 50) == 50
    assert gathering.add(memoryview(frame + b"next"), 50, len(frame) + 4) == len(frame)
    assert gathering.is_whole
    assert bytes(gathering.frame) == frame


@pytest.mark.skipif(not STATUS.exists(), reason="resident memory is told by /proc")
def test_announced_bytes_take_no_memory_and_dropped_frames_give_theirs_back() -> None:
    """A hundred announced frames of 64 MiB of which 1 MiB has come take 100 MiB, and nothing once they are gone."""
    piece, before = memoryview(bytes(1 << 20)), resident()
    gatherings = [Gathering(64 << 20, None) for _ in range(100)]
    for gathering in gatherings:
        gathering.add(piece, 0, len(piece))
    assert 90 < (resident() - before) >> 20 < 110
    del gathering
    gatherings.clear()
    assert (resident() - before) >> 20 < 10


def test_a_frame_is_writable_and_its_own() -> None:
    buffer = memoryview(bytearray(struct.pack(">i", 1) + b"a"))
    gathering = Gathering(1, None)
    gathering.add(buffer, 0, 5)
    buffer[4:] = b"z"
    gathering.frame[4:] = b"b"
    assert bytes(gathering.frame[4:]) == b"b"
