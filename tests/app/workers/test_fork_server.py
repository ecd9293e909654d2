"""The process that forks workers, by small programs in place of the proxy. test_supervisor.py has it with workers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from kafka_share_proxy.app.workers import channel, fork_server, worker_process
from kafka_share_proxy.app.workers.fork_server import ForkServer
from kafka_share_proxy.app.workers.worker_process import NotStarted, WorkerProcess

PROGRAM = """
import os, signal, sys
from kafka_share_proxy.app.workers import channel, forks
end = forks.next_worker(forks.requests())
if end is None:
    sys.exit(0)
channel.send(end, {"pid": os.getpid()})
channel.receive(end)
sys.exit(7)
"""
LIMIT_S = 20.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forked workers need Linux")


@asynccontextmanager
async def serving(monkeypatch: pytest.MonkeyPatch, program: str = PROGRAM) -> AsyncIterator[ForkServer]:
    monkeypatch.setattr(worker_process, "COMMAND", (sys.executable, "-c", program))
    server = ForkServer()
    with fork_server.adopted_orphans() as adopts, trio.fail_after(LIMIT_S):
        assert adopts
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.run)
            yield server
            nursery.cancel_scope.cancel()


async def test_the_status_of_a_forked_worker_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch) as server:
        worker = WorkerProcess(3, 1, "admin", server.start)
        worker.reply = lambda _request: ({}, [])
        await worker.run()
        assert worker.status == 7


async def test_several_workers_can_be_requested_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch) as server:
        workers = [WorkerProcess(number, number, "admin", server.start) for number in range(4)]
        async with trio.open_nursery() as nursery:
            for worker in workers:
                nursery.start_soon(worker.run)
        assert [worker.status for worker in workers] == [7] * 4
        assert len({worker.pid for worker in workers}) == 4


async def test_a_signal_ends_a_forked_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch) as server:
        ours, theirs = channel.pair()
        with ours:
            with theirs:
                process = await server.start(theirs)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == -signal.SIGTERM
            process.send_signal(signal.SIGTERM)  # nothing happens once it has ended
            assert await process.wait() == process.returncode == -signal.SIGTERM


async def test_workers_outlive_the_process_that_forked_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch) as server:
        ours, theirs = channel.pair()
        with ours:
            with theirs:
                process = await server.start(theirs)
            server.kill()
            await server.ended.wait()
            os.kill(process.pid, 0)
            assert process.returncode is None
            channel.send(ours, {})
            assert await process.wait() == 7


async def test_a_program_that_cannot_load_is_the_status_of_each_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch, "raise SystemExit(5)") as server:
        workers = [WorkerProcess(number, number, "admin", server.start) for number in range(2)]
        async with trio.open_nursery() as nursery:
            for worker in workers:
                nursery.start_soon(worker.run)
        assert [worker.status for worker in workers] == [5, 5]


async def test_a_process_that_ends_while_it_forks_starts_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch, "import time; time.sleep(60)") as server:
        ours, theirs = channel.pair()

        async def killed() -> None:
            await trio.sleep(0.3)
            server.kill()

        with ours, theirs:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(killed)
                with pytest.raises(NotStarted) as raised:
                    await server.start(theirs)
        assert raised.value.status == -signal.SIGKILL


def test_other_systems_adopt_no_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server.sys, "platform", "darwin")
    with fork_server.adopted_orphans() as adopts:
        assert not adopts


def test_a_sandbox_that_refuses_descriptors_of_processes_adopts_no_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_pid: int) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "pidfd_open", refused)
    with fork_server.adopted_orphans() as adopts:
        assert not adopts
