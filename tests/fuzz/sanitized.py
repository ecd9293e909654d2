"""C parts built with the address and undefined-behaviour sanitizers: as a separate driver, or as an extension."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
SANITIZE = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


def built_name(source: Path) -> str:
    """Return the file name of the extension built of this source."""
    return source.with_suffix(".abi3.so").name


def extension(folder: Path, source: Path) -> Path:
    """Build the extension of that source."""
    built = folder / built_name(source)
    include = sysconfig.get_paths()["include"]
    flags = ["-shared", "-fPIC", "-DPy_LIMITED_API=0x030b0000", f"-I{include}"]
    subprocess.run(["gcc", *SANITIZE, *flags, str(source), "-o", str(built)], check=True)
    return built


def driver(folder: Path, source: Path) -> Path:
    """Build a program."""
    built = folder / source.stem
    subprocess.run(["gcc", *SANITIZE, "-Wall", "-Wextra", "-Werror", str(source), "-o", str(built)], check=True)
    return built


def output(command: Sequence[str], env: dict[str, str] | None = None) -> str:
    """Return the output of a command. Raises SystemExit with the output if it fails."""
    done = subprocess.run(command, env=env, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout.strip()


def output_of_module(module: str, words: Sequence[str]) -> str:
    """Return the output of one of our modules, run by a Python into which an extension with sanitizers can be
    loaded.
    """
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    env = {"LD_PRELOAD": runtime.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
    return output([sys.executable, "-m", module, *words], {**os.environ, **env})


def loaded(path: str, name: str) -> Any:
    """An extension of another build."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
