"""Client programs in other languages, built in the user's cache folder by their ordinary tools."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.jars import cache_folder, exclusive

CLIENTS = Path(__file__).resolve().parent.parent / "clients"
BUILD_S = 300
"""Fetching modules and compiling them, for the first time, on a busy machine."""
RUN_S = 240


def need(tool: str) -> str:
    """Return the path of a tool, or skip the test if the machine has none."""
    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"there is no {tool} on this machine")
    return path


QUICK_BUILD = ("-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w")
"""Flags of `go build` and `go test` for programs that run for seconds: without optimization and data for debuggers, a
build takes two thirds of the CPU. With other flags Go compiles its library and all packages once more.
"""
QUICK_GO = {"CGO_ENABLED": "0", "GOGC": "off", "GOMEMLIMIT": "512MiB"}
"""Environment of `go build`: without C, and its compiler collects garbage only above this memory, 17 % of the CPU."""


def built(name: str, command: list[str], product: str, sources: Sequence[Path] = ()) -> Path:
    """Copy the program to the cache and run the command there, unless that was done for these very sources.

    The sources are those in the folder tests/clients/`name`, unless others are given.
    """
    sources = sources or sorted(path for path in (CLIENTS / name).iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    folder = cache_folder().parent / "clients" / f"{name}-{digest}"
    with exclusive(folder):
        if not (folder / product).exists():
            for source in sources:
                shutil.copy(source, folder)
            done = subprocess.run(
                command, cwd=folder, env=os.environ | QUICK_GO,
                capture_output=True, text=True, timeout=BUILD_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{command} in {folder}:\n{done.stdout}{done.stderr}"
    return folder


def built_with_go(name: str, sources: Sequence[Path] = ()) -> Path:
    """Return the program of these sources, as in `built`. Skips the test when the machine has no Go."""
    return built(name, [need("go"), "build", *QUICK_BUILD, "-o", name, "."], name, sources) / name


def output_of(command: list[str], timeout_s: float = RUN_S, text: str | None = None) -> str:
    """Return what a program prints; it must end with status 0."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout
