"""ruff and mypy are tests: one command says whether a change is fit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import type_checker

CHECKOUT = Path(__file__).resolve().parents[2]


def run(*command: str) -> tuple[int, str]:
    """A Python tool's exit status and all it printed."""
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=CHECKOUT, capture_output=True, text=True, timeout=400, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_ruff_reports_nothing() -> None:
    """Every rule in pyproject.toml holds, everywhere."""
    assert run("ruff", "check", "--no-cache", ".") == (0, "All checks passed!\n")


def test_files_are_formatted() -> None:
    """`ruff format` would change nothing."""
    status, output = run("ruff", "format", "--check", "--no-cache", ".")
    assert status == 0, output


@pytest.mark.slow
@pytest.mark.xdist_group(type_checker.GROUP)
def test_types_hold() -> None:
    """mypy in strict mode on the package, and on parts of the tests that `tests/run` does not all execute."""
    status, output = type_checker.mypy()
    assert status == 0, output
