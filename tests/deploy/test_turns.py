"""Work that two processes would do at the same time is done by one after the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kafka_share_proxy.localkafka.turns import turn

CHECKOUT = Path(__file__).resolve().parents[2]
WAITER = (
    "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
    "from kafka_share_proxy.localkafka.turns import turn\n"
    "print('up', flush=True)\n"
    "with turn(Path(sys.argv[2])): print((Path(sys.argv[2]) / 'done').exists(), flush=True)"
)


def test_the_second_waits_for_the_first(tmp_path: Path) -> None:
    """And finds the work done."""
    folder = tmp_path / "cache"
    command = [sys.executable, "-c", WAITER, str(CHECKOUT / "proxy"), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiter:
        assert waiter.stdout is not None
        with turn(folder):
            assert waiter.stdout.readline() == "up\n"
            (folder / "done").touch()
        assert waiter.stdout.readline() == "True\n"
