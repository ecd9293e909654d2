"""Compare TLS that ends at the proxy with HAProxy and a plain connection: `python -m tests.bench.tls`; about a minute.

    python -m tests.bench.tls [--rounds N] [--requests N] [--beside CHECKOUT ...]

One client sends the smallest request that is forwarded unchanged, in TLS 1.3, to one real broker: one in flight, then
32. CPU of the proxy or of HAProxy (one thread) for a request in microseconds, as medians of interleaved rounds with
everything pinned to one core. `--beside`: a checkout with a .venv of its own.
"""

from __future__ import annotations

import argparse
import random
import shutil
import socket
import ssl
import statistics
import struct
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.front import Front

from tests.bench.measuring import cpu_seconds, pinned
from tests.support.brokers import OLD, Running
from tests.support.fleet import certificates
from tests.support.raw import until

DEPTHS = (1, 32)
FETCH = struct.pack(">hhih", 1, 11, 7, -1) + struct.pack(">iiiibiiiih", -1, 0, 1, 1 << 20, 0, 0, -1, 0, 0, 0)
"""Fetch v11 of no topic: the broker responds immediately."""
REQUEST = struct.pack(">i", len(FETCH)) + FETCH
NO_STATE: dict[str, Any] = {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}}
"""Settings of several proxies in front of one cluster, none of which is a standby."""
HAPROXY = """
global
    nbthread 1
defaults
    mode tcp
    timeout connect 5s
    timeout client 1m
    timeout server 1m
listen tls
    bind {host}:{port} ssl crt {pem} ssl-min-ver TLSv1.3
    server broker {target}
"""


@dataclass
class Way:
    """A way to the broker, and its CPU microseconds for a request by number of requests in flight."""

    name: str
    pid: int
    socket: socket.socket
    cpu_us: dict[int, list[float]] = field(default_factory=dict)

    def run(self, requests: int, depth: int) -> None:
        """Send requests with `depth` in flight, and measure."""
        before = cpu_seconds(self.pid)
        for _ in range(requests // depth):
            self.socket.sendall(REQUEST * depth)
            self._await_responses(depth)
        self.cpu_us.setdefault(depth, []).append((cpu_seconds(self.pid) - before) * 1e6 / requests)

    def _await_responses(self, count: int) -> None:
        received = b""
        while count:
            chunk = self.socket.recv(1 << 16)
            if not chunk:
                raise SystemExit(f"error: {self.name} closed the connection")
            received += chunk
            while len(received) >= 4 and len(received) >= (size := 4 + int.from_bytes(received[:4], "big")):
                received, count = received[size:], count - 1


def connected(port: int, tls: ssl.SSLContext | None) -> socket.socket:
    sock = socket.create_connection((HOST, port), 30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock if tls is None else tls.wrap_socket(sock)


def haproxy(folder: Path, files: dict[str, str], target: str) -> tuple[Child, int]:
    """Start HAProxy. Raises SystemExit if it is not installed."""
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if program is None:
        raise SystemExit("error: haproxy is needed (Debian: apt install haproxy)")
    (port,) = free_ports(1)
    pem, config = folder / "haproxy.pem", folder / "haproxy.cfg"
    pem.write_text(Path(files["cert_file"]).read_text() + Path(files["key_file"]).read_text())
    config.write_text(HAPROXY.format(host=HOST, port=port, pem=pem, target=target))
    child = Child([program, "-db", "-f", str(config)], folder / "haproxy.log")
    until(lambda: _accepts(port), "HAProxy")
    return child, port


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 1).close()
    except OSError:
        return False
    return True


def way_of(name: str, front: Front, port: int, tls: ssl.SSLContext | None) -> Way:
    assert front.child is not None
    return Way(name, front.child.pid, connected(port, tls))


def measure(folder: Path, beside: Sequence[Path], rounds: int, requests: int) -> list[Way]:
    files = certificates(folder)
    tls = ssl.create_default_context(cafile=files["ca_file"])
    tls.check_hostname = False
    served = NO_STATE | {"client_tls": {name: files[name] for name in ("cert_file", "key_file")}}
    with ExitStack() as stack:
        running = Running(folder)
        stack.callback(running.close)
        kafka = running.cluster(OLD)
        node = kafka.nodes[0].node_id
        child, port = haproxy(folder, files, kafka.bootstrap)
        stack.callback(child.kill)
        ways = [Way("HAProxy", child.pid, connected(port, tls))]
        for checkout in (None, *beside):
            command = None if checkout is None else [str(checkout.resolve() / ".venv" / "bin" / "kafka-share-proxy")]
            name = "proxy" if checkout is None else checkout.name
            secured = running.front(kafka.bootstrap, served, command=command)
            ways.append(way_of(name, secured, secured.first_port + node, tls))
        plain = running.front(kafka.bootstrap, NO_STATE)
        ways.append(way_of("proxy, plain", plain, plain.first_port + node, None))
        broker = kafka.nodes[0].child
        assert broker is not None
        with pinned([broker.pid, *(way.pid for way in ways)], 0):
            for round_number in range(rounds + 1):
                for way in random.sample(ways, len(ways)):
                    for depth in DEPTHS:
                        way.run(requests, depth)
                        if not round_number:
                            way.cpu_us.clear()
    return ways


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=3200)
    parser.add_argument("--beside", action="append", type=Path, default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        ways = measure(Path(name), options.beside, options.rounds, options.requests)
    first = {depth: statistics.median(ways[0].cpu_us[depth]) for depth in DEPTHS}
    for way in ways:
        for depth in DEPTHS:
            median = statistics.median(way.cpu_us[depth])
            print(
                f"{way.name:14} {depth:3} in flight {median:7.1f} us a request   x HAProxy {median / first[depth]:.2f}"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
