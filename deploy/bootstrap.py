#!/usr/bin/env python3
"""Give the checkout a virtual environment (.venv) with the project and one extra; print the path of its Python.

    deploy/bootstrap.py test

Needs nothing but Python >= 3.11 and a package registry. Installs again only after pyproject.toml or C
sources changed; C is compiled where there is a compiler, and replaced by Python where there is none.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
ENVIRONMENT = CHECKOUT / ".venv"
OLDEST = (3, 11)
INSTALL_S = 900
"""Seconds after which a slow registry counts as a failure."""
BUILDING = f"[build_ext]\nparallel = {os.cpu_count() or 1}\n[bdist_wheel]\ncompression = stored\n"
"""How setuptools builds: C in parallel, and the wheel of PySpark, 450 MB that are unpacked again, uncompressed."""


class InstallError(Exception):
    """The environment could not be made; the text says why."""


def ensure(extra: str) -> Path:
    """Return the Python of the environment, with kafka-share-proxy[extra] installed; raises InstallError."""
    if sys.version_info < OLDEST:
        raise InstallError(f"Python >= {OLDEST[0]}.{OLDEST[1]} is needed, this is {sys.version.split()[0]}")
    python = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / f"installed-{extra}"
    content = _what_it_is_made_of()
    if python.exists() and stamp.exists() and stamp.read_text() == content:
        return python
    if not python.exists():
        print("Making a virtual environment in .venv ...", file=sys.stderr, flush=True)
        _make()
    print(f"Installing kafka-share-proxy[{extra}] into .venv ...", file=sys.stderr, flush=True)
    _install(python, extra)
    stamp.write_text(content)
    return python


def _what_it_is_made_of() -> str:
    """Changes whenever another installation would have another result."""
    sources = sorted(path for kind in ("*.c", "*.h") for path in (CHECKOUT / "proxy").rglob(kind))
    digest = hashlib.sha256()
    for path in (CHECKOUT / "pyproject.toml", *sources):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _make() -> None:
    try:
        venv.create(ENVIRONMENT, with_pip=True, clear=True, upgrade_deps=True)  # an old pip takes a minute more
    except (OSError, subprocess.CalledProcessError) as error:
        raise InstallError(f"cannot make {ENVIRONMENT} (is the venv module of Python complete?): {error}") from error


def _install(python: Path, extra: str) -> None:
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    lazily = ["--no-compile"]  # most modules of the packages are never imported
    command = [str(python), "-m", "pip", "install", *quiet, *lazily, "--editable", f".[{extra}]"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            building = Path(folder) / "building.cfg"
            building.write_text(BUILDING)
            variables = {"DIST_EXTRA_CONFIG": str(building)} | os.environ
            subprocess.run(command, cwd=CHECKOUT, stdout=sys.stderr, env=variables, timeout=INSTALL_S, check=True)
    except subprocess.CalledProcessError as error:
        raise InstallError(f"pip ended with status {error.returncode}; its message is above") from error
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"pip did not finish within {INSTALL_S} s") from error


def main() -> int:
    """Run as a command: one argument, the extra."""
    try:
        print(ensure(sys.argv[1] if len(sys.argv) > 1 else "test"))
    except InstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
