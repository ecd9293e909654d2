"""Kafka's administration tools in one Java for many (tests/clients/admintools)."""

from __future__ import annotations

import subprocess
from threading import Lock, Timer
from types import TracebackType
from typing import NamedTuple

from tests.support.java_programs import java_program
from tests.support.java_tools import RUN_S, class_of

SEPARATOR = "\x1f"


class Printed(NamedTuple):
    status: int
    output: str
    errors: str


class ToolShell:
    """Runs one tool after the other, for any caller. Threads left by a tool end with the shell."""

    def __init__(self, release: str = "4.3.0") -> None:
        self._lock = Lock()
        self._java = subprocess.Popen(
            java_program("AdminTools", release), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )  # fmt: skip

    def __enter__(self) -> ToolShell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._java.kill()
        self._java.communicate()

    def run(self, tool: str, *arguments: str) -> Printed:
        """Return the output of a tool; raises AssertionError when Java ends, or the tool takes longer than RUN_S
        seconds.
        """
        with self._lock:
            return self._run(tool, *arguments)

    def _run(self, tool: str, *arguments: str) -> Printed:
        requests, responses = self._java.stdin, self._java.stdout
        assert requests is not None
        assert responses is not None
        requests.write((SEPARATOR.join((class_of(tool), *arguments)) + "\n").encode())
        requests.flush()
        limit = Timer(RUN_S, self._java.kill)
        limit.start()
        try:
            header = responses.readline().split()
            assert len(header) == 3, f"Java ended, or was ended after {RUN_S} s, in {tool} {arguments}"
            status, size, complaints = map(int, header)
            return Printed(status, responses.read(size).decode(), responses.read(complaints).decode())
        finally:
            limit.cancel()

    def prints(self, tool: str, *arguments: str) -> str:
        """Return what a tool prints that ends with status 0."""
        done = self.run(tool, *arguments)
        assert done.status == 0, f"{tool} {arguments} ended with {done.status}:\n{done.output}\n{done.errors}"
        return done.output
