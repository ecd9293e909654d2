"""How the whole run is shared by several processes (pytest-xdist, `--dist loadgroup`).

What must be in one process is a group: a file, or all tests that share brokers of the session, so that each of those is
started once. A test that needs more than its fixtures and parameters show names its `xdist_group` itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.brokers import NEW, OLD

SHARED = ("kafka_39", "kafka_43")
"""Groups of tests that share brokers of the session; who needs both is in the first."""


def group_of(file: str, fixtures: Iterable[str], parameters: Iterable[object]) -> str:
    """The group of a test that needs real brokers; `front` is one of two proxies, as its parameter says."""
    needed, values = set(fixtures), set(map(str, parameters))
    if needed & {"kafka_39", "proxy_39", "proxy_39_quick", "kafka_43_quick"} or ("front" in needed and OLD in values):
        return "kafka_39"
    if needed & {"kafka_43", "proxy_43"} or ("front" in needed and NEW in values):
        return "kafka_43"
    return file if "running" in needed else "kafka_39"


def rank_of(group: str, marks: Iterable[str]) -> int:
    """Long groups begin first, lest one of them begins last and is waited for."""
    if group in SHARED:
        return SHARED.index(group)
    named = set(marks)
    return len(SHARED) + (0 if "broker" in named else 1 if "slow" in named else 2)
