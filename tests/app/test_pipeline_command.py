"""The commands `pipeline ...`: what is printed, written and refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proxy.app import pipeline_command
from proxy.app.cli import app

INGEST = ["pipeline", "ingest", "--topic", "orders", "--out", "lake", "--checkpoint", "cp", "--bootstrap", "one"]
SHARE = ["pipeline", "share", "--topic", "orders", "--out", "lake", "--checkpoint", "cp", "--bootstrap", "one"]
PLAN = ["pipeline", "plan", "--from", "orders", "-n", "4"]


def test_serve_never_loads_spark() -> None:
    """What the commands need is imported when one runs."""
    code = "import sys; from proxy.app import cli, server; print({'pyspark', 'pyarrow', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([*PLAN, "--bootstrap", "one", "--option", "topic"], "--option topic: write KEY=VALUE"),
        ([*PLAN, "--bootstrap", "one", "--store", "p1"], "upstream"),
        (["pipeline", "audit", "--in", "events", "--out", "lake"], "bootstrap names no server"),
        (["pipeline", "audit", "--in", "/tmp", "--out", "lake", "--day", "today"], "write YYYY-MM-DD"),
        (
            ["pipeline", "backfill", "--tokens", "/nowhere", "--out", "lake", "--bootstrap", "one"],
            "cannot read /nowhere",
        ),
        ([*INGEST, "--ranges", "0"], "1 to 65536 key ranges"),
        ([*INGEST, "--ranges", "no-plan.json"], "No such file"),
        ([*INGEST, "--ranges", "2", "--option", "startingOfsets=latest"], "did you mean 'startingOffsets'"),
        ([*SHARE, "--group", "g", "--option", "startingOffsets=latest"], "the share group says what is read"),
        ([*SHARE, "--group", ""], "group is missing"),
    ],
)
def test_what_is_wrong_is_told_before_spark_starts(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert text in result.output


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    pipeline_command._replace(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
