"""All tests that need no brokers, run out of the sdist, which is unpacked in a folder that git does not know.

    tests/run tests/long/sdist.py
    tests/run tests/long/sdist.py -k "offsets or wire"

Needs what tests/run needs, and git to build the sdist. The package is compiled where it was unpacked.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import distributions
from tests.support.distributions import CHECKOUT

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(3600)]

ROOMS = sorted({path.relative_to(CHECKOUT / "tests").parts[0] for path in CHECKOUT.glob("tests/*/**/test_*.py")})
NEEDS_A_CHECKOUT = {
    "tests/deploy/test_build_flags.py": "builds a wheel of the files that git knows",
    "tests/house/test_tidy.py::test_no_file_names_a_machine": "reads the files that git knows",
    "tests/house/test_tidy.py::test_no_compiled_or_large_file_is_kept": "reads the files that git knows",
}
"""Tests that cannot pass out of an sdist, and why."""
NO_TESTS = 5
"""Exit status of pytest if all tests of a room need brokers."""
ROOM_S = 3000


class Unpacked(NamedTuple):
    """A folder with the sdist, and a Python in which it is installed."""

    folder: Path
    python: Path


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    folder = tmp_path_factory.mktemp("sdist")
    archive = distributions.sdist(distributions.copied(folder / "source"), folder / "built")
    inner = distributions.unpacked(archive, folder / "unpacked")
    return Unpacked(inner, distributions.installed_in_place(inner, folder / "environment"))


@pytest.mark.parametrize("room", ROOMS)
def test_tests_of_a_room_pass_out_of_the_sdist(unpacked: Unpacked, room: str) -> None:
    left_out = [f"--deselect={test}" for test in NEEDS_A_CHECKOUT]
    done = subprocess.run(
        [str(unpacked.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *left_out,
         "-m", "not broker and not long", f"tests/{room}"],
        cwd=unpacked.folder, env={**os.environ, "PYTEST_ADDOPTS": ""}, capture_output=True, text=True,
        timeout=ROOM_S, check=False,
    )  # fmt: skip
    assert done.returncode in (0, NO_TESTS), done.stdout + done.stderr
    assert re.findall("^SKIPPED.*checkout.*", done.stdout, re.MULTILINE) == [], "name it in NEEDS_A_CHECKOUT"
    print(f"tests/{room}: {done.stdout.splitlines()[-1]}")


def test_tests_that_are_left_out_exist() -> None:
    for test in NEEDS_A_CHECKOUT:
        file, _, name = test.partition("::")
        assert f"def {name}" in (CHECKOUT / file).read_text()
