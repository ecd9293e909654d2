"""Wheel and sdist of a release: content, bytes, ABI, and the installed command."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support import distributions
from tests.support.distributions import CHECKOUT, COMMIT, EPOCH, RUN_S

PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
KERNELS = {each["name"].replace(".", "/") + ".abi3.so" for each in PROJECT["tool"]["setuptools"]["ext-modules"]}
DIST_INFO = f"kafka_share_proxy-{VERSION}.dist-info"
BILL = f"{DIST_INFO}/sboms/kafka_share_proxy.cdx.json"
ROOMS = ("tests/offsets", "tests/wire/records", "tests/views/model", "tests/wire/test_packaging.py")
"""Tests that are run out of the sdist."""
TESTS_S = 240

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Built:
    """One sdist, the wheel of this checkout, and the wheel of the unpacked sdist."""

    sdist: Path
    unpacked: Path
    wheel: Path
    wheel_of_sdist: Path

    def read(self, name: str) -> bytes:
        return ZipFile(self.wheel).read(name)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("distributions")
    source = distributions.copied(folder / "source")
    sdist = distributions.sdist(source, folder / "sdist")
    unpacked = distributions.unpacked(sdist, folder / "unpacked in another folder")
    wheel = distributions.wheel(source, folder / "wheel")
    return Built(sdist, unpacked, wheel, distributions.wheel(unpacked, folder / "again"))


@pytest.fixture(scope="module")
def repaired(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel for manylinux, which auditwheel makes of it."""
    folder = tmp_path_factory.mktemp("repaired")
    output = run(["auditwheel", "repair", "--wheel-dir", str(folder), str(built.wheel)], SOURCE_DATE_EPOCH=str(EPOCH))
    wheels = list(folder.glob("*.whl"))
    assert len(wheels) == 1, output
    return wheels[0]


