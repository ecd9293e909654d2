"""Network of one Kubernetes node inside a network namespace: a bridge, a namespace for each pod, Services as relays.

The process that uses it must already be in separate network and mount namespaces (`run_inside`). Nothing outside of
them changes.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pytest
from kafka_share_proxy.localkafka.children import Child

from tests.support.raw import until

CHECKOUT = Path(__file__).resolve().parents[2]
INSIDE = "KSP_TEST_INSIDE_NODE"
NODE_IP = "10.244.0.1"
POD_IP = "10.244.0.{}"
TOOLS = ("unshare", "nsenter", "ip", "mount")
TRIAL = """
set -e
ip link set lo up
ip link add br0 type bridge
mount -t tmpfs none /mnt
mkdir /mnt/lower /mnt/upper /mnt/work /mnt/merged
mount -t overlay overlay -o lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work /mnt/merged
"""
"""Script that needs what the node and its pods need."""
CHUNK = 1 << 16
CONNECTIONS_MAX = 100_000
DIAL_S = 5.0


def missing() -> str:
    """Return what this machine lacks for namespaces; empty if nothing."""
    lacks = [f"no {tool}" for tool in TOOLS if shutil.which(tool) is None]
    if lacks:
        return ", ".join(lacks)
    tried = subprocess.run([*namespaces(), "sh", "-c", TRIAL], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no namespaces ({tried.stderr.strip()})"


def namespaces() -> list[str]:
    """Return the command that runs another one in new namespaces."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--net", "--mount", *user]


def run_inside(file: Path, timeout_s: float) -> tuple[int, str]:
    """Run a file of tests in the namespaces of a node. Return the exit status and the output of pytest."""
    if lacks := missing():
        pytest.skip(f"needs Linux namespaces: {lacks}")
    command = [
        *namespaces(),
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:randomly",
        "-p",
        "no:xdist",
        "-rP",
        str(file),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "KSP_"))}
    done = subprocess.run(
        command, cwd=CHECKOUT, env=environment | {INSIDE: "1"}, capture_output=True, text=True, timeout=timeout_s,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


class Node:
    """The network of this process: `lo`, and a bridge with the pods."""

    def __init__(self, folder: Path) -> None:
        assert os.environ.get(INSIDE), "run it with tests.support.node_network.run_inside"
        self.folder = folder
        self._hosts = folder / "hosts"
        self._hosts.write_text(f"127.0.0.1 localhost\n{NODE_IP} node\n")
        self._pods = 0
        for command in (
            "ip link set lo up",
            "ip link add br0 type bridge",
            f"ip addr add {NODE_IP}/24 dev br0",
            "ip link set br0 up",
        ):
            _run(command)
        _run(f"mount --bind {self._hosts} /etc/hosts")  # of this mount namespace only

    @property
    def hosts(self) -> Path:
        """File with the names of Services and pods, which every pod has as /etc/hosts."""
        return self._hosts

    def add_name(self, name: str, address: str) -> None:
        """Let a name resolve, in place of a name server."""
        lines = [line for line in self._hosts.read_text().splitlines() if name not in line.split()[1:]]
        self._hosts.write_text("\n".join([*lines, f"{address} {name}", ""]))

    def add_service_address(self, address: str) -> None:
        """Give the node one more address, for a Service."""
        _run(f"ip addr add {address}/24 dev br0")

    def sandbox(self) -> Sandbox:
        """Create the network namespace of a pod, with an address on the bridge."""
        self._pods += 1
        return Sandbox(self.folder / f"sandbox-{self._pods}.log", self._pods, POD_IP.format(10 + self._pods))


class Sandbox:
    """Network namespace of one pod, held open by a process (the pause container)."""

    def __init__(self, log: Path, number: int, address: str) -> None:
        self.address = address
        self._child = Child(["unshare", "--net", "sleep", "infinity"], log)
        own = _namespace("self")
        until(lambda: _namespace(self._child.pid) != own, "the namespace of a pod", 10)
        pid = self._child.pid
        _run(f"ip link add veth{number} type veth peer name eth0 netns {pid}")
        _run(f"ip link set veth{number} master br0 up")
        for command in (f"ip addr add {address}/24 dev eth0", "ip link set eth0 up", "ip link set lo up"):
            _run(f"{' '.join(self.enter)} {command}")

    @property
    def enter(self) -> list[str]:
        """Command that runs another one in this namespace."""
        return ["nsenter", "--net", "--target", str(self._child.pid), "--"]

    def close(self) -> None:
        """End the namespace; the kernel removes its interfaces."""
        self._child.kill()


def _namespace(pid: int | str) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def _run(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"


class Service:
    """Userspace relay from the ports of a Service to the ready endpoints, chosen at random for each connection."""

    def __init__(self, address: str, ports: Mapping[int, int], endpoints: Callable[[], Sequence[str]]) -> None:
        """`ports`: of the Service, to those of the endpoints."""
        self._endpoints = endpoints
        self._listeners = [(socket.create_server((address, port), backlog=512), ports[port]) for port in ports]
        self.connections = 0
        self.refused = 0
        """Connections that no endpoint accepted."""

    def __enter__(self) -> Service:
        for listener, target in self._listeners:
            threading.Thread(target=self._accept, args=(listener, target), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for listener, _ in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket, port: int) -> None:
        with suppress(OSError):
            for _ in range(CONNECTIONS_MAX):
                client = listener.accept()[0]
                self.connections += 1
                threading.Thread(target=self._serve, args=(client, port), daemon=True).start()

    def _serve(self, client: socket.socket, port: int) -> None:
        server = self._dial(port)
        if server is None:
            self.refused += 1
            client.close()
            return
        back = threading.Thread(target=_relay, args=(server, client), daemon=True)
        back.start()
        _relay(client, server)
        back.join()
        client.close()
        server.close()

    def _dial(self, port: int) -> socket.socket | None:
        endpoints = list(self._endpoints())
        if not endpoints:
            return None
        with suppress(OSError):
            return socket.create_connection((random.choice(endpoints), port), timeout=DIAL_S)
        return None


def _relay(source: socket.socket, sink: socket.socket) -> None:
    source.settimeout(None)
    with suppress(OSError):
        while data := source.recv(CHUNK):
            sink.sendall(data)
    for sock in (source, sink):
        with suppress(OSError):
            sock.shutdown(socket.SHUT_WR if sock is sink else socket.SHUT_RD)
