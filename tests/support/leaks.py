"""A pytest plugin: a socket that a test leaves open fails that test, not the one in which the collector finds it.

An unclosed socket reports itself when the collector frees it (ResourceWarning). What is held by a circle of references,
as an exception holds its frames, is taken at some later time, in some other test. So the collector runs at the end of
each test that made a socket, and freezes what is still there, lest every collection goes through all that earlier tests
have loaded: it took 5 s after the tests of the house. `python -X tracemalloc=20 -m pytest ...` also shows where it was
made.

By itself the collector runs rarely: what the tests of the house parse, and 22,000 collected tests, are no garbage.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Iterator

import pytest

from tests.support.hangs import HangWatch

RARELY = (200_000, 50, 100)
"""Thresholds of the collector: parsing all sources takes 2.5 s of CPU, with Python's own 8.8 s."""


class SocketWatch:
    """Knows whether this process has made a socket. It cannot be taken off again."""

    def __init__(self) -> None:
        self._has_opened_socket = False
        sys.addaudithook(self._received)
        gc.set_threshold(*RARELY)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        """Collect no garbage while tests are collected, for nearly all that is made then stays."""
        gc.disable()
        try:
            return (yield)
        finally:
            gc.enable()

    def pytest_collection_finish(self) -> None:
        """Freeze existing objects, which belong to no test, so that collections are short."""
        gc.collect()
        gc.freeze()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Collect garbage after all fixtures of the test have ended, if it opened a socket."""
        yield
        if self._has_opened_socket:
            self._has_opened_socket = False
            _collect(item)

    def _received(self, event: str, _arguments: tuple[object, ...]) -> None:
        if event == "socket.__new__":
            self._has_opened_socket = True


def _collect(item: pytest.Item) -> None:
    """Fail the test if anything that is collected now complains; pytest itself would look only in the next test."""
    complaints: list[str] = []
    usual, sys.unraisablehook = sys.unraisablehook, lambda ignored: complaints.append(_words(ignored))
    try:
        gc.collect()
        gc.freeze()
    finally:
        sys.unraisablehook = usual
    if complaints:
        pytest.fail(f"{item.nodeid} leaves behind: {'; '.join(complaints)}", pytrace=False)


def _words(ignored: sys.UnraisableHookArgs) -> str:
    allocation = tracemalloc.get_object_traceback(ignored.object) if tracemalloc.is_tracing() else None
    return "\n".join([repr(ignored.exc_value), *(allocation.format() if allocation is not None else ())])


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SocketWatch())
    config.pluginmanager.register(HangWatch())  # for fixtures that do not end
