"""The thread that reports a blocked loop. The loop here is a queue of calls that a test empties."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Queue

from kafka_share_proxy.loop.watchdog import Watchdog, calls_of

WAIT_S = 20.0


class Loop:
    """Calls from other threads, run by the thread of the test."""

    def __init__(self) -> None:
        self.calls: Queue[Callable[[], object]] = Queue()
        self.blocked: Queue[tuple[float, str]] = Queue()
        self.continued: list[tuple[float, str]] = []

    def watchdog(self, limit_s: float) -> Watchdog:
        return Watchdog(
            self.calls.put,
            lambda seconds, calls: self.blocked.put((seconds, calls)),
            lambda seconds, calls: self.continued.append((seconds, calls)),
            limit_s,
            every_s=0.01,
        )

    def run_one(self) -> None:
        self.calls.get(timeout=WAIT_S)()


def block(loop: Loop) -> tuple[float, str]:
    return loop.blocked.get(timeout=WAIT_S)


def test_a_blocked_loop_is_reported_with_its_calls_and_once_more_when_it_continues() -> None:
    loop = Loop()
    with loop.watchdog(limit_s=0.05):
        seconds, calls = block(loop)
        assert seconds == 0.05
        assert "test_watchdog.block:" in calls
        loop.run_one()
        while not loop.continued:
            loop.run_one()
    assert loop.continued[0][1] == calls
    assert loop.continued[0][0] >= 0.05


def test_a_loop_that_reacts_is_not_reported() -> None:
    loop = Loop()
    with loop.watchdog(limit_s=WAIT_S):
        for _ in range(5):
            loop.run_one()
    assert loop.blocked.empty()
    assert loop.continued == []


def test_the_thread_ends_also_while_the_loop_is_blocked() -> None:
    loop = Loop()
    watchdog = loop.watchdog(limit_s=0.01)
    with watchdog:
        block(loop)
    watchdog._thread.join(WAIT_S)
    assert not watchdog._thread.is_alive()


def test_a_thread_that_has_ended_has_no_calls() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    number = thread.ident
    thread.join()
    assert number is not None
    assert calls_of(number) == ""
