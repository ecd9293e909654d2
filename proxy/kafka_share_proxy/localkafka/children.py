"""Child processes that are stopped by their own handle, or by the kernel if this process dies first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_S = 15.0
"""Seconds to end after SIGTERM before a process is killed."""
KILL_S = 30.0
"""Seconds to end after SIGKILL. Longer means that the kernel cannot end the process."""

_GUARD = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None)
if hasattr(libc, "prctl"):
    libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: kept over exec
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent is gone")
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it, and what they start
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Child:
    """A running command whose output (both streams) is written to a file."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.command = list(command)
        self.log = log
        guarded = [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), *command]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                guarded, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=env
            )

    @property
    def pid(self) -> int:
        """Process id of the command, by which the guard process replaces itself."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while the process runs."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> int:
        """Wait for the end, and return the exit status. Raises subprocess.TimeoutExpired."""
        return self._process.wait(timeout_s)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process immediately. Raises subprocess.TimeoutExpired."""
        self._process.kill()
        self._process.wait(KILL_S)

    def stop(self, timeout_s: float = STOP_S) -> int:
        """Send SIGTERM, then SIGKILL. Return the exit status."""
        self._process.terminate()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait(KILL_S)

    def output(self, lines_max: int = 60) -> str:
        """Return the last lines of output."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines_max:])
