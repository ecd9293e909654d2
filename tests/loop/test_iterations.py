"""Durations of iterations of the loop: what counts, what does not, and what is logged about long ones."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import trio
import trio.lowlevel
from kafka_share_proxy.app.observing import metrics as figures
from kafka_share_proxy.app.observing import observe
from kafka_share_proxy.feature.metrics import Metrics
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Route
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.iterations import LOGGED_S, LONG_S
from kafka_share_proxy.loop.polling import READ
from kafka_share_proxy.loop.reactor import NewPump, Reactor, no_pump

SLOW_S = 1.5 * LONG_S
VERY_SLOW_S = 1.5 * LOGGED_S


class Watched:
    """A loop with what it notes."""

    def __init__(self, new_pump_or_none: NewPump) -> None:
        self.noted: list[dict[str, Any]] = []
        self.reactor = Reactor(
            new_pump_or_none, lambda event, **context: self.noted.append({"event": event, **context})
        )
        self.reactor.iterations.begin()
        self.reactor.iterate(0)
        self._durations_s: list[float] = []

    def iterate(self, count: int = 3) -> None:
        for _ in range(count):
            began = time.monotonic()
            self.reactor.iterate(0.001)
            self._durations_s.append(time.monotonic() - began)

    @property
    def over(self) -> dict[str, float]:
        return dict(self.reactor.iterations.over())

    @property
    def long_at_most(self) -> int:
        """Iterations that were long from outside: more than one if the machine was busy with something else."""
        return sum(duration_s >= LONG_S for duration_s in self._durations_s)


class Owner:
    """Reads its socket and takes its time."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self.sock, self.seconds = sock, seconds

    def ready(self, _mask: int) -> None:
        self.sock.recv(100)
        time.sleep(self.seconds)

    def failed(self, error: Exception) -> None:
        raise AssertionError(error)

    def describe(self) -> dict[str, object]:
        return {"connection": 7}


@pytest.fixture(params=[new_pump, no_pump], ids=["pump", "python"])
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    watched_reactor = Watched(request.param)
    if request.param is new_pump and watched_reactor.reactor._pump is None:
        pytest.skip("the pump could not be built in C here")
    yield watched_reactor
    watched_reactor.reactor.shut()


def serve_once(watched: Watched, pair: tuple[socket.socket, socket.socket], seconds: float) -> None:
    ours, theirs = pair
    watched.reactor.register(ours.fileno(), READ, Owner(ours, seconds).ready)
    theirs.send(b"x")
    watched.iterate()
    watched.reactor.unregister(ours.fileno())


def test_waiting_does_not_count(watched: Watched) -> None:
    watched.reactor.call_at(watched.reactor.now() + SLOW_S, lambda: None)
    watched.reactor.iterate(1.0)
    watched.iterate()
    assert watched.over == {"0.02": 0, "0.1": 0}
    assert watched.reactor.iterations.take_longest() < SLOW_S


def test_a_long_iteration_is_counted_and_is_the_longest_until_read(
    watched: Watched, pair: tuple[socket.socket, socket.socket]
) -> None:
    serve_once(watched, pair, SLOW_S)
    assert 1 <= watched.over["0.02"] <= watched.long_at_most
    assert watched.over["0.1"] == 0
    assert SLOW_S <= watched.reactor.iterations.take_longest() < LOGGED_S
    assert watched.reactor.iterations.take_longest() == 0
    assert watched.noted == []


def test_a_very_long_iteration_is_logged_with_what_it_did(
    watched: Watched, pair: tuple[socket.socket, socket.socket]
) -> None:
    serve_once(watched, pair, VERY_SLOW_S)
    (line,) = watched.noted
    assert line["event"] == "turn-long"
    assert line["reason"] == "Owner.ready"
    assert line["connection"] == 7
    assert line["took_s"] >= LOGGED_S


@pytest.mark.parametrize("kind", ["chore", "alarm", "guarded"])
def test_calls_that_wait_count_as_well(watched: Watched, pair: tuple[socket.socket, socket.socket], kind: str) -> None:
    def slow() -> None:
        time.sleep(VERY_SLOW_S)

    owner = Owner(pair[0], 0)
    if kind == "alarm":
        watched.reactor.call_at(watched.reactor.now(), slow)
    elif kind == "chore":
        watched.reactor.call_from_thread(slow)
    else:
        watched.reactor.call_soon(owner, slow)
    watched.iterate()
    (line,) = watched.noted
    assert "slow" in line["reason"]
    assert line.get("connection") == (7 if kind == "guarded" else None)


