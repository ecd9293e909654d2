"""A pytest plugin: fixtures of a failed test that do not end are ended with their process, and its stacks are printed.

pytest-timeout and the limit of pytest itself (`faulthandler_timeout`) both end at the first exception of a test, for a
debugger. Nothing then limited the fixtures of a test that failed, or was too slow. The limit of pytest itself is the
same for all tests, also for those whose mark `timeout` allows more.
"""

from __future__ import annotations

import faulthandler
import os

import pytest

TEARDOWN_S = 180.0
"""Seconds that the fixtures of a failed test may take to end. Several brokers take 15 s each at most."""


class HangWatch:
    """Ends the process some time after a test has failed. pytest withdraws that at the end of the test."""

    def __init__(self) -> None:
        self._stderr = os.dup(2)  # not yet what a test writes

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        mark = item.get_closest_marker("timeout")
        allowed_s = float(mark.args[0]) if mark is not None else 0.0
        if allowed_s >= float(item.config.getini("faulthandler_timeout") or 0):
            faulthandler.dump_traceback_later(allowed_s + TEARDOWN_S, file=self._stderr, exit=True)

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self, node: pytest.Item | pytest.Collector) -> None:
        if isinstance(node, pytest.Item):
            faulthandler.dump_traceback_later(TEARDOWN_S, file=self._stderr, exit=True)

    def pytest_unconfigure(self) -> None:
        os.close(self._stderr)
