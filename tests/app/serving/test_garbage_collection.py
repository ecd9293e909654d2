"""Garbage collection of a proxy, tested in a process of its own.

The cases (`garbage_collection_cases.py`) freeze, thaw and multiply all objects of their process. In a process of the
whole run these are millions, and each later test that makes a socket would walk them again (tests/support/leaks.py).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
CASES = Path(__file__).with_name("garbage_collection_cases.py")
NUMBER = 10
LIMIT_S = 200


def test_every_case_holds_in_a_small_process() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout
    assert f"{NUMBER} passed" in done.stdout
