"""The engine says what Kafka's own SharePartition class said (tests/sharegroups/model/oracle)."""

from __future__ import annotations

import shutil

import pytest

from tests.sharegroups.model.oracle import kafka


def test_the_engine_returns_for_every_recorded_command_what_kafka_did() -> None:
    engine = kafka.Engine()
    lines = kafka.GOLDEN.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 3000
    for number, line in enumerate(lines, 1):
        command, response, state = line.split("\t")
        assert engine(command) == response, f"golden.txt:{number}: {command}"
        assert kafka.compact(engine("state")) == state, f"golden.txt:{number}: {command}"


@pytest.mark.broker
def test_the_recording_is_what_the_class_says_today() -> None:
    if shutil.which("javac") is None:
        pytest.skip("needs a JDK: javac is not on PATH")
    with kafka.running() as live:
        lines: list[str] = []
        for seed in range(20):
            lines += kafka.record(live, seed)[0]
    recorded = kafka.GOLDEN.read_text(encoding="utf-8").splitlines()
    assert lines == recorded[: len(lines)]
