"""Which walk is in use."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.link import walk, walking

RUNTIME = Path(__file__).resolve().parents[1] / "runtime"


def test_the_walk_in_c_is_taken_where_it_was_built() -> None:
    """Else its twin."""
    built = importlib.util.find_spec("proxy.link._walk") is not None
    assert built == walking.IN_C
    assert (walking.RequestWalk is walk.RequestWalk) == (not built)


def test_the_data_plane_works_without_c() -> None:
    """Where nothing could be built; the same tests hold."""
    names = ("test_connection", "test_downward", "test_plane", "test_requests", "test_upward")
    program = (
        "import sys; sys.modules.update({'proxy.link._walk': None, 'proxy.runtime._pump': None}); import pytest; "
        "from proxy.link import walking; assert not walking.IN_C; sys.exit(pytest.main(sys.argv[1:]))"
    )
    tests = [str(RUNTIME / f"{name}.py") for name in names]
    ended = subprocess.run(
        [sys.executable, "-c", program, "-q", "-p", "no:cacheprovider", *tests],
        cwd=RUNTIME.parents[1],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_unwritten_room_has_its_size_and_can_be_written() -> None:
    for module in (walk, walking):
        room = module.unwritten(1 << 20)
        assert type(room) is bytearray
        assert len(room) == 1 << 20
        room[:] = b"x" * (1 << 20)
        assert module.unwritten(0) == b""
        with pytest.raises(ValueError):
            module.unwritten(-1)
