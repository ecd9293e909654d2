"""Supervisor's side of the process that forks workers: these become its own children (app/README.md rule 12)."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from kafka_share_proxy.app.workers import channel, forks
from kafka_share_proxy.app.workers.worker_process import NotStarted, start_program

PR_SET_CHILD_SUBREAPER = 36
"""prctl(2), since Linux 3.4."""


@contextmanager
def adopted_orphans() -> Iterator[bool]:
    """Make processes whose parent has ended children of this one. Yield False if the system cannot do that."""
    adopts = _can_wait_for_processes() and _set_subreaper(1)
    try:
        yield adopts
    finally:
        if adopts:
            _set_subreaper(0)


def _can_wait_for_processes() -> bool:
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:  # kernels before 5.3, and sandboxes that refuse it
        return False
    return True


def _set_subreaper(value: int) -> bool:
    outcome: int = ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, value, 0, 0, 0)
    return outcome == 0


class ForkServer:
    """Process that loads the program once. A worker is forked from it in milliseconds, and shares its memory."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self._start_event = trio.Event()
        self._one_at_a_time = trio.Lock()
        self._status = 0
        self._ours: socket.socket | None = None
        self._process: trio.Process | None = None

    async def run(self) -> None:
        """Start the process, and wait for its end. Kill it if cancelled."""
        ours, theirs = channel.pair()
        try:
            with ours:
                with theirs:
                    self._process = process = await start_program(forks.DESCRIPTOR, theirs)
                self._ours = ours
                self._start_event.set()
                try:
                    self._status = await process.wait()
                finally:
                    with trio.CancelScope(shield=True):
                        process.kill()
                        await process.wait()
        finally:
            self._ours = None
            self._start_event.set()
            self.ended.set()

    def kill(self) -> None:
        """End the process immediately. Its workers continue."""
        if self._process is not None:
            self._process.kill()

    async def start(self, theirs: socket.socket) -> ForkedProcess:
        """Fork a worker whose supervisor has the other end of this socket.

        Raises:
            NotStarted: the process has ended.
        """
        async with self._one_at_a_time:
            await self._start_event.wait()
            pid = await self._fork(theirs)
            if pid is None:
                await self.ended.wait()
                raise NotStarted(self._status)
            return ForkedProcess(pid)

    async def _fork(self, theirs: socket.socket) -> int | None:
        if self._ours is None:
            return None
        try:
            channel.send(self._ours, {}, [theirs])
            await trio.lowlevel.wait_readable(self._ours)
            received = channel.receive(self._ours)
        except OSError:  # it has ended
            return None
        return None if received is None else int(received[0]["pid"])


class ForkedProcess:
    """Process that became a child of this one when its parent ended. It has the methods of `trio.Process` in use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._descriptor = os.pidfd_open(pid)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended. Raises ProcessLookupError if it has ended without `wait`."""
        if self.returncode is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Return the exit status, negative after a signal."""
        if self.returncode is None:
            await trio.lowlevel.wait_readable(self._descriptor)
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])  # noqa: ASYNC222 - it has ended
            os.close(self._descriptor)
        return self.returncode