def test_many_short_calls_are_one_long_iteration(watched: Watched) -> None:
    for _ in range(100):
        watched.reactor.call_from_thread(partial(time.sleep, VERY_SLOW_S / 100))
    watched.iterate()
    (line,) = watched.noted
    assert line["took_s"] >= LOGGED_S


def test_a_task_of_trio_is_named(watched: Watched) -> None:
    async def busy_task() -> None:
        time.sleep(VERY_SLOW_S)  # noqa: ASYNC251  # the tested fault

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(busy_task)
        await trio.lowlevel.checkpoint()

    watched.reactor.run(main)
    assert any("busy_task" in line["reason"] for line in watched.noted)


def test_a_collection_of_garbage_is_named(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        def __del__(self) -> None:
            time.sleep(VERY_SLOW_S)

    def collect() -> None:
        circle = Slow()
        circle.itself = circle  # type: ignore[attr-defined]
        del circle
        gc.collect()

    watched.reactor.call_from_thread(collect)
    watched.iterate()
    assert watched.noted[0]["reason"] == "collection of garbage, generation 2"


@pytest.mark.parametrize("watched", [new_pump], indirect=True, ids=["pump"])
def test_a_thread_that_keeps_the_lock_counts(watched: Watched) -> None:
    """The loop was woken, and cannot continue: that is no rest. (`select.epoll` returns only once it has the lock.)"""
    text = "a" * 32 + "!"

    def hold() -> None:
        import re

        re.match("(a|aa)+$", text)  # one call that gives the lock back only at its end

    thread = threading.Thread(target=hold)
    thread.start()
    while thread.is_alive():
        watched.reactor.iterate(0.001)
    watched.iterate()
    assert watched.over["0.1"] >= 1


def test_iterations_are_not_counted_before_clients_are_admitted() -> None:
    reactor = Reactor(new_pump)
    reactor.call_from_thread(partial(time.sleep, SLOW_S))
    for _ in range(3):
        reactor.iterate(0.001)
    assert set(reactor.iterations.over().values()) == {0}
    reactor.shut()


def test_lines_about_iterations_are_limited(pair: tuple[socket.socket, socket.socket]) -> None:
    lines: list[str] = []
    notes = observe.LogNotes(lambda _level, event, _context: lines.append(event))
    reactor = Reactor(new_pump, notes)
    reactor.iterations.begin()
    for _ in range(3 * observe.LINES_MAX):
        reactor.iterations.took("work", 1.0)
        reactor.iterations.ended(1.0)
    reactor.shut()
    assert lines == ["turn-long"] * observe.LINES_MAX


def test_the_figures_are_reported() -> None:
    metrics, reactor = Metrics(), Reactor(new_pump)
    figures.of_iterations(metrics, reactor.iterations)
    reactor.iterations.begin()
    reactor.iterations.ended(0.03)
    text = metrics.render().decode()
    assert "ksp_turn_longest_seconds 0.03" in text
    assert 'ksp_turns_over_total{seconds="0.02"} 1.0' in text
    assert 'ksp_turns_over_total{seconds="0.1"} 0.0' in text
    assert "ksp_turn_longest_seconds 0.0\n" in metrics.render().decode()
    reactor.shut()


def test_a_failing_owner_is_still_timed(watched: Watched, pair: tuple[socket.socket, socket.socket]) -> None:
    class Fails(Owner):
        def ready(self, mask: int) -> None:
            super().ready(mask)
            raise ValueError("fails")

        def failed(self, error: Exception) -> None:
            self.error = error

    ours, theirs = pair
    owner = Fails(ours, SLOW_S)
    watched.reactor.register(ours.fileno(), READ, owner.ready)
    theirs.send(b"x")
    watched.iterate()
    assert isinstance(owner.error, ValueError)
    assert 1 <= watched.over["0.02"] <= watched.long_at_most


def test_a_long_call_on_behalf_of_a_connection_is_reported_with_it(
    watched: Watched, pair: tuple[socket.socket, socket.socket]
) -> None:
    """Also where another connection's request was looked into in the same iteration."""
    owner = Owner(pair[0], 0)

    def slow() -> None:
        watched.reactor.iterations.doing = Other(), Route(kind=Kind.FORWARD, key=3, version=9)  # type: ignore[assignment]
        time.sleep(VERY_SLOW_S)

    watched.reactor.call_on_behalf_of(owner, slow)  # type: ignore[arg-type]
    watched.iterate()
    (line,) = watched.noted
    assert "slow" in line["reason"]
    assert "Metadata" not in line["reason"]
    assert line["connection"] == 7


class Other:
    def describe(self) -> dict[str, object]:
        return {"connection": 8}
