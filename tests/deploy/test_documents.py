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


IMPORTING = """
import importlib, os, sys
import confluent_kafka, maven_artifact, pydantic, pytest, structlog, trio, yaml  # once for all: what takes longest

for module in sys.argv[1:]:
    child = os.fork()
    if not child:
        importlib.import_module(module)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{module} cannot be imported")
"""
"""A program that imports each module in a process of its own."""


def test_each_module_that_they_name_can_be_imported_in_a_process_of_its_own() -> None:
    command = [sys.executable, "-c", IMPORTING, *MODULES]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr


def test_a_module_that_cannot_be_imported_is_named() -> None:
    command = [sys.executable, "-c", IMPORTING, "json", "tests.no_such_module"]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert "tests.no_such_module cannot be imported" in run.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_file_that_they_name_is_there(program: str) -> None:
    assert (CHECKOUT / program).exists()


def test_they_name_commands() -> None:
    assert len(MODULES) > 5
    assert len(PROGRAMS) > 3
