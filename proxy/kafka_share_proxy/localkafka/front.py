"""`kafka-share-proxy serve` as a separate process between clients and a cluster."""

from __future__ import annotations

import http.client
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.children import Child

READY_S = 120.0
"""Seconds that the proxy may take to become ready."""
NODE_IDS = 10
"""Ports reserved for brokers with the node ids 0..9."""

Launch = Callable[[Sequence[str], Path, Mapping[str, str]], Child]
"""Starts a command with an environment; its output goes to the file."""


class FrontError(Exception):
    """The proxy did not start or did not end well. The text contains its log."""


class Front:
    """A running proxy."""

    def __init__(
        self,
        upstream: str,
        folder: Path,
        settings: Mapping[str, Any] | None = None,
        files_max: int | None = None,
        command: Sequence[str] | None = None,
        launch: Launch = Child,
    ) -> None:
        """`settings`: additional keys of its YAML file. `files_max`: its hard limit of open files, None to inherit.
        `command`: replaces the installed one. `launch`: starts the command.
        """
        ports = free_ports(NODE_IDS + 2)
        self.port, self.first_port, self.admin_port = ports[0], ports[1], ports[-1]
        self.folder = folder
        self.settings: dict[str, Any] = {"upstream": {"bootstrap": upstream}, "listen": self.bootstrap}
        self.settings |= {"first_port": self.first_port, "admin": f"{HOST}:{self.admin_port}", "drain_s": 2}
        self.settings |= settings or {}
        """Settings of the next start."""
        self.child: Child | None = None
        self._files_max = files_max
        self._launch = launch
        self.command = list(installed_command() if command is None else command)
        """Command line of the next start."""

    @property
    def bootstrap(self) -> str:
        """Bootstrap address for clients."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """File with all output of the proxy."""
        return self.folder / "proxy.log"

    def __enter__(self) -> Front:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the proxy. Raises FrontError for a non-zero exit status, unless an exception is already propagating."""
        status = self.stop()
        if status and error is None:
            raise FrontError(f"the proxy ended with status {status}:\n{self.output()}")

    def start(self) -> None:
        """Start the proxy, and wait until it serves, share groups included. Raises FrontError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "proxy.yaml"
        config.write_text(yaml.safe_dump(self.settings))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KSP_")}
        command = [*self.command, "serve", "--config", str(config)]
        if self._files_max is not None:
            command = ["sh", "-c", f'ulimit -n {self._files_max}; exec "$0" "$@"', *command]
        self.child = self._launch(command, self.log, environment)
        try:
            self._wait_ready()
        except BaseException:
            self.child.kill()
            raise

    def _wait_ready(self) -> None:
        end = time.monotonic() + READY_S
        while self.child is not None and not self._serves():
            if self.child.status is not None:
                raise FrontError(f"the proxy ended with status {self.child.status}:\n{self.output()}")
            if time.monotonic() > end:
                raise FrontError(f"the proxy was not ready after {READY_S:.0f} s:\n{self.output()}")
            time.sleep(0.05)

    def _serves(self) -> bool:
        """True if it forwards, and serves share groups or lacks only what an operator can configure."""
        if not self.send_request("/readyz")[0]:
            return False
        ready, text = self.send_request("/readyz/share-groups")
        return ready or '"reasons": []' in text

    def send_request(self, path: str) -> tuple[bool, str]:
        """Return (True if the status is 200, the text or the error)."""
        connection = http.client.HTTPConnection(HOST, self.admin_port, timeout=5)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status == 200, response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return False, str(error)
        finally:
            connection.close()

    def stop(self) -> int:
        """Stop the proxy with SIGTERM. Return its exit status."""
        return self.child.stop() if self.child is not None else 0

    def kill(self) -> None:
        """Crash the proxy."""
        if self.child is not None:
            self.child.kill()

    def output(self) -> str:
        """Return the last lines of its output."""
        return self.child.output() if self.child is not None else ""


def installed_command() -> list[str]:
    script = Path(sys.executable).with_name("kafka-share-proxy")
    return [str(script)] if script.exists() else [sys.executable, "-m", "kafka_share_proxy"]
