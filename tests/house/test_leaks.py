"""Test to which an unclosed socket is attributed (tests/support/leaks.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]

LEAVES_ONE_OPEN = """
import gc
import socket


def test_first_leaves_a_socket_open():
    circle = [socket.socket()]
    circle.append(circle)


def test_second_closes_its_socket():
    socket.socket().close()
    gc.collect()
"""


def test_a_socket_left_open_fails_the_test_that_made_it(tmp_path):
    file = tmp_path / "test_sockets.py"
    file.write_text(LEAVES_ONE_OPEN)
    options = ["-c", "pyproject.toml", "--rootdir", str(CHECKOUT), "-p", "tests.support.leaks", "-p", "no:randomly"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(file)], cwd=CHECKOUT, capture_output=True, text=True, timeout=120
    )
    assert "1 error" in run.stdout
    assert "2 passed" in run.stdout
    assert "test_first_leaves_a_socket_open leaves behind: ResourceWarning" in run.stdout
    assert "unclosed <socket.socket" in run.stdout
