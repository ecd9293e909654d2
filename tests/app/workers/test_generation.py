"""Workers of one generation, on a clock that jumps."""

import signal
from typing import Any

import pytest
import trio
import trio.testing
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.workers.generation import (
    CHECK_S,
    COVERED_S,
    END_S,
    RESTART_MAX_S,
    RESTART_MIN_S,
    SERVED_S,
    Generation,
)
from kafka_share_proxy.app.workers.worker_process import WorkerProcess, start_process

DRAIN_S = 5.0
Clock = trio.testing.MockClock


class Workers:
    """Workers that end when a test says so."""

    def __init__(self) -> None:
        self.hired: list[tuple[int, FakeWorker]] = []
        self.notes: list[dict[str, Any]] = []
        self.uncovered = 0
        config = Config(workers=2, drain_s=DRAIN_S)
        self.generation = Generation(config, [4, 5], self.hire, self.note, self.count)

    def hire(self, _generation: Generation, place: int) -> WorkerProcess:
        worker = FakeWorker()
        self.hired.append((place, worker))
        return worker

    def note(self, event: str, /, **context: Any) -> None:
        self.notes.append({"event": event, **context})

    def count(self, _generation: Generation) -> None:
        self.uncovered += 1

    def of(self, place: int) -> "list[FakeWorker]":
        return [worker for at, worker in self.hired if at == place]


class FakeWorker(WorkerProcess):
    """Keeps its signals, and has no process."""

    def __init__(self) -> None:
        super().__init__(0, 0, "", start_process)
        self.signals: list[signal.Signals] = []

    def signal(self, number: signal.Signals) -> None:
        self.signals.append(number)
        if number == signal.SIGKILL:
            self.end(-number)

    def end(self, status: int) -> None:
        self.status = status
        self.ended.set()


async def start_workers(workers: Workers, nursery: trio.Nursery) -> None:
    for place in workers.generation.places:
        nursery.start_soon(workers.generation.keep, place)
    await trio.testing.wait_all_tasks_blocked()


async def test_a_generation_serves_once_every_worker_does(autojump_clock: Clock) -> None:
    workers = Workers()
    async with trio.open_nursery() as nursery:
        await start_workers(workers, nursery)
        workers.of(0)[0].ready.set()
        assert not workers.generation.is_ready
        assert list(workers.generation.serving()) == [0]
        workers.of(1)[0].ready.set()
        assert await workers.generation.serves(trio.Event())
        nursery.cancel_scope.cancel()


async def test_a_worker_that_ends_is_replaced_and_reported(autojump_clock: Clock) -> None:
    workers = Workers()
    async with trio.open_nursery() as nursery:
        await start_workers(workers, nursery)
        for place in (0, 1):
            workers.of(place)[0].ready.set()
        await workers.generation.serves(trio.Event())
        workers.of(1)[0].end(-signal.SIGKILL)
        await trio.sleep(1)
        assert (len(workers.of(0)), len(workers.of(1))) == (1, 2)
        assert workers.notes[0]["reason"] == "killed by SIGKILL"
        assert workers.uncovered == 1
        nursery.cancel_scope.cancel()


async def test_a_worker_that_ends_again_and_again_is_replaced_after_longer_delays(
    autojump_clock: trio.testing.MockClock,
) -> None:
    workers = Workers()
    async with trio.open_nursery() as nursery:
        await start_workers(workers, nursery)
        for place in (0, 1):
            workers.of(place)[0].ready.set()
        await workers.generation.serves(trio.Event())
        for number in range(12):
            workers.of(0)[number].end(1)
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(workers.notes[-1]["again_in_s"] + SERVED_S / 2)
        delays = [note["again_in_s"] for note in workers.notes]
        assert delays == sorted(delays)
        assert delays[-1] == RESTART_MAX_S
        await trio.sleep(SERVED_S)
        workers.of(0)[-1].end(1)
        await trio.testing.wait_all_tasks_blocked()
        assert workers.notes[-1]["again_in_s"] == COVERED_S, "another one serves its clients first"
        await trio.sleep(COVERED_S + CHECK_S)
        workers.of(0)[-1].end(1)
        await trio.testing.wait_all_tasks_blocked()
        assert workers.notes[-1]["again_in_s"] == delays[0] == RESTART_MIN_S
        nursery.cancel_scope.cancel()


async def test_clients_do_not_wait_if_no_other_worker_serves_them(autojump_clock: Clock) -> None:
    workers = Workers()
    async with trio.open_nursery() as nursery:
        await start_workers(workers, nursery)
        for place in (0, 1):
            workers.of(place)[0].ready.set()
        await workers.generation.serves(trio.Event())
        await trio.sleep(SERVED_S)
        workers.of(0)[0].end(-signal.SIGKILL)
        workers.of(1)[0].end(-signal.SIGKILL)
        await trio.testing.wait_all_tasks_blocked()
        assert [note["again_in_s"] for note in workers.notes] == [0, 0]
        assert (len(workers.of(0)), len(workers.of(1))) == (2, 2)
        nursery.cancel_scope.cancel()


async def test_a_worker_that_cannot_start_is_not_tried_again(autojump_clock: Clock) -> None:
    """It has written the reason, a setting for example, and another one would end likewise."""
    workers = Workers()
    async with trio.open_nursery() as nursery:
        await start_workers(workers, nursery)
        workers.of(1)[0].end(2)
        assert not await workers.generation.serves(trio.Event())
        assert workers.generation.failed == 2
        assert len(workers.of(1)) == 1
        nursery.cancel_scope.cancel()


async def test_waiting_for_a_generation_ends_when_the_proxy_stops(autojump_clock: Clock) -> None:
    workers, stop = Workers(), trio.Event()
    stop.set()
    assert not await workers.generation.serves(stop)


async def test_workers_that_end_in_time_are_not_killed(autojump_clock: Clock) -> None:
    workers = Workers()
    async with trio.open_nursery() as nursery:
        await start_workers(workers, nursery)
        nursery.start_soon(workers.generation.end, signal.SIGTERM)
        await trio.testing.wait_all_tasks_blocked()
        for _, worker in workers.hired:
            assert worker.signals == [signal.SIGTERM]
            worker.end(0)
        await workers.generation.ended()
    assert all(len(workers.of(place)) == 1 for place in (0, 1)), "an ending generation replaces nobody"


async def test_a_worker_that_does_not_end_is_killed_after_the_drain(autojump_clock: Clock) -> None:
    workers = Workers()
    async with trio.open_nursery() as nursery:
        await start_workers(workers, nursery)
        began = trio.current_time()
        await workers.generation.end(signal.SIGTERM)
    assert trio.current_time() - began == pytest.approx(DRAIN_S + END_S, abs=1)
    assert {worker.status for _, worker in workers.hired} == {-signal.SIGKILL}
