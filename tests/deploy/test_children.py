"""Child processes end by their handle, and with their parent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.addresses import free_ports
from kafka_share_proxy.localkafka.children import Child

from tests.support.raw import until

CHECKOUT = Path(__file__).resolve().parents[2]
SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
DEAF = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); "
        "time.sleep(60)"]  # fmt: skip


def _up(child: Child) -> None:
    until(lambda: child.output() == "up", "the child to be up")


def test_stop(tmp_path: Path) -> None:
    """It ends on request, and its status shows the signal."""
    child = Child(SLEEP, tmp_path / "log")
    _up(child)
    assert child.status is None
    assert child.stop() == -15


def test_stop_of_one_that_does_not_listen(tmp_path: Path) -> None:
    """It is killed when it does not end in time."""
    child = Child(DEAF, tmp_path / "log")
    _up(child)
    assert child.stop(timeout_s=0.1) == -9


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells children only on Linux")
def test_ends_with_its_parent(tmp_path: Path) -> None:
    """A child does not outlive a parent that was killed."""
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from kafka_share_proxy.localkafka.children import Child; "
        "from pathlib import Path; print(Child(['sleep', '60'], Path(sys.argv[2])).pid, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(CHECKOUT / "proxy"), str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    until(lambda: _state(child) in ("", "Z"), "the child to end")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_free_ports() -> None:
    """They are in a row, and below those the kernel gives to outgoing connections."""
    ports = free_ports(12)
    assert len(ports) == 12
    assert ports[-1] - ports[0] == 11


@pytest.mark.skipif(sys.platform != "linux", reason="other processes are kept away only on Linux")
def test_free_ports_are_given_to_one_process_only() -> None:
    """Tests run in several processes: what one has, it keeps while nothing listens there."""
    first = free_ports(20)[0]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from kafka_share_proxy.localkafka import addresses; "
        "blocks = int(sys.argv[2]) // addresses._BLOCK; "
        "print([addresses._claim(range(blocks + n, blocks + n + 1)) for n in range(2)])"
    )
    command = [sys.executable, "-c", code, str(CHECKOUT / "proxy"), str(first)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[False, False]\n"
    assert set(free_ports(20)).isdisjoint(range(first, first + 20))
