"""The command `conformance target` in a process, for clients in other languages."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

CONTROL = ("--control", "127.0.0.1:0")


@dataclass(frozen=True)
class TargetProcess:
    """A process with the addresses of its ready line."""

    process: subprocess.Popen[str]
    ready: dict[str, Any]

    @property
    def bootstrap(self) -> str:
        return str(self.ready["bootstrap"])

    @property
    def control(self) -> str:
        return str(self.ready["control"])

    def do(self, action: str, **values: Any) -> None:
        """Do an action of the control. Raises urllib.error.HTTPError."""
        with urllib.request.urlopen(f"{self.control}/{action}", json.dumps(values).encode()):
            pass

    def earliest(self, group: str) -> None:
        """Let a share group begin at the start of the log."""
        self.do("groups/configs", group=group, configs={"share.auto.offset.reset": "earliest"})

    def findings(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.control}/report") as page:
            findings: list[dict[str, Any]] = json.load(page)["findings"]
            return findings

    def rules(self) -> set[str]:
        """Return the ids of the rules that clients have not followed so far."""
        return {finding["rule"] for finding in self.findings()}


@contextmanager
def target_process(*flags: str) -> Iterator[TargetProcess]:
    """Run the command inside the block."""
    command = [sys.executable, "-m", "kafka_share_proxy", "conformance", "target", *flags]
    started = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with started:
        assert started.stdout is not None
        line = started.stdout.readline()
        try:
            yield TargetProcess(started, json.loads(line))
        finally:
            started.kill()
