"""Version, commit and kernels, for `--version` and in the log of `serve`."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kafka_share_proxy.app import build_info
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.wire import kernels

CHECKOUT = Path(__file__).resolve().parents[2]
WITH_AN_OLDER_KERNEL = """
import sys, types
name = "kafka_share_proxy.views.kernel._slicing"
import kafka_share_proxy.views.kernel as room
room._slicing = sys.modules[name] = types.ModuleType(name)
room._slicing.VERSION = 2
from kafka_share_proxy.app import cli
cli.app()
"""
RUN_S = 60


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITH_AN_OLDER_KERNEL, *words]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=RUN_S, check=False)


def test_version_names_the_kernel_that_was_built_from_another_source_and_what_to_do() -> None:
    done = run("--version")
    first, *reasons = done.stdout.splitlines()
    in_python = [line for line in reasons if line.startswith("in Python: ")]
    assert done.returncode == 0, done.stderr
    assert first.startswith(f"kafka-share-proxy {build_info.version()}, commit ")
    assert first.endswith("in Python")
    (slicing,) = (line for line in in_python if "slicing: " in line)
    assert "another source (version 2, needed is " in slicing
    assert kernels.BUILD_AGAIN in slicing


def test_serve_logs_kernels_in_python_at_the_start() -> None:
    """A taken port ends the process after its first lines."""
    (port,) = free_ports(1)
    with socket.create_server((HOST, port)):
        done = run("serve", "--bootstrap", f"{HOST}:1", "--listen", f"{HOST}:{port}", "--log-format", "json")
    events = [json.loads(line) for line in (done.stdout + done.stderr).splitlines() if line.startswith("{")]
    assert [each["version"] for each in events if each["event"] == "starting"] == [build_info.version()]
    warned = [each for each in events if each["event"] == "kernels-in-python" and "slicing" in each["kernels"]]
    assert [(each["level"], kernels.BUILD_AGAIN in each["reason"]) for each in warned] == [("warning", True)]


def test_a_built_package_has_its_commit_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_info, "PACKAGE", tmp_path)
    (tmp_path / build_info.RECORDED).write_text("0123456789abcdef0123456789abcdef01234567 1795824880\n")
    assert build_info.commit() == "0123456789ab"


def test_changes_stay_visible_in_the_commit_of_a_built_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_info, "PACKAGE", tmp_path)
    (tmp_path / build_info.RECORDED).write_text("0123456789abcdef0123456789abcdef01234567+changes 1795824880\n")
    assert build_info.commit() == "0123456789ab+changes"


def test_the_commit_of_a_checkout_shows_whether_files_were_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_info, "PACKAGE", tmp_path / "proxy" / "kafka_share_proxy")
    assert build_info.commit() == "", "this is no checkout"
    (tmp_path / "pyproject.toml").write_text("")
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, timeout=RUN_S)
    commit = build_info.commit()
    assert len(commit) == build_info.COMMIT_CHARACTERS
    (tmp_path / "pyproject.toml").write_text("changed")
    assert build_info.commit() == f"{commit}+changes"


def test_without_git_the_commit_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(build_info, "PACKAGE", tmp_path / "proxy" / "kafka_share_proxy")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build_info.commit() == ""
    assert "commit unknown" in next(build_info.lines())
