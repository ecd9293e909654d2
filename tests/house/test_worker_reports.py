"""Which messages the processes of a whole run send to the one that prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support.worker_reports import SHOWN_S, is_sent

CHECKOUT = Path(__file__).resolve().parents[2]

PASSED: dict[str, Any] = {
    "when": "setup", "outcome": "passed", "duration": SHOWN_S / 2, "sections": [], "user_properties": []
}  # fmt: skip
TESTS = """\
import pytest

@pytest.fixture
def broken_before():
    raise ValueError("before")

@pytest.fixture
def broken_after():
    yield
    raise ValueError("after")

def test_passes(): pass
def test_fails(): assert 1 == 2
def test_set_up_fails(broken_before): pass
def test_tear_down_fails(broken_after): pass
def test_is_skipped(): pytest.skip("for a reason")
@pytest.mark.skip(reason="never")
def test_is_always_skipped(): pass
@pytest.mark.xfail(reason="known", strict=True)
def test_fails_as_expected(): assert 1 == 2
"""


def test_the_call_of_each_test_is_reported() -> None:
    assert is_sent("testreport", PASSED | {"when": "call"})


@pytest.mark.parametrize("when", ["setup", "teardown"])
@pytest.mark.parametrize(
    "part",
    [{"outcome": "failed"}, {"outcome": "skipped"}, {"duration": SHOWN_S}, {"sections": [("Captured stdout", "text")]},
     {"user_properties": [("name", "value")]}],
)  # fmt: skip
def test_a_set_up_or_tear_down_is_reported_unless_it_passed_at_once_and_printed_nothing(
    when: str, part: dict[str, Any]
) -> None:
    assert not is_sent("testreport", PASSED | {"when": when})
    assert is_sent("testreport", PASSED | {"when": when} | part)


def test_messages_about_the_work_itself_are_sent() -> None:
    assert is_sent("runtest_protocol_complete", None)
    assert is_sent("collectionfinish", None)
    assert not is_sent("logstart", None)
    assert not is_sent("logfinish", None)


@pytest.mark.slow
def test_several_processes_report_what_one_reports(tmp_path: Path) -> None:
    """Each test with its outcome, and the text of each failure."""
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    one, two = (outcomes(tmp_path, processes) for processes in (0, 2))
    assert one == two
    assert len(one) == TESTS.count("def test_")
    assert one["test_fails"][0] == "failure"
    assert one["test_tear_down_fails"][0] == "error"


def outcomes(folder: Path, processes: int) -> dict[str, tuple[str, str]]:
    """Name of each test -> its outcome, and what was said."""
    report = folder / f"report-{processes}.xml"
    subprocess.run(
        [sys.executable, "-m", "pytest", "-n", str(processes), "-p", "tests.support.worker_reports", "-p",
         "no:randomly", f"--junit-xml={report}", "--rootdir", str(folder), str(folder)],
        cwd=CHECKOUT, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    return {
        str(case.get("name")): next(((each.tag, str(each.get("message"))) for each in case), ("passed", ""))
        for case in ElementTree.parse(report).iter("testcase")
    }
