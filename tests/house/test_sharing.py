"""How the whole run is shared by several processes."""

from __future__ import annotations

import pytest

from tests.support.sharing import group_of, rank_of

FILE = "tests/stock/test_it.py"


@pytest.mark.parametrize(("fixtures", "parameters", "group"), [
    (["fresh", "proxy_39"], [], "kafka_39 stock"),
    (["front", "fresh"], ["3.9.1", "classic"], "kafka_39 stock"),
    (["front", "fresh"], ["4.3.0"], "kafka_43"),
    (["kafka_43_quick", "proxy_39_quick"], [], "quick"),
    (["front", "kafka_43_quick", "running"], [], "quick"),
    (["kafka_39", "running"], [], "kafka_39 stock"),
    (["running", "front"], ["native"], FILE),
    (["outcomes"], ["028"], "quick"),
    (["fresh"], [], "kafka_39 stock"),
])  # fmt: skip
def test_brokers_of_the_session_are_started_by_one_process(
    fixtures: list[str], parameters: list[object], group: str
) -> None:
    """Tests that need the same ones are in the same group; separate brokers of a file keep that file together."""
    assert group_of(FILE, fixtures, parameters) == group


def test_spark_is_started_by_the_process_whose_tests_with_brokers_need_it() -> None:
    """Other tests without brokers stay with their file."""
    assert group_of(FILE, ["spark", "tmp_path"], [], needs_broker=False) == "kafka_43"
    assert group_of(FILE, ["spark", "views_front", "kafka_43"], []) == "kafka_43"
    assert group_of(FILE, ["tmp_path"], ["3.9.1"], needs_broker=False) == FILE


def test_long_groups_begin_first() -> None:
    """The brokers of the session, other brokers, what is slow, the rest."""
    groups = [("b", []), ("s", ["slow"]), ("r", ["broker", "slow"]), ("kafka_39 a", []), ("kafka_39 b", ["broker"])]
    ranked = sorted([*groups, ("quick", ["broker"]), ("kafka_43", [])], key=lambda group: rank_of(*group))
    assert [name for name, _ in ranked] == ["kafka_43", "kafka_39 a", "kafka_39 b", "quick", "r", "s", "b"]
