"""A load balancer in TCP mode that sends PROXY protocol headers of version 2: HAProxy, or else one of a few lines."""

from __future__ import annotations

import itertools
import shutil
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.wire.values import Address

from tests.support.proxy_headers import of_client
from tests.support.raw import until

SOURCE = "127.0.0.77"
"""Address that it dials from."""
CHUNK = 1 << 16
CONNECTIONS_MAX = 10_000
HAPROXY = """\
global
    maxconn 200
    stats socket {folder}/haproxy.sock
defaults
    mode tcp
    timeout connect 5s
    timeout client 120s
    timeout server 120s
frontend kafka
    bind {listen}
    default_backend proxies
backend proxies
    balance roundrobin
    source {source}
{servers}
"""


@contextmanager
def load_balancer(folder: Path, listen: Address, targets: Sequence[Address], options: str = "") -> Iterator[str]:
    """Run one in front of these proxies, and yield its name. `options`: further ones of HAProxy's servers."""
    folder.mkdir(parents=True, exist_ok=True)
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if program is None:
        with _relay(listen, targets):
            yield "relay"
        return
    servers = "".join(
        f"    server proxy{number} {target} send-proxy-v2 check inter 200ms {options}\n"
        for number, target in enumerate(targets)
    )
    config = folder / "haproxy.cfg"
    config.write_text(HAPROXY.format(folder=folder, listen=listen, source=SOURCE, servers=servers))
    child = Child([program, "-db", "-f", str(config)], folder / "haproxy.log")
    try:
        until(lambda: _accepts(listen) or child.status is not None, "HAProxy")
        assert child.status is None, child.output()
        yield "haproxy"
    finally:
        child.stop()


def _accepts(address: Address) -> bool:
    with suppress(OSError), socket.create_connection(address, 1):
        return True
    return False


@contextmanager
def _relay(listen: Address, targets: Sequence[Address]) -> Iterator[None]:
    listener = socket.create_server(listen)
    opened = [listener]
    threading.Thread(target=_accept, args=(listener, targets, opened), daemon=True).start()
    try:
        yield
    finally:
        for each in opened:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _accept(listener: socket.socket, targets: Sequence[Address], opened: list[socket.socket]) -> None:
    with suppress(OSError):
        for target in itertools.islice(itertools.cycle(targets), CONNECTIONS_MAX):
            client, (host, _) = listener.accept()
            opened.append(client)
            server = socket.create_connection(target, source_address=(SOURCE, 0))
            opened.append(server)
            server.sendall(of_client(host))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(CHUNK):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
