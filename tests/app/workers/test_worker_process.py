"""Process of one worker, with small programs in place of the proxy."""

import signal
import socket
import sys

import pytest
import trio
from kafka_share_proxy.app.workers import worker_process
from kafka_share_proxy.app.workers.seat import DESCRIPTOR
from kafka_share_proxy.app.workers.worker_process import NotStarted, WorkerProcess, start_process

REQUESTS = f"""
import os, socket
end = socket.socket(fileno=int(os.environ["{DESCRIPTOR}"]))
end.send(b'{{"exit": true}}')
exit(int(end.recv(100)))
"""
SLEEPS = "import time; time.sleep(60)"


def program(monkeypatch: pytest.MonkeyPatch, text: str) -> WorkerProcess:
    monkeypatch.setattr(worker_process, "COMMAND", (sys.executable, "-c", text))
    return WorkerProcess(3, 1, "admin", start_process)


async def test_a_worker_gets_responses_to_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, requests = program(monkeypatch, REQUESTS), []

    def reply(request: dict[str, object]) -> worker_process.Reply:
        requests.append(request)
        return 7, []  # type: ignore[return-value]  # a status, in this program

    worker.reply = reply
    with trio.fail_after(20):
        await worker.run()
    assert worker.status == 7
    assert requests == [{"exit": True}]


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
    worker = WorkerProcess(3, 1, "admin", start_process)
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
    worker = WorkerProcess(3, 1, "admin", start_process)
    with pytest.raises(FileNotFoundError):
        await worker.run()
    assert worker.ended.is_set()


async def test_a_worker_that_is_cancelled_before_its_process_has_started_has_ended() -> None:
    worker = WorkerProcess(3, 1, "admin", start_process)
    with trio.CancelScope() as scope:
        scope.cancel()
        await worker.run()
    assert worker.ended.is_set()


async def test_a_worker_that_the_fork_server_does_not_start_has_its_status() -> None:
    async def start(_theirs: socket.socket) -> worker_process.Child:
        raise NotStarted(7)

    worker = WorkerProcess(3, 1, "admin", start)
    await worker.run()
    assert worker.ended.is_set()
    assert worker.status == 7