@pytest.fixture(scope="module")
def python(repaired: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel, where no compiler was."""
    return distributions.installed(repaired, tmp_path_factory.mktemp("installed"))


def run(words: list[str], cwd: Path = CHECKOUT, **environment: str) -> str:
    """Run a Python tool of this environment. Return what it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=cwd, env={**os.environ, "PATH": path, **environment},
        capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_wheels_of_checkout_and_sdist_have_the_same_bytes(built: Built) -> None:
    """Built in two folders, one after the other."""
    assert built.wheel.name == built.wheel_of_sdist.name
    assert built.wheel.read_bytes() == built.wheel_of_sdist.read_bytes()


def test_repaired_wheels_have_the_same_bytes(built: Built, repaired: Path, tmp_path: Path) -> None:
    words = ["auditwheel", "repair", "--wheel-dir", str(tmp_path), str(built.wheel_of_sdist)]
    run(words, SOURCE_DATE_EPOCH=str(EPOCH))
    assert (tmp_path / repaired.name).read_bytes() == repaired.read_bytes()


def test_sdist_of_the_sdist_has_the_same_bytes(built: Built, tmp_path: Path) -> None:
    assert distributions.sdist(built.unpacked, tmp_path / "again").read_bytes() == built.sdist.read_bytes()


def test_wheel_is_for_every_python_from_3_11_on(built: Built) -> None:
    assert re.fullmatch(rf"kafka_share_proxy-{VERSION}-cp311-abi3-linux_\w+\.whl", built.wheel.name)
    inside = set(ZipFile(built.wheel).namelist())
    assert {name for name in inside if name.endswith(".so")} == KERNELS


def test_wheel_has_one_package_and_its_metadata(built: Built) -> None:
    inside = ZipFile(built.wheel).namelist()
    assert {name.partition("/")[0] for name in inside} == {"kafka_share_proxy", DIST_INFO}
    suffixes = {Path(name).suffix for name in inside if not name.startswith(DIST_INFO)}
    assert suffixes <= {".py", ".pyi", ".so", ".json", ".toml", ".typed", ""}, "neither C sources nor documents"


def test_record_of_the_wheel_lists_every_file_with_hash_and_size(built: Built) -> None:
    archive = ZipFile(built.wheel)
    rows = list(csv.reader(io.StringIO(built.read(f"{DIST_INFO}/RECORD").decode())))
    assert [name for name, _, _ in rows] == archive.namelist()
    for name, digest, size in rows[:-1]:
        data = archive.read(name)
        expected = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={expected}", str(len(data)))
    assert rows[-1][1:] == ["", ""]


def test_bill_of_materials_names_package_definitions_and_kernels(built: Built) -> None:
    """PEP 770."""
    schema = import_module("cyclonedx.schema")  # 1.5 s that each process of a whole run would take
    validation = import_module("cyclonedx.validation.json")
    text = built.read(BILL).decode()
    assert validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    package = bill["metadata"]["component"]
    assert (package["purl"], package["licenses"]) == (
        f"pkg:pypi/kafka-share-proxy@{VERSION}",
        [{"expression": "Apache-2.0"}],
    )
    assert package["properties"] == [{"name": "commit", "value": COMMIT}]
    definitions, *kernels = bill["components"]
    assert definitions["hashes"][0]["content"] in (CHECKOUT / "schemas" / "PROVENANCE").read_text()
    for kernel in kernels:
        assert kernel["hashes"][0]["content"] == hashlib.sha256(built.read(kernel["name"])).hexdigest()
    assert {kernel["name"] for kernel in kernels} == KERNELS


def test_no_file_names_a_folder_of_the_machine_that_built_it(built: Built) -> None:
    folder = str(built.wheel.parent.parent).encode()
    archive = ZipFile(built.wheel)
    assert [name for name in archive.namelist() if folder in archive.read(name)] == []


def test_auditwheel_finds_no_library_to_add_and_no_new_symbol(repaired: Path) -> None:
    """The wheel runs on glibc 2.28, that is on every distribution in use."""
    lowest = min(int(minor) for minor in re.findall(r"manylinux_2_(\d+)", repaired.name))
    assert lowest <= 28
    assert not [name for name in ZipFile(repaired).namelist() if ".libs/" in name]


def test_abi3audit_finds_no_symbol_outside_of_the_stable_abi(repaired: Path) -> None:
    reported = json.loads(run(["abi3audit", "--strict", "--report", str(repaired)]).partition("\n")[0])
    (result,) = reported["specs"].values()
    objects = result["wheel"]
    assert len(objects) == len(KERNELS)
    for each in objects:
        assert each["result"]["is_abi3"] is True
        assert each["result"]["baseline"] == "3.11"
        assert each["result"]["non_abi3_symbols"] == []


def test_wheel_installs_without_a_compiler_and_has_its_kernels_in_c(python: Path) -> None:
    done = subprocess.run(
        [str(python), "-I", str(CHECKOUT / "deploy" / "release" / "installed.py")],
        env={"PATH": str(python.parent)}, capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"kafka-share-proxy {VERSION}, commit {COMMIT[:12]}, kernels in C"


def test_sdist_has_every_file_of_the_repository(built: Built) -> None:
    top = built.sdist.name.removesuffix(".tar.gz")
    with tarfile.open(built.sdist) as archive:
        inside = {member.name.removeprefix(f"{top}/") for member in archive.getmembers() if member.isfile()}
    assert set(distributions.tracked()) - inside == set()
    added = inside - set(distributions.tracked())
    assert added == {"PKG-INFO", "setup.cfg", "proxy/kafka_share_proxy/COMMIT"}


def test_tests_pass_out_of_the_sdist(built: Built, python: Path) -> None:
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *ROOMS],
        cwd=built.unpacked, env={**os.environ, "PYTEST_ADDOPTS": ""}, capture_output=True, text=True,
        timeout=TESTS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 500
