"""The judge of recorded histories: the Go program in tests/oracle/histories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.programs import built_with_go, output_of

SOURCES = Path(__file__).resolve().parents[1] / "oracle/histories"
JUDGE_S = 540.0


class Verdict(NamedTuple):
    operations: int
    records: int
    keys: int
    faulty: int
    """Records and keys with a fault."""
    faults: list[str]
    """The first 50 faults."""
    undecided: list[str]
    """Records and keys whose search took too long."""


def judge_program() -> Path:
    """Build the judge. Skips the test without Go."""
    return built_with_go("histories", sorted(path for path in SOURCES.iterdir() if path.is_file()))


def verdict_of(program: Path, history: str) -> Verdict:
    """Judge a history of JSON lines."""
    verdict: dict[str, Any] = json.loads(output_of([str(program)], JUDGE_S, text=history))
    return Verdict(**verdict)
