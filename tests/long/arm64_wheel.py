"""The wheel for arm64: built, checked, installed and tested by Python for arm64, which QEMU runs on x86-64.

    tests/run tests/long/arm64_wheel.py

Needs Debian on x86-64 and a package registry, no root; what is missing is named by the reason of the skipped tests.
A quarter of an hour the first time, since QEMU emulates every instruction. With Python 3.11 alone: the kernels have its
stable ABI, which abi3audit checks here, and tests/long/later_pythons.py tries the same sources with later releases.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.deploy.test_distributions import BILL, KERNELS, VERSION
from tests.support import arm64, distributions
from tests.support.distributions import CHECKOUT, COMMIT, EPOCH

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(3600)]

SUITE, OLDEST = "bookworm", "3.11"
"""Release of Debian, and its Python, the oldest that is supported."""
KERNEL_TESTS = (
    "tests/wire/records", "tests/wire/codec/test_commit_frames.py", "tests/views/kernel", "tests/commits/kernel",
    "tests/forwarding/walk", "tests/forwarding/observed", "tests/audit",
)  # fmt: skip
"""They compare the kernels in C with their fallbacks in Python, and with other implementations."""
WALK = "tests/forwarding/walk"
C_SOURCES = (
    f"{WALK}/test_c_layouts.py",
    f"{WALK}/test_walking.py::test_the_data_plane_works_without_c",  # is about Python alone
)
"""Tests that need more than the installed package."""
LEFT_OUT = (
    *C_SOURCES,
    f"{WALK}/test_gathering.py::test_announced_bytes_take_no_memory_and_dropped_frames_give_theirs_back",  # QEMU's
)
TEST_TOOLS = (
    "aiokafka", "confluent-kafka", "hypothesis", "kafka-python", "maven-artifact", "pytest<9.2", "pytest-timeout",
    "pytest-trio", "trustme",
)  # fmt: skip
AARCH64 = 183
"""EM_AARCH64 of ELF."""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], arm64.Python]:
    """Make an environment."""
    if lacks := arm64.missing():
        pytest.skip(lacks)
    return lambda: arm64.Python.create(SUITE, OLDEST, tmp_path_factory.mktemp("python") / "arm64")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return distributions.copied(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def tests_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests without the package, which must be the installed one."""
    folder = distributions.copied(tmp_path_factory.mktemp("tests"))
    shutil.rmtree(folder / "proxy")
    return folder


@pytest.fixture(scope="module")
def built(python: Callable[[], arm64.Python], source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python().wheel(source, tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def repaired(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with the tag that auditwheel finds for it."""
    folder = tmp_path_factory.mktemp("repaired")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = ["auditwheel", "repair", "--wheel-dir", str(folder), str(built)]
    arm64.run([sys.executable, "-m", *words], environment={"PATH": path, "SOURCE_DATE_EPOCH": str(EPOCH)})
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(python: Callable[[], arm64.Python], repaired: Path) -> arm64.Python:
    """A Python in which pip has installed the wheel with its dependencies."""
    environment = python()
    environment.install(str(repaired))
    return environment


def test_wheel_has_every_kernel_for_arm64(built: Path) -> None:
    assert built.name == f"kafka_share_proxy-{VERSION}-cp311-abi3-linux_aarch64.whl"
    archive = ZipFile(built)
    kernels = {name: archive.read(name) for name in archive.namelist() if name.endswith(".so")}
    assert set(kernels) == KERNELS
    assert {struct.unpack_from("<18xH", data)[0] for data in kernels.values()} == {AARCH64}
    components = {each["name"] for each in json.loads(archive.read(BILL))["components"]}
    assert components >= KERNELS


def test_second_build_has_the_same_bytes(
    built: Path, python: Callable[[], arm64.Python], source: Path, tmp_path: Path
) -> None:
    assert python().wheel(source, tmp_path).read_bytes() == built.read_bytes()


def test_auditwheel_finds_no_library_to_add_and_no_new_symbol(repaired: Path) -> None:
    """Runs with glibc 2.28, and is chosen by pip there."""
    assert min(int(minor) for minor in re.findall(r"manylinux_2_(\d+)_aarch64", repaired.name)) <= 28
    assert not [name for name in ZipFile(repaired).namelist() if ".libs/" in name]


def test_abi3audit_finds_no_symbol_outside_of_the_stable_abi(repaired: Path) -> None:
    printed = arm64.run([sys.executable, "-m", "abi3audit", "--strict", "--report", str(repaired)])
    (result,) = json.loads(printed.partition("\n")[0])["specs"].values()
    assert len(result["wheel"]) == len(KERNELS)
    assert all(each["result"]["is_abi3_baseline_compatible"] for each in result["wheel"])


def test_installed_command_has_its_kernels_in_c(installed: arm64.Python) -> None:
    reported = installed.run("-I", str(CHECKOUT / "deploy" / "release" / "installed.py"))
    assert reported.strip() == f"kafka-share-proxy {VERSION}, commit {COMMIT[:12]}, kernels in C"


def test_tests_of_the_kernels_pass_on_arm64(installed: arm64.Python, tests_alone: Path) -> None:
    installed.add(*TEST_TOOLS)
    options = ["-q", "-p", "no:cacheprovider", "--timeout", "1800", *(f"--deselect={name}" for name in LEFT_OUT)]
    printed = installed.run("-m", "pytest", *options, *KERNEL_TESTS, cwd=tests_alone, PYTEST_ADDOPTS="")
    assert int(re.findall(r"(\d+) passed", printed)[0]) > MIN_PASSED, printed


MIN_PASSED = 3_000
