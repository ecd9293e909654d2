"""How the whole run is shared by several processes (pytest-xdist, `--dist loadgroup`).

What must be in one process is a group: a file, or all tests that share brokers or Spark, so that each of those is
started once. A test that needs more than its fixtures and parameters show names its `xdist_group` itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.support import type_checker
from tests.support.brokers import NEW, OLD

SHARED = ("spark", "quick", "kafka_39_three", "kafka_39", "kafka_43")
"""Fixtures that tests share in the session, the longest first: Spark; brokers that allow locks of a second, of 4.4.0
among them; three of 3.9.1; one of 3.9.1; one of 4.3.0. Who needs Spark is with Spark, and who needs several brokers is
with those that begin earlier.
"""

BROKERS = {"kafka_39", "proxy_39", "proxy_39_quick", "kafka_43", "proxy_43", "kafka_43_quick"}
"""Fixtures that tests also name by a parameter, to have one after the other."""

LARGE = ("stock", "client")
"""Folders whose tests with a broker of 3.9.1 are a group each."""

HOUSE = "tests/house"
"""A folder that is one group: its tests share what tests/support/sources.py has parsed."""


def group_of(file: str, fixtures: Iterable[str], parameters: Iterable[object], needs_broker: bool = True) -> str:
    """The group of a test; `front` is one of two proxies, as its parameter says, which may also be a fixture's name.

    Tests of the house read the same sources. Half of what needs brokers needs one of 3.9.1: the tests of two folders
    are a group each, and those of all others.
    """
    values = set(map(str, parameters))
    needed = {*fixtures, *(values & BROKERS)}
    if file.startswith(f"{HOUSE}/"):
        return HOUSE
    if "spark" in needed:
        return "spark"
    if not needs_broker:
        return file
    if needed & {"proxy_39_quick", "kafka_43_quick", "kafka_44", "outcomes"}:
        return "quick"
    if "kafka_39_three" in needed:
        return "kafka_39_three"
    is_old = needed & {"kafka_39", "proxy_39"} or ("front" in needed and OLD in values)
    if not is_old and (needed & {"kafka_43", "proxy_43"} or ("front" in needed and NEW in values)):
        return "kafka_43"
    if "running" in needed and not is_old:
        return file
    folder = file.split("/")[1]
    return f"kafka_39 {folder if folder in LARGE else 'others'}"


def rank_of(group: str, marks: Iterable[str]) -> int:
    """Long groups begin first, lest one of them begins last and is waited for."""
    shared = group.partition(" ")[0]
    if shared in SHARED:
        return SHARED.index(shared)
    ranked = set(marks)
    if "broker" in ranked or group in (HOUSE, type_checker.GROUP):
        return len(SHARED)
    return len(SHARED) + (1 if "slow" in ranked else 2)
