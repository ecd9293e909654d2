"""CONTRIBUTING.md, the hooks of pre-commit and the issue templates are what the tools accept."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_build import BUILD_COMMAND
from tests.support import documents, shell_examples
from tests.support.documents import CHECKOUT

TOOL_S = 110
TEMPLATES = CHECKOUT / ".github" / "ISSUE_TEMPLATE"
INPUTS = {"input", "textarea", "dropdown", "checkboxes"}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=TOOL_S, check=False)


def commands_that_run_one_room() -> Iterator[list[str]]:
    """Yield the arguments of `tests/run`."""
    for words in shell_examples.commands(documents.block(documents.CONTRIBUTING, "sh", "tests/run tests/wire"), {}):
        assert words[0] == "tests/run"
        yield words[1:]


def test_the_commands_that_run_one_room_name_folders_with_tests_and_marks_that_exist(
    pytestconfig: pytest.Config,
) -> None:
    known = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    commands = list(commands_that_run_one_room())
    assert len(commands) > 2
    for arguments in commands:
        folders = [each for each in arguments if each.startswith("tests/")]
        assert folders
        assert all(any((CHECKOUT / folder).rglob("test_*.py")) for folder in folders)
        marks = arguments[arguments.index("-m") + 1] if "-m" in arguments else ""
        assert set(marks.split()) - {"not", "and", "or"} <= known


@pytest.mark.slow
def test_the_commands_that_run_one_room_select_tests() -> None:
    for arguments in commands_that_run_one_room():
        done = run(sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "no tests" not in done.stdout


def test_the_documentation_is_built_as_the_test_builds_it() -> None:
    (words,) = shell_examples.commands(documents.block(documents.CONTRIBUTING, "sh", "sphinx"), {})
    assert words[:2] == [".venv/bin/python", "-m"]
    assert set(words[2:-2]) <= set(BUILD_COMMAND)
    assert words[-2:] == ["docs", "build/docs"]


def hooks() -> list[dict[str, Any]]:
    (local,) = yaml.safe_load((CHECKOUT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    local_hooks: list[dict[str, Any]] = local["hooks"]
    return local_hooks


@pytest.mark.slow
@pytest.mark.parametrize("hook", hooks(), ids=lambda hook: hook["id"])
def test_a_hook_runs_and_finds_a_mistake(hook: dict[str, Any], tmp_path: Path) -> None:
    """With the tools of this environment. mypy names no files: it checks the package."""
    words = shlex.split(hook["entry"])
    assert words[0] == ".venv/bin/python"
    assert hook["language"] == "system"
    good, bad = CHECKOUT / "docs" / "conf.py", tmp_path / "bad.py"
    bad.write_text("import os\nx = (  1)\n")
    if hook.get("pass_filenames", True):
        assert run(sys.executable, *words[1:], str(good)).returncode == 0
        assert run(sys.executable, *words[1:], "--no-cache", str(bad)).returncode == 1
    else:
        assert words[1:] == ["-m", "mypy"]


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.yml")), ids=lambda path: path.name)
def test_a_template_has_what_a_form_needs(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    if path.name == "config.yml":
        assert form == {"blank_issues_enabled": True}
        return
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= INPUTS
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)
    assert any(field.get("validations", {}).get("required") for field in fields)
    for field in fields:
        assert ("options" in field["attributes"]) == (field["type"] == "dropdown")
