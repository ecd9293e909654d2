"""Any bytes against a kernel in C, in three runs: `tests/fuzz/run [--help]`

The core alone under the address and undefined-behaviour sanitizers, in plain C, each time in memory of its exact size;
then the extension, compiled with them, against its twin in Python on damaged bytes; then the extension as it is
installed against its twin.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz import sanitized

HERE = Path(__file__).resolve().parent
CORPUS = 60
"""Batches that the core alone begins with."""


@dataclass(frozen=True)
class Kernel:
    """Kernel under test: tests/fuzz/NAME.c drives its core, the module tests.fuzz.NAME compares it with its Python
    fallback.
    """

    name: str
    source: Path
    """Path of the extension's C source."""
    sound: Callable[[int], bytes]
    """Batch number n, not damaged."""
    of_module: Callable[[Any], Any]
    """The kernel of an extension's module."""
    compare: Callable[[Any, int, float], str]
    """Test a kernel with a seed for some seconds and return a summary; raises AssertionError if it differs."""
    installed: Any | None
    """The kernel of the extension that is built here."""

    def run(self) -> None:
        """Run as a command."""
        words = parser().parse_args()
        if words.extension:
            module = sanitized.loaded(words.extension, self._module_name())
            print(self.compare(self.of_module(module), words.seed, words.seconds))
            return
        if self.installed is None:
            raise SystemExit("error: the extension is not built here")
        print(f"{self.name}: seed {words.seed}, {words.seconds:g} s each")
        with tempfile.TemporaryDirectory() as name:
            print("core under sanitizers:     ", self._core(Path(name), words.seed, words.seconds))
            print("extension under sanitizers:", self._extension(Path(name), words.seed, words.seconds))
        print("extension against twin:    ", self.compare(self.installed, words.seed, words.seconds))

    def _core(self, folder: Path, seed: int, seconds: float) -> str:
        driver = sanitized.driver(folder, HERE / f"{self.name}.c")
        files = [folder / f"batch-{number}" for number in range(CORPUS)]
        for number, file in enumerate(files):
            file.write_bytes(self.sound(number))
        return sanitized.output([str(driver), str(seconds), str(seed), *map(str, files)])

    def _extension(self, folder: Path, seed: int, seconds: float) -> str:
        built = sanitized.extension(folder, self.source)
        words = ["--seed", str(seed), "--seconds", str(seconds), "--extension", str(built)]
        return sanitized.output_of_module(f"tests.fuzz.{self.name}", words)

    def _module_name(self) -> str:
        return ".".join(self.source.relative_to(sanitized.CHECKOUT).with_suffix("").parts)


def parser() -> argparse.ArgumentParser:
    """Return what all fuzzers understand."""
    parser = argparse.ArgumentParser(prog="tests/fuzz/run", description=str(__doc__).split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60, help="of each of the three runs (default 60)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="default: another one each time")
    parser.add_argument("--extension", help=argparse.SUPPRESS)
    return parser
