"""The workflow that builds and publishes a release."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import actionlint

CHECKOUT = Path(__file__).resolve().parents[2]
WORKFLOW = CHECKOUT / ".github" / "workflows" / "release.yml"
JOBS: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())["jobs"]
RUN_S = 60


def linted(file: Path) -> str:
    """Return what actionlint finds. Shell scripts in steps are left to their own linter."""
    command = [str(actionlint.need()), "-shellcheck=", "-pyflakes=", "-no-color", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    return done.stdout + done.stderr


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in JOBS.items():
        for step in job["steps"]:
            yield name, step


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_actionlint_finds_nothing() -> None:
    assert linted(WORKFLOW) == ""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_actionlint_finds_an_output_that_no_job_has(tmp_path: Path) -> None:
    """Otherwise the test above could not fail."""
    file = tmp_path / "release.yml"
    file.write_text(WORKFLOW.read_text().replace("needs.version.outputs.epoch", "needs.version.outputs.absent"))
    assert 'property "absent" is not defined' in linted(file)


def test_only_the_publishing_job_may_sign_and_it_runs_nothing_of_the_repository() -> None:
    signing = {name for name, job in JOBS.items() if job["permissions"].get("id-token") == "write"}
    assert signing == {"publish"}
    assert JOBS["publish"]["environment"] == "pypi"
    assert not [step for name, step in steps() if name == "publish" and ("run" in step or "checkout" in step["uses"])]
    assert yaml.safe_load(WORKFLOW.read_text())["permissions"] == {}


def test_publishing_waits_for_every_check() -> None:
    needed: set[str] = set()
    waiting = ["publish"]
    while waiting:
        needs = JOBS[waiting.pop()].get("needs", [])
        for name in [needs] if isinstance(needs, str) else needs:
            needed.add(name)
            waiting.append(name)
    assert needed == set(JOBS) - {"publish"}


def test_files_are_attested_before_they_are_published_without_a_secret() -> None:
    used = [step["uses"].partition("@")[0] for name, step in steps() if name == "publish"]
    assert used[-2:] == ["actions/attest-build-provenance", "pypa/gh-action-pypi-publish"]
    *_, (_, publishing) = steps()
    assert publishing["with"]["attestations"] is True
    assert "secrets." not in WORKFLOW.read_text()
    assert "password" not in WORKFLOW.read_text()


def test_actions_are_pinned_by_commit_and_name_their_version() -> None:
    used = re.findall(r"uses: (\S+)(.*)", WORKFLOW.read_text())
    assert len(used) > len(JOBS)
    for action, comment in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action


def test_both_machines_are_built_twice() -> None:
    matrix = JOBS["wheels"]["strategy"]["matrix"]
    configured = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]["archs"]
    assert matrix["machine"] == configured
    assert {each["machine"] for each in matrix["include"]} == set(configured)
    assert len(matrix["build"]) == 2


def test_tag_version_and_changelog_are_compared() -> None:
    """The patterns of the first job match the files as they are."""
    version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
    (script,) = (step["run"] for name, step in steps() if name == "version" and "grep" in step.get("run", ""))
    for tag, status in ((f"v{version}", 0), ("v999.0.0", 1)):
        done = subprocess.run(["bash", "-e", "-c", script], cwd=CHECKOUT, env={"TAG": tag, "PATH": "/usr/bin:/bin"},
                              timeout=RUN_S, check=False)  # fmt: skip
        assert done.returncode == status
