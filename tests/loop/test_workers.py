"""Threads for long computations: results arrive in the loop, and the number of waiting computations is limited."""

from __future__ import annotations

import threading
import time

import pytest
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.interfaces import WorkersBusy
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.workers import WorkerThreads

LIMIT_S = 10.0


@pytest.fixture
def reactor():
    new_reactor = Reactor(new_pump)
    yield new_reactor
    new_reactor.shut()


def iterate_until(reactor: Reactor, condition) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "the loop waited in vain"
        reactor.iterate(0.1)


def test_result_arrives_in_the_loop(reactor):
    """Computed in a thread, delivered here."""
    workers = WorkerThreads(reactor)
    waiting: list[tuple[int, int]] = []
    promise = workers.run(threading.get_ident)
    promise.on_settled(lambda: waiting.append((promise.result(), threading.get_ident())))
    iterate_until(reactor, lambda: waiting)
    computed, here = waiting[0]
    assert here == threading.get_ident() != computed
    workers.end()


def test_exception_of_a_computation_is_raised_by_its_promise(reactor):
    workers = WorkerThreads(reactor)
    promise = workers.run(lambda: 1 // 0)
    iterate_until(reactor, lambda: promise.done)
    with pytest.raises(ZeroDivisionError):
        promise.result()
    workers.end()


def test_work_beyond_the_limit_is_refused(reactor):
    """Nothing piles up, and nothing is computed in the loop."""
    workers = WorkerThreads(reactor, threads=1, waiting_max=1)
    gate = threading.Event()
    held = workers.run(lambda: gate.wait(LIMIT_S))
    iterate_until(reactor, lambda: workers.waiting == 0)
    queued = workers.run(lambda: "queued")
    mine = workers.run(threading.get_ident)
    with pytest.raises(WorkersBusy):
        mine.result()
    assert not queued.done
    gate.set()
    iterate_until(reactor, lambda: held.done and queued.done)
    workers.end()


def test_large_work_delays_no_other(reactor):
    """It has a separate thread."""
    workers, gate = WorkerThreads(reactor, threads=1), threading.Event()
    large = [workers.run(lambda: gate.wait(LIMIT_S), is_large=True) for _ in range(5)]
    quick = workers.run(threading.get_ident)
    iterate_until(reactor, lambda: quick.done)
    assert not any(promise.done for promise in large)
    gate.set()
    iterate_until(reactor, lambda: all(promise.done for promise in large))
    workers.end()


def test_work_of_heavy_owners_runs_after_that_of_light_ones(reactor):
    """Regardless of their arrival: fifty waiting computations do not delay the one of another owner."""
    workers, gate, order = WorkerThreads(reactor, threads=1), threading.Event(), list[str]()
    greedy = workers.run(lambda: gate.wait(0.1), "greedy")
    iterate_until(reactor, lambda: greedy.done)
    held = workers.run(lambda: gate.wait(LIMIT_S), "third")
    iterate_until(reactor, lambda: workers.waiting == 0)
    requested = [workers.run(lambda: order.append("greedy"), "greedy") for _ in range(50)]
    requested.append(workers.run(lambda: order.append("modest"), "modest"))
    gate.set()
    iterate_until(reactor, lambda: held.done and all(promise.done for promise in requested))
    assert order == ["modest"] + ["greedy"] * 50
    workers.end()


def test_number_of_stored_owners_is_limited(reactor, monkeypatch):
    monkeypatch.setattr("kafka_share_proxy.loop.workers.OWNERS_MAX", 5)
    workers = WorkerThreads(reactor, threads=1)
    for number in range(50):
        promise = workers.run(int, number)
        iterate_until(reactor, lambda promise=promise: promise.done)
    assert len(workers._lanes[0]._used) <= 10
    workers.end()


def test_number_of_threads_is_limited(reactor):
    workers = WorkerThreads(reactor, threads=2)
    promises = [workers.run(threading.get_ident) for _ in range(50)]
    iterate_until(reactor, lambda: all(promise.done for promise in promises))
    assert len({promise.result() for promise in promises}) <= 2
    workers.end()
