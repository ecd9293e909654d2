"""docs/conformance-results.md: its reproductions are run as they are written, except for ports and programs in Go."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka_share_proxy.conformance.cluster_thread import running_cluster
from kafka_share_proxy.conformance.suite.building import build
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.wire.codec import frames

from tests.support import documents, shell_examples
from tests.support.programs import built, need

LIMIT_S = 120
SERVER, CONTROL = "127.0.0.1:9092", "127.0.0.1:9093"


def reproduction(heading: str) -> tuple[str, str]:
    """Return the command that starts the target, and those after it, with ports of this machine."""
    (text,) = documents.blocks(documents.RESULTS, "sh", heading)
    for name, port in zip((SERVER, CONTROL), free_ports(2), strict=True):
        text = text.replace(name, f"{HOST}:{port}")
    start, _, rest = text.partition("\n")
    return start, rest


@contextmanager
def shell(folder: Path, start: str) -> Iterator[dict[str, str]]:
    """Run the target in a folder, with the programs of this environment. Yield the variables for other commands."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path}
    with subprocess.Popen(
        ["bash", "-c", f"exec {start} --until-stdin-closes"],
        cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as target:  # fmt: skip
        assert target.stdout is not None
        assert json.loads(target.stdout.readline())["bootstrap"]
        yield environment
        target.communicate(timeout=LIMIT_S)


def run(script: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def rules(report: str) -> set[str]:
    return {finding["rule"] for finding in json.loads(report)["findings"]}


def with_kafkajs(folder: Path) -> None:
    need("node")
    install = [need("npm"), "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    (folder / "node_modules").symlink_to(built("kafkajs", install, "node_modules") / "node_modules")


def test_the_reported_frame_has_three_bytes_after_its_last_field() -> None:
    (shown,) = re.findall(r"^((?:[0-9a-f]{2} ?){20,})$", documents.RESULTS.read_text(encoding="utf-8"), re.MULTILINE)
    reported = bytes.fromhex(shown)
    right = frames.request(3, 13, 3, "rdkafka", build("Metadata", topics=None, allow_auto_topic_creation=False))
    assert int.from_bytes(reported[:4], "big") == len(reported) - 4
    assert reported[4:] == right[4:] + b"\x01\x00\x00"


def test_the_command_that_repeats_a_case_runs_it(tmp_path: Path) -> None:
    (text,) = documents.blocks(documents.RESULTS, "sh", "Brokers")
    with running_cluster() as kafka:
        (words,) = shell_examples.commands(text, {"HOST:PORT": kafka.bootstrap})
        command = shell_examples.runnable(words)
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (case,) = json.loads((tmp_path / "report.json").read_text())["cases"]
    assert case["status"] == "passed"


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("C1: librdkafka writes three bytes too many in a Metadata request for all topics", "unread-bytes"),
        ("C2: KafkaJS requests versions once for all connections", "api-versions-missing"),
    ],
    ids=["C1", "C2"],
)
def test_a_finding_is_in_the_file_that_the_command_writes(tmp_path: Path, heading: str, expected: str) -> None:
    if expected == "api-versions-missing":
        with_kafkajs(tmp_path)
    start, rest = reproduction(heading)
    with shell(tmp_path, start) as environment:
        printed = run(rest, tmp_path, environment)
    assert rules((tmp_path / "findings.json").read_text()) == {expected}, printed.stderr


def test_kafkajs_ends_by_an_error_that_no_application_can_catch(tmp_path: Path) -> None:
    with_kafkajs(tmp_path)
    start, rest = reproduction("C4: KafkaJS takes the bytes of a cut response for the beginning of the next one")
    with shell(tmp_path, start) as environment:
        done = run(rest, tmp_path, environment)
    assert done.returncode == 1, done.stdout
    assert "ERR_BUFFER_OUT_OF_BOUNDS" in done.stderr


def test_a_throttled_client_is_in_the_report(tmp_path: Path) -> None:
    need("curl")
    start, rest = reproduction("C5: librdkafka and aiokafka send requests while they are throttled")
    with shell(tmp_path, start) as environment:
        done = run(rest, tmp_path, environment)
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r'"rule": "([^"]+)"', done.stdout)) == {"throttle-ignored"}
