"""Command `conformance run`; against real brokers see tests/conformance/suite/test_whole_suite.py."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from kafka_share_proxy.app import cli
from kafka_share_proxy.localkafka.cluster import Cluster
from typer.testing import CliRunner


def command(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["conformance", "run", *words])
    return result.exit_code, result.output


def test_the_list_shows_id_sentence_and_source_without_a_cluster() -> None:
    status, output = command("--list", "--only", "share-groups.sessions.reopened")
    assert status == 0
    assert output.splitlines()[0] == (
        "share-groups.sessions.reopened  Epoch 0 with a session replaces it: the next epoch is 1.  "
        "[KIP-932; SharePartitionManager.newContext]"
    )


def test_unknown_suites_and_patterns_are_refused() -> None:
    status, output = command("--suite", "nothing", "--list")
    assert (status, "there is no such suite; there are apiversions" in output) == (2, True)
    status, output = command("--only", "nothing-like-this")
    assert (status, "no case matches nothing-like-this" in output) == (2, True)


def test_a_missing_bootstrap_is_refused() -> None:
    status, output = command("--suite", "metadata")
    assert (status, "upstream.bootstrap" in output) == (2, True)


def test_an_unreachable_cluster_is_a_failure() -> None:
    status, output = command("--bootstrap", "127.0.0.1:1", "--suite", "metadata")
    assert (status, "cannot connect to 127.0.0.1:1" in output) == (1, True)


@pytest.mark.broker
def test_reports_are_written(kafka_39: Cluster, tmp_path: Path) -> None:
    files = {kind: tmp_path / f"report.{kind}" for kind in ("junit", "html", "json")}
    words = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    status, output = command("--bootstrap", kafka_39.bootstrap, "--suite", "metadata", *words)
    assert (status, "metadata" in output, "not offered: share" in output) == (0, True, True)
    read = json.loads(files["json"].read_text())
    assert read["counts"]["failed"] == 0
    assert read["counts"]["passed"] > 50
    assert len(ElementTree.parse(files["junit"]).findall(".//testcase")) == len(read["cases"])
    assert "Kafka conformance of" in files["html"].read_text()
