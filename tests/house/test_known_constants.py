"""The constants that Hypothesis tries are read by all processes together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = """\
import json, pathlib
from kafka_share_proxy.wire import errors, values
from tests.support import known_constants
counts = []
for part in range(2):
    known_constants.keep(part, 2)
    counts.append(len([*pathlib.Path(".hypothesis/constants").glob("*")]))
from hypothesis.internal.conjecture.providers import _get_local_constants
print(json.dumps([*counts, len(_get_local_constants()), len([*pathlib.Path(".hypothesis/constants").glob("*")])]))
"""


@pytest.mark.slow
def test_all_parts_together_are_what_hypothesis_reads(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env={"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'proxy'}"},
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    first, both, constants, all_files = json.loads(shown)
    assert 0 < first < both == all_files
    assert constants > 0
