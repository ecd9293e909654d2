"""mypy, with the settings and the cache of this checkout: what one test has checked, others need not check again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
GROUP = "mypy"
"""Group of the tests that run it (tests/support/sharing.py): each waits for the cache that another one writes."""
RUN_S = 400


def mypy(*arguments: str) -> tuple[int, str]:
    """Return the exit status and the output."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *arguments],
        cwd=CHECKOUT, capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr
