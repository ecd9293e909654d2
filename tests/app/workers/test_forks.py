"""Forks of a process: their parent, and what they have open."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kafka_share_proxy.app.workers import channel, fork_server, forks

PROGRAM = """
import os, sys
from kafka_share_proxy.app.workers import channel, forks
requests = forks.requests()
end = forks.next_worker(requests)
if end is None:
    sys.exit(3)
channel.receive(end)
open_ones = [fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
channel.send(end, {"pid": os.getpid(), "parent": os.getppid(), "group": os.getpgid(0), "open": len(open_ones)})
channel.receive(end)
"""
FAILS = """
import os
from kafka_share_proxy.app.workers import forks
requests, fork, calls = forks.requests(), os.fork, []
def failing():
    calls.append(1)
    if len(calls) == 2:
        raise OSError("no room")
    return fork()
os.fork = failing
forks.next_worker(requests)
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forked workers need Linux")


@contextmanager
def started(program: str) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    ours, theirs = channel.pair()
    ours.settimeout(20)
    environment = os.environ | {forks.DESCRIPTOR: str(theirs.fileno())}
    with (
        fork_server.adopted_orphans(),
        ours,
        subprocess.Popen(
            [sys.executable, "-c", program], env=environment, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE
        ) as process,
    ):
        theirs.close()
        try:
            yield process, ours
        finally:
            ours.close()
            process.kill()


def requested(ours: socket.socket) -> tuple[int, dict[str, int]]:
    """Request a worker. Return its id as reported by its parent, and what it says; it ends then."""
    mine, its = channel.pair()
    mine.settimeout(20)
    with mine:
        with its:
            channel.send(ours, {}, [its])
        reported = channel.receive(ours)
        channel.send(mine, {})
        lines = channel.receive(mine)
        assert reported is not None
        assert lines is not None
    return reported[0]["pid"], lines[0]


def test_workers_become_children_of_the_supervisor_in_groups_of_their_own() -> None:
    with started(PROGRAM) as (process, ours):
        workers = [requested(ours) for _ in range(3)]
        for pid, lines in workers:
            assert os.waitpid(pid, 0) == (pid, 0)
            assert lines["pid"] == lines["group"] == pid != process.pid
            assert lines["parent"] == os.getpid()
        assert len({pid for pid, _ in workers}) == 3
        assert {lines["open"] for _, lines in workers} == {4}, "standard streams and the end of the channel"


def test_the_process_ends_with_its_supervisor_and_a_worker_does_not() -> None:
    with started(PROGRAM) as (process, ours):
        mine, its = channel.pair()
        with mine:
            with its:
                channel.send(ours, {}, [its])
            reported = channel.receive(ours)
            assert reported is not None
            ours.close()
            assert process.wait(20) == 3
            pid = reported[0]["pid"]
            assert os.waitpid(pid, os.WNOHANG) == (0, 0)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_a_fork_that_fails_ends_the_process_with_the_reason() -> None:
    with started(FAILS) as (process, ours):
        mine, its = channel.pair()
        with mine, its:
            channel.send(ours, {}, [its])
            assert process.wait(20) == 1
        assert process.stderr is not None
        assert b"cannot fork a worker: the limit of processes or of memory is reached" in process.stderr.read()


def test_a_process_without_a_supervisor_forks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(forks.DESCRIPTOR, raising=False)
    assert forks.requests() is None
