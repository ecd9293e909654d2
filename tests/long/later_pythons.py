"""The wheel in later releases of Python than the one that it was built with: one abi3 wheel serves them all.

    tests/run tests/long/later_pythons.py -s

Takes each Python 3.12 or later on PATH or of pyenv; needs a package registry. The kernels have the stable ABI of 3.11,
so that the same holds for the wheel for arm64, which is tried with 3.11 alone. A minute for each Python.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.test_distributions import VERSION
from tests.long.arm64_wheel import C_SOURCES, KERNEL_TESTS, MIN_PASSED, TEST_TOOLS
from tests.long.arm64_wheel import tests_alone as tests_alone
from tests.support import distributions
from tests.support.distributions import CHECKOUT, COMMIT

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

VERSIONS = ("3.12", "3.13", "3.14", "3.15")
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
RUN_S = 600


def interpreter(version: str) -> str:
    """Return a Python of that version, or skip the test."""
    candidates = [shutil.which(f"python{version}"), *map(str, sorted(PYENV.glob(f"{version}.*/bin/python{version}")))]
    for candidate in filter(None, candidates):
        # a shim of pyenv exists also where the version is not selected
        if subprocess.run([candidate, "-c", ""], capture_output=True, timeout=RUN_S, check=False).returncode == 0:
            return candidate
    pytest.skip(f"there is no Python {version} on PATH or of pyenv")


def run(command: list[str], cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=cwd, env=environment | {"PYTEST_ADDOPTS": ""},
        capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return distributions.wheel(distributions.copied(folder / "source"), folder / "built")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_kernels_of_the_wheel_pass_their_tests(
    wheel: Path, tests_alone: Path, tmp_path: Path, version: str
) -> None:
    run([interpreter(version), "-m", "venv", str(tmp_path / "environment")], tmp_path)
    python = str(tmp_path / "environment" / "bin" / "python")
    quiet = ["--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    run([python, "-m", "pip", "install", *quiet, str(wheel), *TEST_TOOLS], tmp_path)
    reported = run([python, "-I", str(CHECKOUT / "deploy" / "release" / "installed.py")], tmp_path)
    assert reported.strip() == f"kafka-share-proxy {VERSION}, commit {COMMIT[:12]}, kernels in C"
    options = ["-q", "-p", "no:cacheprovider", *(f"--deselect={name}" for name in C_SOURCES)]
    printed = run([python, "-m", "pytest", *options, *KERNEL_TESTS], tests_alone)
    print(f"Python {version}: {printed.splitlines()[-1]}")
    assert int(re.findall(r"(\d+) passed", printed)[0]) > MIN_PASSED, printed
