"""A package installed from a wheel has the public names, without any other part of the environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[2]
USED = "import kafka_share_proxy as k; print(k.__file__, k.OffsetLedger.from_committed(41, 'ic/1;43-45').text())"


def test_the_names_are_in_the_wheel(tmp_path: Path) -> None:
    """Built from a copy, without a C compiler, and imported out of the wheel by a Python that has nothing else."""
    source, wheel_folder = tmp_path / "source", tmp_path / "made"
    for folder in ("proxy", "schemas", "deploy/release"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    environment = {**os.environ, "CC": "false"}
    done = subprocess.run(
        [*build, "--wheel-dir", wheel_folder, source],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = wheel_folder.glob("kafka_share_proxy-*.whl")
    inside = set(ZipFile(wheel).namelist())
    assert "kafka_share_proxy/py.typed" in inside  # PEP 561
    assert {
        "kafka_share_proxy/localkafka/cluster.py",
        "kafka_share_proxy/localkafka/jars.toml",
    } <= inside  # for the demo
    assert {name.split("/")[0] for name in inside if ".dist-info/" not in name} == {"kafka_share_proxy"}
    output = subprocess.run(
        [sys.executable, "-S", "-c", USED], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path,
        env={"PYTHONPATH": str(wheel)},
    )  # fmt: skip
    assert output.stdout.split() == [str(wheel / "kafka_share_proxy" / "__init__.py"), "ic/1;43-45"]
