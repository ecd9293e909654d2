"""The commands `pipeline ...`: what is printed, written and refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from kafka_share_proxy.app.cli import app
from kafka_share_proxy.app.commands import pipeline_command
from kafka_share_proxy.pipeline.source.options import BadOption
from typer.testing import CliRunner

INGEST = ["pipeline", "ingest", "--topic", "orders", "--out", "lake", "--checkpoint", "cp", "--bootstrap", "one"]
SHARE = ["pipeline", "share", "--topic", "orders", "--out", "lake", "--checkpoint", "cp", "--bootstrap", "one"]
PLAN = ["pipeline", "plan", "--from", "orders", "-n", "4"]


def test_serve_never_loads_spark() -> None:
    """Libraries of a command are imported when it runs."""
    code = "import sys\nfrom kafka_share_proxy.app import cli\nfrom kafka_share_proxy.app.serving import server\n"
    code += "print({'pyspark', 'pyarrow', 'numpy'} & set(sys.modules))"
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
        ([*INGEST, "--ranges", "2", "--format", "iceberg"], "there is no Iceberg for this Spark"),
        ([*INGEST, "--ranges", "2", "--format", "orc"], "write parquet or delta"),
        (["pipeline", "compact", "--lake", "lake", "--day", "today"], "write YYYY-MM-DD"),
        (["pipeline", "compact", "--lake", "lake", "--table", "deliveries"], "one of records, share_records"),
    ],
)
def test_mistakes_are_reported_before_spark_starts(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert text in result.output


@pytest.mark.parametrize("arguments", [["pipeline"], ["pipeline", "demo"], ["pipeline", "audit"]])
def test_help_names_the_extra_to_install(arguments: list[str]) -> None:
    shown = CliRunner().invoke(app, [*arguments, "--help"], env={"COLUMNS": "200"}).output
    assert "[spark" in shown or "--verbose" in shown
    assert "\\[" not in shown


def test_no_command_loses_words_in_brackets_to_markup() -> None:
    """Rich takes `[word]` in a help text for a tag unless the bracket is escaped."""
    root = typer.main.get_command(app)
    waiting: list[Any] = [root]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        for text in [command.help or "", *(getattr(each, "help", None) or "" for each in command.params)]:
            assert not re.search(r"(?<!\\)\[[a-z]", text), (command.name, text)


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (ValueError("odd\n  at frame"), 1, "ValueError: odd"),
        (FileNotFoundError(2, "No such file or directory", "/absent"), 1, "/absent: No such file or directory"),
        (BadOption("keyRanges: none"), 2, "keyRanges: none"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_every_failure_of_a_job_is_one_line(
    error: BaseException, status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        raise error

    for verbose in (False, True):
        with pytest.raises(typer.Exit) as ended:
            pipeline_command._guarded(work, verbose=verbose)
        assert ended.value.exit_code == status
        lines = capsys.readouterr().err.splitlines()
        assert lines[-1] == f"kafka-share-proxy: {text}"
        assert (len(lines) > 1) == (verbose and status != 130)


def test_an_error_of_a_command_itself_keeps_its_status() -> None:
    def work() -> None:
        raise typer.Exit(7)

    with pytest.raises(typer.Exit) as ended:
        pipeline_command._guarded(work)
    assert ended.value.exit_code == 7


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    arguments = ["pipeline", "audit", "--in", str(tmp_path / "absent"), "--out", str(tmp_path / "lake")]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.output) == (
        1, f"kafka-share-proxy: --in {tmp_path}/absent: there is no such folder\n",
    )  # fmt: skip


def audit(tmp_path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a job that cannot write its tables, as a separate process, because Spark writes to the terminal itself."""
    pytest.importorskip("pyspark", reason="the extra [spark] is not installed")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "audit.jsonl").write_text("no event\n")
    main = "from kafka_share_proxy.app.cli import main; main()"
    program = [sys.executable, "-c", main, "pipeline", "audit", "--in", str(tmp_path / "in")]
    program += ["--master", "local[1]", "--out", str(tmp_path / "in" / "audit.jsonl" / "lake")]
    return subprocess.run([*program, *more], capture_output=True, text=True, timeout=300, check=False)


REFUSED = "audit.jsonl/lake cannot be written to: "


@pytest.mark.slow
@pytest.mark.long  # in short: test_whatever_ends_a_job_is_one_line, tests/pipeline/test_jvm_output.py
def test_failed_job_prints_one_line(tmp_path: Path) -> None:
    done = audit(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("kafka-share-proxy: ")
    assert REFUSED in line


@pytest.mark.long  # in short: test_every_failure_of_a_job_is_one_line
def test_failed_job_prints_settings_and_traceback_with_verbose(tmp_path: Path) -> None:
    done = audit(tmp_path, "--verbose")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("kafka-share-proxy: ")
    assert REFUSED in lines[-1]
    assert "spark.master=local[1]" in lines
    assert "Traceback (most recent call last):" in lines


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    pipeline_command._replace(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
