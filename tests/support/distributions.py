"""Wheels and sdists of this checkout, built from copies of its tracked files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
BUILD_S = 240
RUN_S = 120
COMMIT = "0123456789abcdef0123456789abcdef01234567"
EPOCH = 1_795_824_880
"""Commit and time that the copies claim to have."""


def tracked() -> list[str]:
    """Return the files of this checkout. Skips the test in an unpacked sdist, where git knows none."""
    if not (CHECKOUT / ".git").exists():
        pytest.skip("distributions are built from a checkout")
    git = ["git", "-C", str(CHECKOUT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(git, capture_output=True, text=True, timeout=RUN_S, check=True).stdout
    return sorted(name for name in listed.split("\0") if name and (CHECKOUT / name).is_file())


def copied(folder: Path) -> Path:
    """Copy the checkout without its history, as if it was an sdist of COMMIT."""
    for name in tracked():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, target)
    (folder / "proxy" / "kafka_share_proxy" / "COMMIT").write_text(f"{COMMIT} {EPOCH}\n")
    return folder


def sdist(source: Path, folder: Path) -> Path:
    """Build an sdist. Return its path."""
    program = "import build_backend, sys; build_backend.build_sdist(sys.argv[1])"
    environment = {**os.environ, "PYTHONPATH": str(source / "deploy" / "release")}
    folder.mkdir(exist_ok=True)
    _run([sys.executable, "-c", program, str(folder)], source, environment)
    (archive,) = folder.glob("*.tar.gz")
    return archive


def wheel(source: Path, folder: Path, **environment: str) -> Path:
    """Build a wheel without a package index. Return its path."""
    quiet = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "wheel", *quiet, "--wheel-dir", str(folder), "."]
    _run(command, source, {**os.environ, **environment})
    (wheel_path,) = folder.glob("*.whl")
    return wheel_path


def unpacked(archive: Path, folder: Path) -> Path:
    """Unpack an sdist. Return its only folder."""
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    (inner,) = folder.iterdir()
    return inner


def installed(wheel: Path, folder: Path) -> Path:
    """Install a wheel where there is no compiler, next to the dependencies of this environment. Return the Python."""
    python = _environment(folder)
    nothing = folder / "nothing"
    nothing.mkdir()
    _run([*_pip_install(python), "--no-compile", str(wheel)], folder, {"PATH": str(nothing), "CC": "false"})
    return python


def installed_in_place(source: Path, folder: Path) -> Path:
    """Compile and install a source tree where it is, as deploy/bootstrap.py does. Return the Python."""
    python = _environment(folder)
    _run([*_pip_install(python), "--no-build-isolation", "--editable", str(source)], folder, dict(os.environ))
    return python


def _environment(folder: Path) -> Path:
    """Make a virtual environment that has the dependencies of this one, but not this checkout. Return its Python."""
    venv.create(folder, with_pip=False)
    (site,) = (folder / "lib").glob("python*/site-packages")
    ours = next(path for path in map(Path, sys.path) if path.name == "site-packages")
    (site / "dependencies.pth").write_text(f"{ours}\n")
    return folder / "bin" / "python"


def _pip_install(python: Path) -> list[str]:
    command = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    return [*command, "--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
