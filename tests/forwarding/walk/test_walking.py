"""Which walk is in use."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from kafka_share_proxy.forwarding.walk import walk, walking
from kafka_share_proxy.forwarding.walk.gathering import PRESIZED_MAX

LARGE = 4 << 20
"""Bytes of a room that is kept."""

FORWARDING = Path(__file__).resolve().parents[1]


def test_the_walk_in_c_is_taken_where_it_was_built() -> None:
    """Else its twin."""
    built = importlib.util.find_spec("kafka_share_proxy.forwarding.walk._walk") is not None
    assert built == (walking.KERNEL == "c")
    assert (walking.RequestWalk is walk.RequestWalk) == (not built)


def test_the_data_plane_works_without_c() -> None:
    """If no extension could be built; the same tests hold."""
    names = (
        "test_connection",
        "test_broker_to_client",
        "test_data_plane",
        "dispatch/test_request_dispatch",
        "test_client_to_broker",
    )
    program = (
        "import sys\n"
        "sys.modules.update({f'kafka_share_proxy.forwarding.walk.{name}': None for name in ('_walk', '_pump')})\n"
        "import pytest\n"
        "from kafka_share_proxy.forwarding.walk import walking; assert walking.KERNEL == 'python'\n"
        "sys.exit(pytest.main(sys.argv[1:]))"
    )
    tests = [str(FORWARDING / f"{name}.py") for name in names]
    ended = subprocess.run(
        [sys.executable, "-c", program, "-q", "-p", "no:cacheprovider", *tests],
        cwd=FORWARDING.parents[1],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_room_has_its_size_and_can_be_written() -> None:
    for module in (walk, walking):
        for size in (1, 1 << 20, LARGE, PRESIZED_MAX, PRESIZED_MAX + 1):
            room = module.room(size)
            assert room.nbytes == size
            room[:] = b"x" * size
        assert module.room(0) == b""
        with pytest.raises(ValueError):
            module.room(-1)


def test_a_large_buffer_is_reused_only_when_no_part_of_it_is_held() -> None:
    first = walking.room(LARGE)
    first[:] = b"1" * LARGE
    retained_part = first[1000:2000]
    del first
    other_rooms = [walking.room(LARGE) for _ in range(8)]
    for room in other_rooms:
        room[:] = b"2" * LARGE
    assert bytes(retained_part) == b"1" * 1000
    del retained_part
    again = walking.room(LARGE)
    assert again[0] == (ord("1") if walking.KERNEL == "c" else 0)
    del other_rooms, again, room
    assert {walking.room(LARGE)[LARGE - 1] for _ in range(100)} <= {0, ord("1"), ord("2")}
