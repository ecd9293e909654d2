"""Prometheus and promtool: on PATH, or else those of Debian's package in the user's cache.

python -m tests.support.prometheus_tools    # fetch the package, on Debian and its relatives
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.jars import cache_folder, exclusive

FETCH_S = 240


def installed(name: str) -> Path | None:
    """Return the path of a program; None if it is not on this machine."""
    on_path, cached = shutil.which(name), _folder() / "usr" / "bin" / name
    if on_path is not None:
        return Path(on_path)
    return cached if cached.exists() else None


def need(name: str) -> Path:
    """Return the path of a program, or skip the test."""
    path = installed(name)
    if path is None:
        pytest.skip(f"there is no {name} on this machine: python -m tests.support.prometheus_tools")
    return path


def fetch() -> None:
    """Unpack Debian's package into the cache, without installing it."""
    folder = _folder()
    with exclusive(folder):
        if not (folder / "usr").exists():
            subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, check=True, timeout=FETCH_S)
            (package,) = folder.glob("prometheus_*.deb")
            subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True, timeout=FETCH_S)
            package.unlink()


def _folder() -> Path:
    return cache_folder().parent / "prometheus"


if __name__ == "__main__":
    fetch()
    sys.exit(0 if installed("promtool") else 1)
