"""The commands that install a checkout make an environment that has the command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import documents

INSTALL_S = 300
COPIED = ("pyproject.toml", "README.md", "LICENSE", "deploy/release", "proxy", "schemas")


def test_the_readme_and_the_start_page_install_alike() -> None:
    readme = documents.block(documents.README, "sh", "bin/pip install .").replace("/opt/kafka-share-proxy", "ksp")
    start = documents.block(documents.START, "sh", "python3 -m venv")
    assert start.replace(' "confluent-kafka>=2.16"', "").startswith(readme)


@pytest.mark.slow
def test_a_checkout_is_installed_with_its_command(tmp_path: Path) -> None:
    """Dependencies are those of this environment, so that nothing is downloaded."""
    checkout, environment = tmp_path / "checkout", tmp_path / "ksp"
    checkout.mkdir()
    for name in COPIED:
        source = documents.CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, checkout / name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, checkout)
    script = documents.block(documents.START, "sh", "python3 -m venv").replace("ksp", str(environment))
    script = script.replace("python3 -m venv", f"{sys.executable} -m venv").replace("$PWD/", "")
    alone = {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "CC": "false"}
    pip = f"{environment}/bin/pip install"
    assert pip in script
    script = script.replace(pip, f"{environment}/bin/python -m pip install")
    path = [str(each) for each in map(Path, sys.path) if each.name == "site-packages"]
    done = subprocess.run(
        ["bash", "-ec", script],
        cwd=checkout, env={**os.environ, **alone, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True, text=True, timeout=INSTALL_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    version = subprocess.run(
        [str(environment / "bin" / "kafka-share-proxy"), "--version"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert version.returncode == 0, version.stderr
    assert version.stdout.strip()
