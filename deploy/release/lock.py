"""The lock file of a release, pylock.toml (PEP 751): every dependency with version and hashes, for Linux and macOS.

    python deploy/release/lock.py write             # resolve pyproject.toml again, with the `uv` on PATH
    python deploy/release/lock.py fetch             # the wheels for this machine into the folder wheels/, checked
    uv pip sync pylock.toml                         # install exactly these: wheels/ is next to the file

The file names no package index: its wheels are relative paths, so that it holds for every mirror. `fetch` uses the
index that pip is configured for.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
LOCK = CHECKOUT / "pylock.toml"
WHEELS = "wheels"
OLDEST = "3.11"
PLATFORMS = ("any", "manylinux", "musllinux", "macosx")
RELEASED = ("cp3", "py3", "py2.py3")
WINDOWS = ("sys_platform == 'win32'", "os_name == 'nt'")
"""Conditions of packages that no other machine needs."""
RESOLVE_S, FETCH_S = 240, 600
HEAD = """\
# Every dependency of kafka-share-proxy, pinned. Written by deploy/release/lock.py, which says how it is used.
lock-version = "1.0"
created-by = "kafka-share-proxy"
requires-python = ">={oldest}"
"""


def resolved() -> dict[str, Any]:
    """Return the lock file that uv makes. Raises subprocess.CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "pylock.toml"
        words = ["--quiet", "--universal", "--format", "pylock.toml", "--python-version", OLDEST]
        command = ["uv", "pip", "compile", *words, "--only-binary", ":all:", "--output-file", str(made)]
        subprocess.run([*command, "pyproject.toml"], cwd=CHECKOUT, check=True, timeout=RESOLVE_S)
        return tomllib.loads(made.read_text())


def written(lock: dict[str, Any]) -> Iterator[str]:
    """Yield the text of the lock file."""
    yield HEAD.format(oldest=OLDEST)
    for package in lock["packages"]:
        wheels = [wheel for wheel in package.get("wheels", ()) if _is_for_us(wheel["url"].rpartition("/")[2])]
        if not wheels or any(word in package.get("marker", "") for word in WINDOWS):
            continue
        yield f"\n[[packages]]\nname = {_text(package['name'])}\nversion = {_text(package['version'])}\n"
        if "marker" in package:
            yield f"marker = {_text(package['marker'])}\n"
        yield "wheels = [\n"
        for wheel in wheels:
            path = f"{WHEELS}/{wheel['url'].rpartition('/')[2]}"
            sha256 = wheel["hashes"]["sha256"]
            yield f"    {{ path = {_text(path)}, size = {wheel['size']}, hashes = {{ sha256 = {_text(sha256)} }} }},\n"
        yield "]\n"


def _is_for_us(name: str) -> bool:
    """Return True for wheels of CPython on Linux and macOS."""
    python, abi, platform = name.removesuffix(".whl").split("-")[-3:]
    return python.startswith(RELEASED) and not abi.endswith("t") and platform.startswith(PLATFORMS)


def _text(value: str) -> str:
    return json.dumps(value)


def requirements(lock: dict[str, Any]) -> Iterator[str]:
    """Yield the lock file as requirements with hashes, which every pip reads."""
    for package in lock["packages"]:
        marker = f" ; {package['marker']}" if "marker" in package else ""
        hashes = " ".join(f"--hash=sha256:{wheel['hashes']['sha256']}" for wheel in package["wheels"])
        yield f"{package['name']}=={package['version']}{marker} {hashes}\n"


def fetch(lock: dict[str, Any], folder: Path) -> None:
    """Download the wheels for this machine. Raises subprocess.CalledProcessError if one has another hash."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(requirements(lock))
        file.flush()
        words = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
        command = [sys.executable, "-m", "pip", "download", *words, "--dest", str(folder), "--requirement", file.name]
        subprocess.run(command, check=True, timeout=FETCH_S)


def main() -> int:
    """Run as a command: `write` or `fetch`."""
    action = sys.argv[1] if len(sys.argv) > 1 else ""
    if action == "write":
        LOCK.write_text("".join(written(resolved())))
    elif action == "fetch":
        fetch(tomllib.loads(LOCK.read_text()), CHECKOUT / WHEELS)
    else:
        print("write `write` or `fetch`", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
