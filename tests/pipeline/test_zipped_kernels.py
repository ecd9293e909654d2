"""C kernels out of the zip that executors get (pipeline/README.md rule 50)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from kafka_share_proxy.app.commands import pipeline_package
from kafka_share_proxy.pipeline import zipped_kernels
from kafka_share_proxy.pipeline.zipped_kernels import MANIFEST, MODULES
from kafka_share_proxy.wire.records import record_positions

LOADED = """
import json, sys
sys.path.append(sys.argv[1])
import kafka_share_proxy.pipeline
from kafka_share_proxy.views.kernel import slicing
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.records import batches, record_positions
registry.request(1, 15)
print(json.dumps([kafka_share_proxy.__file__, slicing.KERNEL, batches.KERNEL, record_positions.KERNEL]))
"""
LIBRARIES = str(Path(pytest.__file__).parents[1])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zip") / "package.zip"
    pipeline_package.write_zip(path)
    return path


@pytest.fixture(scope="module", autouse=True)
def _has_kernels() -> None:
    if record_positions.KERNEL != "c":
        pytest.skip("this installation has no C kernels")


def loaded_from(path: Path, folder: Path) -> tuple[list[Any], str]:
    """Return the modules of a process with this zip and other libraries, without this checkout; and its notes."""
    command = [sys.executable, "-S", "-c", LOADED, LIBRARIES]  # -S: no .pth file leads to the checkout
    environment = os.environ | {"PYTHONPATH": str(path), "TMPDIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def changed(whole: Path, path: Path, name: str, data: bytes) -> Path:
    """A copy of the zip in which one file is another."""
    with ZipFile(whole) as old, ZipFile(path, "w") as new:
        for each in old.namelist():
            new.writestr(each, data if each == name else old.read(each))
    return path


def test_kernels_and_definitions_are_found_and_no_file_remains(whole: Path, tmp_path: Path) -> None:
    output, noted = loaded_from(whole, tmp_path)
    assert output == [f"{whole}/kafka_share_proxy/__init__.py", "c", "c", "c"]
    assert noted == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        ({"platform": "vax-vms"}, "it was built for vax-vms, and this is"),
        ({"kernels": {}}, "the installation that packaged this had none"),
    ],
)
def test_the_python_fallback_is_used_where_a_kernel_is_impossible_and_this_is_logged(
    whole: Path, tmp_path: Path, manifest: dict[str, Any], text: str
) -> None:
    with ZipFile(whole) as archive:
        reported = json.loads(archive.read(MANIFEST)) | manifest
    output, noted = loaded_from(
        changed(whole, tmp_path / "other.zip", MANIFEST, json.dumps(reported).encode()), tmp_path
    )
    assert output[1:] == ["python", "python", "python"]
    lines = noted.splitlines()
    assert len(lines) >= len(MODULES)
    assert all(text in line and "the same in Python takes over" in line for line in lines)


def test_a_damaged_kernel_is_not_loaded(whole: Path, tmp_path: Path) -> None:
    damaged = changed(
        whole, tmp_path / "other.zip", "kafka_share_proxy/wire/records/_record_positions.abi3.so", b"\x7fELF"
    )
    output, noted = loaded_from(damaged, tmp_path)
    assert output[1:] == ["c", "c", "python"]
    assert "_record_positions.abi3.so is damaged: its checksum is wrong" in noted


def test_an_installed_package_needs_none_of_it() -> None:
    zipped_kernels.install()
    assert not any(isinstance(each, zipped_kernels.ZippedKernels) for each in sys.meta_path)
