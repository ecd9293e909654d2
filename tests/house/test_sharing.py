"""How the whole run is shared by several processes, and what it leaves out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.left_out import LEFT_OUT, is_left_out
from tests.support.sharing import group_of, rank_of

FILE = "tests/stock/test_it.py"
CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("fixtures", "parameters", "group"), [
    (["fresh", "proxy_39"], [], "kafka_39 stock"),
    (["front", "fresh"], ["3.9.1", "classic"], "kafka_39 stock"),
    (["front", "fresh"], ["4.3.0"], "kafka_43"),
    (["kafka_43_quick", "proxy_39_quick"], [], "quick"),
    (["front", "kafka_43_quick", "running"], [], "quick"),
    (["kafka_39", "running"], [], "kafka_39 stock"),
    (["running", "front"], ["native"], FILE),
    (["outcomes"], ["028"], "quick"),
    (["fresh"], ["kafka_43_quick"], "quick"),
    (["kafka_44"], [], "quick"),
    (["kafka_39_three", "running"], [], "kafka_39_three"),
    (["fresh"], ["kafka_43"], "kafka_43"),
    (["fresh"], ["kafka_39"], "kafka_39 stock"),
    (["fresh"], [], "kafka_39 stock"),
])  # fmt: skip
def test_brokers_of_the_session_are_started_by_one_process(
    fixtures: list[str], parameters: list[object], group: str
) -> None:
    """Tests that need the same ones are in the same group; separate brokers of a file keep that file together."""
    assert group_of(FILE, fixtures, parameters) == group


def test_spark_is_started_by_one_process() -> None:
    """Its tests take longest: those that need the same broker and no Spark are in another one."""
    assert group_of(FILE, ["spark", "tmp_path"], [], needs_broker=False) == "spark"
    assert group_of(FILE, ["spark", "views_front", "kafka_43"], []) == "spark"
    assert group_of(FILE, ["views_front", "kafka_43"], []) == "kafka_43"
    assert group_of(FILE, ["tmp_path"], ["3.9.1"], needs_broker=False) == FILE


def test_the_house_is_one_group() -> None:
    """Each source is parsed once."""
    assert group_of("tests/house/test_it.py", [], [], needs_broker=False) == "tests/house"
    assert group_of("tests/housing/test_it.py", [], [], needs_broker=False) == "tests/housing/test_it.py"


def test_long_groups_begin_first() -> None:
    """Spark, the brokers of the session, other brokers, what is slow, the rest."""
    groups = [("b", []), ("s", ["slow"]), ("r", ["broker", "slow"]), ("kafka_39 a", []), ("kafka_39 b", ["broker"])]
    shared = [("tests/house", []), ("kafka_43", []), ("quick", ["broker"]), ("spark", [])]
    ranked = sorted([*groups, *shared], key=lambda group: rank_of(*group))
    names = ["spark", "quick", "kafka_39 a", "kafka_39 b", "kafka_43", "r", "tests/house", "s", "b"]
    assert [name for name, _ in ranked] == names


@pytest.mark.parametrize(("file", "pattern", "covered_by"), LEFT_OUT, ids=[f"{f}-{p}" for f, p, _ in LEFT_OUT])
def test_what_is_left_out_is_a_test_that_exists_and_files_that_cover_it_do(
    file: str, pattern: str, covered_by: str
) -> None:
    tests = re.findall(r"^(?:async )?def (test_\w+)", (CHECKOUT / file).read_text(encoding="utf-8"), re.MULTILINE)
    for begin in re.findall(r"test_\w+", pattern):
        assert any(test.startswith(begin) for test in tests)
    for path in re.findall(r"tests/[\w/]+(?:\.py)?", covered_by):
        assert (CHECKOUT / path).exists()


def test_a_second_release_is_left_out_and_the_first_is_not() -> None:
    assert is_left_out("tests/stock/test_cooperative_fetch.py", "test_it[4.3.0]")
    assert not is_left_out("tests/stock/test_cooperative_fetch.py", "test_it[3.9.1]")
    assert not is_left_out(FILE, "test_it[4.3.0]")
