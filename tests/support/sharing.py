"""How the whole run is shared by several processes (pytest-xdist, `--dist loadgroup`).

What must be in one process is a group: a file, or all tests that share brokers or Spark, so that each of those is
started once. A test that needs more than its fixtures and parameters show names its `xdist_group` itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.support import type_checker
from tests.support.brokers import NEW, OLD

SHARED = ("spark", "quick", "kafka_39", "kafka_43")
"""Fixtures that tests share in the session, the longest first: Spark; brokers that allow locks of a second; those of
3.9.1; those of 4.3.0. Who needs Spark is with Spark, and who needs several brokers is with those that begin earlier.
"""

HOUSE = "tests/house"
"""A folder that is one group: its tests share what tests/support/sources.py has parsed."""


def group_of(file: str, fixtures: Iterable[str], parameters: Iterable[object], needs_broker: bool = True) -> str:
    """The group of a test; `front` is one of two proxies, as its parameter says.

    Tests of the house read the same sources. Half of what needs brokers needs one of 3.9.1, which starts in two
    seconds: each folder's tests are a group.
    """
    needed, values = set(fixtures), set(map(str, parameters))
    if file.startswith(f"{HOUSE}/"):
        return HOUSE
    if "spark" in needed:
        return "spark"
    if not needs_broker:
        return file
    if needed & {"proxy_39_quick", "kafka_43_quick", "outcomes"}:
        return "quick"
    is_old = needed & {"kafka_39", "proxy_39"} or ("front" in needed and OLD in values)
    if not is_old and (needed & {"kafka_43", "proxy_43"} or ("front" in needed and NEW in values)):
        return "kafka_43"
    return file if "running" in needed and not is_old else f"kafka_39 {file.split('/')[1]}"


def rank_of(group: str, marks: Iterable[str]) -> int:
    """Long groups begin first, lest one of them begins last and is waited for."""
    shared = group.partition(" ")[0]
    if shared in SHARED:
        return SHARED.index(shared)
    ranked = set(marks)
    if "broker" in ranked or group in (HOUSE, type_checker.GROUP):
        return len(SHARED)
    return len(SHARED) + (1 if "slow" in ranked else 2)
