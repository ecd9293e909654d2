"""How the kernels of a wheel are compiled."""

from __future__ import annotations

import shlex
import sysconfig
from pathlib import Path

import pytest

from tests.deploy.test_distributions import KERNELS
from tests.support import distributions

OURS = "-funroll-loops"
LEVELS = {"_slicing": "-O3", "_pump": "-O2"}
"""Kernels with their own level of optimization: long loops, and code that has to be short."""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """Arguments of the compiler, one command for each kernel. It compiles nothing; the wheel is built without it."""
    folder = tmp_path_factory.mktemp("flags")
    noted, compiler = folder / "noted", folder / "compiler"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(noted))}\nexit 1\n')
    compiler.chmod(0o755)
    source = distributions.copied(folder / "source")
    distributions.wheel(source, folder / "wheel", CC=str(compiler), CFLAGS=OURS)
    return [shlex.split(line) for line in noted.read_text().splitlines()]


def optimization(flags: list[str]) -> str:
    """Return the last level of optimization, which counts."""
    return next((flag for flag in reversed(flags) if flag.startswith("-O")), "")


@pytest.mark.slow
def test_kernels_are_optimized_as_the_interpreter_is(commands: list[list[str]]) -> None:
    """Except for `LEVELS`. Also where CFLAGS is set, which setuptools takes instead of the interpreter's own flags."""
    interpreter = shlex.split(str(sysconfig.get_config_var("CFLAGS")))
    assert optimization(interpreter) in ("-O2", "-O3")
    assert len(commands) == len(KERNELS)
    for command in commands:
        name = Path(next(word for word in command if word.endswith(".c"))).stem
        assert optimization(command) == LEVELS.get(name, optimization(interpreter)), command
        assert set(interpreter) <= set(command)
        assert OURS in command


@pytest.mark.slow
def test_kernels_have_no_sections_for_debuggers(commands: list[list[str]]) -> None:
    """They would name the folder of the build."""
    for command in commands:
        assert [word for word in command if word.startswith("-g")][-1] == "-g0"
