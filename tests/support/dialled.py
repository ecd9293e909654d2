"""Which addresses the clients of this process dial, to catch one that leaks past the proxy."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path
from typing import Any

SAMPLE_S = 0.02
_CONNECTING = re.compile(r"ipv4#127\.0\.0\.1:(\d+)|//127\.0\.0\.1:(\d+)")


class DialledPorts:
    """While entered, notes the remote port of every TCP connection of this process, and what librdkafka says it dials.

    Give `settings` to librdkafka clients: their log names every attempt, also those that are refused immediately.
    """

    def __init__(self) -> None:
        self.ports: set[int] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._logger = logging.Logger("librdkafka")
        self._logger.addHandler(_Ports(self.ports))

    @property
    def settings(self) -> dict[str, Any]:
        return {"debug": "broker", "logger": self._logger}

    def __enter__(self) -> DialledPorts:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(5)

    def _sample(self) -> None:
        while not self._stopping.wait(SAMPLE_S):
            self.ports |= remote_ports()


class _Ports(logging.Handler):
    """Collects the ports that a log line says are connected to."""

    def __init__(self, ports: set[int]) -> None:
        super().__init__()
        self._ports = ports

    def emit(self, record: logging.LogRecord) -> None:
        for match in _CONNECTING.finditer(record.getMessage()):
            self._ports.add(int(match[1] or match[2]))


def remote_ports() -> set[int]:
    """Remote ports of this process's TCP connections that are open or being opened (Linux)."""
    own = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            own.add(str(entry.readlink()))
        except OSError:  # closed meanwhile
            continue
    ports = set()
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] in ("01", "02") and f"socket:[{fields[9]}]" in own:
            ports.add(int(fields[2].split(":")[1], 16))
    return ports
