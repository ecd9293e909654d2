"""The README's commands for developers work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
README = (CHECKOUT / "README.md").read_text()
MODULES = sorted(set(re.findall(r"`python -m ([\w.]+)", README)))
PROGRAMS = sorted(set(re.findall(r"`((?:tests|deploy)/[\w/.]+)", README)))


@pytest.mark.parametrize("module", MODULES)
def test_each_module_it_names_can_be_imported_in_a_process_of_its_own(module: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", f"import {module}"], cwd=CHECKOUT, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_file_it_names_is_there(program: str) -> None:
    assert (CHECKOUT / program).exists()


def test_it_names_commands() -> None:
    assert len(MODULES) > 5
    assert len(PROGRAMS) > 3
