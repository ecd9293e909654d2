"""Process of one worker, and the requests that it sends to its supervisor."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import trio

from kafka_share_proxy.app.workers import channel
from kafka_share_proxy.app.workers.listening_sockets import Key
from kafka_share_proxy.app.workers.seat import DESCRIPTOR

Reply = tuple[channel.Body, list[socket.socket]]
COMMAND = (sys.executable, "-P", "-m", "kafka_share_proxy", "serve")


class Child(Protocol):
    """Child process, as `trio.Process` is one."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def send_signal(self, number: signal.Signals, /) -> None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int: ...


Start = Callable[[socket.socket], Awaitable[Child]]
"""Function that starts a process with this end of its channel. Raises NotStarted."""


class NotStarted(Exception):
    """The program that starts workers has ended."""

    def __init__(self, status: int) -> None:
        super().__init__(f"exit status {status}")
        self.status = status


class WorkerProcess:
    """Process that serves at a place. No other running worker has its number."""

    def __init__(self, number: int, place: int, admin: str, start: Start) -> None:
        """`admin`: Unix socket of its admin listener."""
        self.number, self.place, self.admin = number, place, admin
        self.reply: Callable[[channel.Body], Reply] = lambda _request: ({}, [])
        """Function that returns the response to a request."""
        self.ready = trio.Event()
        """Set once it accepts clients."""
        self.ended = trio.Event()
        self.status: int | None = None
        """Exit status, negative after a signal. None while it runs."""
        self.listens_at: set[Key] = set()
        """Listening sockets that it has."""
        self._start = start
        self._process: Child | None = None
        self._early: list[signal.Signals] = []
        """Signals of before the process existed."""

    @property
    def serves(self) -> bool:
        """True if it accepts clients, or still has some."""
        return self.ready.is_set() and not self.ended.is_set()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, as soon as there is a process, unless it has ended."""
        if self._process is None:
            self._early.append(number)
        elif self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def kill(self) -> None:
        """End it immediately."""
        self.signal(signal.SIGKILL)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def run(self) -> None:
        """Start the process, and respond to its requests until it ends. Kill it if cancelled."""
        try:
            await self._run()
        except NotStarted as error:
            self.status = error.status
        finally:  # also if the process cannot be started, because `ended` is waited for without a limit
            self.ended.set()

    async def _run(self) -> None:
        ours, theirs = channel.pair()
        with ours:
            with theirs:
                process = await self._start(theirs)
            self._process = process
            for number in self._early:
                self.signal(number)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._respond, ours)
                    self.status = await process.wait()
                    nursery.cancel_scope.cancel()
            finally:
                with trio.CancelScope(shield=True):
                    if process.returncode is None:
                        process.kill()
                    self.status = await process.wait()

    async def _respond(self, ours: socket.socket) -> None:
        while True:
            await trio.lowlevel.wait_readable(ours)
            try:
                received = channel.receive(ours)
                if received is None:
                    return
                channel.send(ours, *self.reply(received[0]))
            except OSError:  # the worker has ended, which `run` notices
                return


async def start_process(theirs: socket.socket) -> trio.Process:
    """Start a worker that loads the program itself: 2 s of CPU instead of milliseconds."""
    return await start_program(DESCRIPTOR, theirs)


async def start_program(variable: str, theirs: socket.socket) -> trio.Process:
    """Start the program without the signals of the terminal. This environment variable names its end of a channel."""
    return await trio.lowlevel.open_process(
        COMMAND,
        stdin=subprocess.DEVNULL,
        env=os.environ | {variable: str(theirs.fileno())},
        pass_fds=[theirs.fileno()],
        process_group=0,
    )
