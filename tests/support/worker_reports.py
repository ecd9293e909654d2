"""A pytest plugin: what a process that shares the run sends to the one that prints it (pytest-xdist).

xdist sends six messages for each test: begin, set-up, call, tear-down, end, and that the next test may begin. Half of
the CPU of a small test was for these. What passed in no time and printed nothing is of no use in a set-up or tear-down:
the call is counted, and of the tests that take long each part is shown (`--durations`, `--junit-xml`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

SHOWN_S = 0.05
"""Seconds from which a set-up or tear-down is reported though it passed."""
WITHOUT_USE = frozenset({"logstart", "logfinish"})
"""Messages that only `pytest --verbose` in one process would print."""


def is_sent(name: str, data: Mapping[str, Any] | None) -> bool:
    """Return False for a message that says nothing; `data` is that of a report of a test."""
    if name in WITHOUT_USE:
        return False
    if name != "testreport" or data is None or data["when"] == "call":
        return True
    return bool(
        data["outcome"] != "passed" or data["duration"] >= SHOWN_S or data["sections"] or data["user_properties"]
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Choose among the messages of this process if it is one of several."""
    if not hasattr(session.config, "workerinput"):
        return
    for plugin in session.config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.sendevent = _chosen(plugin.sendevent)


def _chosen(send: Callable[..., None]) -> Callable[..., None]:
    def send_chosen(name: str, **values: Any) -> None:
        if is_sent(name, values.get("data")):
            send(name, **values)

    return send_chosen
