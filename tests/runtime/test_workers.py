"""Threads for long computations: results come back in the loop, and there is a limit to what waits."""

from __future__ import annotations

import threading
import time

import pytest

from proxy.runtime.reactor import Reactor
from proxy.runtime.workers import Workers

LIMIT_S = 10.0


@pytest.fixture
def reactor():
    made = Reactor()
    yield made
    made.shut()


def turn_until(reactor: Reactor, condition) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "the loop waited in vain"
        reactor.turn(0.1)


def test_result_arrives_in_the_loop(reactor):
    """Computed elsewhere, told here."""
    workers = Workers(reactor)
    told: list[tuple[int, int]] = []
    promise = workers.run(threading.get_ident)
    promise.on_settled(lambda: told.append((promise.result(), threading.get_ident())))
    turn_until(reactor, lambda: told)
    computed, here = told[0]
    assert here == threading.get_ident() != computed
    workers.end()


def test_error_arrives_as_one(reactor):
    workers = Workers(reactor)
    promise = workers.run(lambda: 1 // 0)
    turn_until(reactor, lambda: promise.done)
    with pytest.raises(ZeroDivisionError):
        promise.result()
    workers.end()


def test_what_is_too_much_is_computed_by_who_asks(reactor):
    """Nothing is lost and nothing piles up."""
    workers = Workers(reactor, threads=1, waiting_max=1)
    gate = threading.Event()
    held = workers.run(lambda: gate.wait(LIMIT_S))
    turn_until(reactor, lambda: workers.waiting == 0)
    queued = workers.run(lambda: "queued")
    mine = workers.run(threading.get_ident)
    assert mine.done
    assert mine.result() == threading.get_ident()
    assert not queued.done
    gate.set()
    turn_until(reactor, lambda: held.done and queued.done)
    workers.end()


def test_threads_are_few(reactor):
    workers = Workers(reactor, threads=2)
    promises = [workers.run(threading.get_ident) for _ in range(50)]
    turn_until(reactor, lambda: all(promise.done for promise in promises))
    assert len({promise.result() for promise in promises}) <= 2
    workers.end()
