"""The commands for developers, of docs/architecture.md, and the files that README.md and docs/ name exist."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support import documents
from tests.support.documents import CHECKOUT

TEXTS = [path.read_text(encoding="utf-8") for path in documents.ALL]
MODULES = sorted(
    {module for text in TEXTS for module in re.findall(r"`python -m (tests[\w.]+|kafka_share_proxy[\w.]+)", text)}
)
PROGRAMS = sorted({name for text in TEXTS for name in re.findall(r"`((?:tests|deploy)/[\w/.]+)", text)})


@pytest.mark.parametrize("module", MODULES)
def test_each_module_that_they_name_can_be_imported_in_a_process_of_its_own(module: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", f"import {module}"], cwd=CHECKOUT, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_file_that_they_name_is_there(program: str) -> None:
    assert (CHECKOUT / program).exists()


def test_they_name_commands() -> None:
    assert len(MODULES) > 5
    assert len(PROGRAMS) > 3
