"""The demonstration runs to its end with a real broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "demonstration.py"
LIMIT_S = 150


@pytest.mark.broker
@pytest.mark.slow
def test_everything_that_the_demonstration_checks_holds() -> None:
    run = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "All of it held" in run.stdout
