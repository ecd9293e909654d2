"""Proxies of the tests, forked from a process that has loaded the program: imports are most of the CPU of a start.

A forked proxy runs the command `kafka-share-proxy serve` with its arguments, environment and output. Tests that are
about the start of the command make a `Front` or `Child` themselves, which run it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from kafka_share_proxy.localkafka.children import KILL_S, Child
from kafka_share_proxy.localkafka.front import installed_command

from tests.support import warm_process

LOOK_S = 0.01
"""Seconds between two looks at a process whose end is waited for."""


class _Forked:
    """A forked proxy, with the methods of `subprocess.Popen` that `Child` calls."""

    def __init__(self, warm: WarmProcess, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._warm = warm
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs. Its id is free once this has returned the status."""
        with self._lock:
            return self._look()

    def _look(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._warm.status_of(self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(LOOK_S)
        return status

    def send_signal(self, number: int) -> None:
        with self._lock:
            if self._look() is None:
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(15)

    def kill(self) -> None:
        self.send_signal(9)


class ForkedChild(Child):
    """A proxy that was forked, with the interface of one that was started."""

    def __init__(self, warm: WarmProcess, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.command = list(command)
        self.log = log
        self._process = cast("subprocess.Popen[bytes]", warm.fork(command, log, env))


class WarmProcess:
    """Process that has loaded the program."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", warm_process.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )  # fmt: skip
        self._end = ours
        self._lock = threading.Lock()
        self._forked: list[_Forked] = []

    def fork(self, command: Sequence[str], log: Path, env: Mapping[str, str]) -> _Forked:
        """Start a proxy whose output goes to the log."""
        arguments = [command[0], *command[len(installed_command()) :]]
        request = {"arguments": arguments, "environment": dict(env), "folder": str(Path.cwd())}
        with log.open("ab") as output:
            forked = _Forked(self, self._response(request, [output.fileno()]))
        self._forked.append(forked)
        return forked

    def status_of(self, pid: int) -> int | None:
        """Return the exit status of a proxy, None while it runs."""
        status: int | None = self._response({"pid": pid}, [])
        return status

    def _response(self, request: Mapping[str, Any], descriptors: list[int]) -> Any:
        with self._lock:
            warm_process.send(self._end, request, descriptors)
            received = warm_process.receive(self._end)
        assert received is not None, f"the process that forks proxies ended: {self._process.poll()}"
        return received[0]

    def close(self) -> list[str]:
        """End it and all its proxies. Return what was still running."""
        running = [f"proxy {each.pid}" for each in self._forked if each.poll() is None]
        self._end.close()
        self._process.wait(KILL_S)
        return running


_STARTED: list[WarmProcess] = []
_STARTING = threading.Lock()


def launch(command: Sequence[str], log: Path, env: Mapping[str, str]) -> Child:
    """Fork the proxy if the command is the installed one; otherwise run the command."""
    installed = installed_command()
    if sys.platform != "linux" or list(command[: len(installed)]) != installed:
        return Child(command, log, env)
    with _STARTING:
        if not _STARTED:
            _STARTED.append(WarmProcess())
    return ForkedChild(_STARTED[0], command, log, env)


def close() -> list[str]:
    """End what this test process started. Return what was still running."""
    return _STARTED.pop().close() if _STARTED else []
