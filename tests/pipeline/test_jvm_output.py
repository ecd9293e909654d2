"""Jobs print their own lines and none of Spark's (pipeline/README.md rule 21)."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from kafka_share_proxy.pipeline.jvm_output import ENDED_S, HeldOutput

SAYS = """
import sys
print("on stdout")
print("WARN something", file=sys.stderr)
print("kafka-share-proxy: 3 offsets are lost", file=sys.stderr)
print("Error occurred during initialization of VM")
print("Too small maximum heap")
"""


def test_output_of_processes_is_held_back_but_for_notes_of_tasks(capfd: pytest.CaptureFixture[str]) -> None:
    held = HeldOutput()
    print("before")
    with held.of_started_processes():
        process = subprocess.Popen([sys.executable, "-c", SAYS])
    print("behind")
    assert process.wait(60) == 0
    end = time.monotonic() + ENDED_S
    while held.cause() is None and time.monotonic() < end:
        pass
    assert held.cause() == "Error occurred during initialization of VM: Too small maximum heap"
    assert capfd.readouterr() == ("before\nbehind\n", "kafka-share-proxy: 3 offsets are lost\n")


def test_output_without_an_exception_has_no_cause() -> None:
    held = HeldOutput()
    assert held.cause() is None
    with held.of_started_processes():
        pass
    assert held.cause() is None
