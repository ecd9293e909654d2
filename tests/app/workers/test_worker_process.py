"""Process of one worker, with small programs in place of the proxy."""

import signal
import sys

import pytest
import trio
from kafka_share_proxy.app.workers import worker_process
from kafka_share_proxy.app.workers.seat import DESCRIPTOR
from kafka_share_proxy.app.workers.worker_process import WorkerProcess

REQUESTS = f"""
import os, socket
end = socket.socket(fileno=int(os.environ["{DESCRIPTOR}"]))
end.send(b'{{"hired": true}}')
assert end.recv(100) == b'{{}}'
end.send(b'{{"exit": true}}')
exit(int(end.recv(100)))
"""
SLEEPS = "import time; time.sleep(60)"


def program(monkeypatch: pytest.MonkeyPatch, text: str) -> WorkerProcess:
    monkeypatch.setattr(worker_process, "COMMAND", (sys.executable, "-c", text))
    return WorkerProcess()


async def test_a_worker_waits_until_it_is_hired_and_gets_its_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, asked = program(monkeypatch, REQUESTS), []

    def reply(request: dict[str, object]) -> worker_process.Reply:
        asked.append(request)
        return (7, []) if "exit" in request else ({}, [])  # type: ignore[return-value]  # a status, in this program

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await trio.sleep(0.2)
            assert not asked
            worker.hire(3, 1, "admin", reply)
            await worker.ended.wait()
    assert (worker.number, worker.place, worker.admin, worker.status) == (3, 1, "admin", 7)
    assert asked == [{"hired": True}, {"exit": True}]


async def started(worker: WorkerProcess) -> None:
    while worker.pid is None:  # noqa: ASYNC110  # what is waited for is a process
        await trio.sleep(0.01)


async def test_a_signal_ends_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = program(monkeypatch, SLEEPS)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await started(worker)
            worker.signal(signal.SIGTERM)
            await worker.ended.wait()
    assert worker.status == -signal.SIGTERM
    worker.signal(signal.SIGTERM)  # nothing happens once it has ended


async def test_a_cancelled_worker_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = program(monkeypatch, SLEEPS)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await started(worker)
            nursery.cancel_scope.cancel()
    assert worker.status == -signal.SIGKILL
    assert worker.ended.is_set()


def test_a_worker_serves_from_when_it_is_ready_until_it_ends() -> None:
    worker = WorkerProcess()
    assert not worker.serves
    worker.ready.set()
    assert worker.serves
    worker.ended.set()
    assert not worker.serves


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_signal_to_a_worker_whose_process_has_not_started_ends_it(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    worker = program(monkeypatch, SLEEPS)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            assert worker.pid is None
            worker.signal(number)
            await worker.ended.wait()
    assert worker.status == -number


async def test_a_worker_that_cannot_be_started_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that stops waits for its end."""
    monkeypatch.setattr(worker_process, "COMMAND", ("/no/such/program",))
    worker = WorkerProcess()
    with pytest.raises(FileNotFoundError):
        await worker.run()
    assert worker.ended.is_set()


async def test_a_worker_that_is_cancelled_before_its_process_has_started_has_ended() -> None:
    worker = WorkerProcess()
    with trio.CancelScope() as scope:
        scope.cancel()
        await worker.run()
    assert worker.ended.is_set()
