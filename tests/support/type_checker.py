"""mypy, with the settings and the cache of this checkout: what one test has checked, others need not check again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
GROUP = "mypy"
"""Group of the tests that run it (tests/support/sharing.py): each waits for the cache that another one writes."""
RUN_S = 400
PROGRAMS = CHECKOUT / ".mypy_cache" / "programs"


def program(name: str, text: str) -> Path:
    """Return the path of a program. It is the same in each run: mypy repeats errors of its cache with their paths."""
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    path = PROGRAMS / name
    path.write_text(text)
    return path


def mypy(*arguments: str) -> tuple[int, str]:
    """Return the exit status and the output."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *arguments],
        cwd=CHECKOUT, capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr
