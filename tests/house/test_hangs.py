"""The end of a process whose fixtures hang (tests/support/hangs.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]

PLUGIN = """
from tests.support import hangs

hangs.TEARDOWN_S = 1.0


def pytest_configure(config):
    config.pluginmanager.register(hangs.HangWatch())
"""
FIXTURE = """
import time

import pytest


@pytest.fixture
def never_ends():
    yield
    time.sleep(60)


def test_fails(never_ends):
    raise AssertionError
"""


def test_fixtures_of_a_failed_test_that_do_not_end_are_ended_with_their_stacks(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "test_hanging.py").write_text(FIXTURE)
    options = ["-c", "pyproject.toml", "--rootdir", str(CHECKOUT), "-p", "no:randomly"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=CHECKOUT, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "in never_ends" in done.stderr
