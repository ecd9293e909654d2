"""The end of a process whose fixtures hang (tests/support/hangs.py)."""

from __future__ import annotations

import os
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

LONG = """
import time

import pytest


@pytest.mark.timeout(50)
def test_passes():
    time.sleep(3)


def test_hangs():
    time.sleep(60)
"""


def test_a_test_may_take_as_long_as_its_own_limit(tmp_path: Path) -> None:
    """One without such a limit is ended by that of pytest."""
    done = ran(tmp_path, LONG, "-v", "-o", "faulthandler_timeout=2")
    assert done.returncode == 1
    assert "test_passes PASSED" in done.stdout
    assert "in test_hangs" in done.stderr


def test_fixtures_of_a_failed_test_that_do_not_end_are_ended_with_their_stacks(tmp_path: Path) -> None:
    done = ran(tmp_path, FIXTURE)
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "in never_ends" in done.stderr


def ran(folder: Path, tests: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run tests with the plugin."""
    (folder / "conftest.py").write_text(PLUGIN)
    (folder / "test_hanging.py").write_text(tests)
    options = ["-c", "pyproject.toml", "--rootdir", str(CHECKOUT), "-p", "no:randomly", *more]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)],
        cwd=CHECKOUT, env=os.environ | {"PYTEST_ADDOPTS": ""}, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
