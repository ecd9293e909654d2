"""Configuration of cibuildwheel, read by cibuildwheel. test_distributions.py runs what it runs in containers."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
RUN_S = 60


def test_one_wheel_for_each_machine_is_built() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CIBW_")}
    command = [sys.executable, "-m", "cibuildwheel", "--print-build-identifiers", "--platform", "linux"]
    done = subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["cp311-manylinux_aarch64", "cp311-manylinux_x86_64"]


def test_repaired_wheels_are_checked_and_the_installed_command_is_tried() -> None:
    configured: dict[str, Any] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    repair, check = configured["linux"]["repair-wheel-command"]
    assert repair.startswith("auditwheel repair ")
    assert "abi3audit" in check
    assert "--strict" in check
    script = configured["test-command"].removeprefix("python {project}/")
    assert (CHECKOUT / script).is_file()
