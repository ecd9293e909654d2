"""Listening sockets of the loop."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop import listeners
from kafka_share_proxy.loop.listeners import Listener, bind, bind_local
from kafka_share_proxy.loop.reactor import Reactor


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    new_reactor = Reactor(new_pump)
    yield new_reactor
    new_reactor.shut()


def iterate_until(reactor: Reactor, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        reactor.iterate(0.01)


def test_binding_says_which_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: ") as caught:
            bind("127.0.0.1", port)
    assert caught.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize("port", [-1, 65536, 70_000])
def test_there_are_no_ports_above_65535(port: int) -> None:
    with pytest.raises(OSError, match="ports end at 65535"):
        bind("127.0.0.1", port)


def test_host_of_another_machine_is_a_clear_error() -> None:
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1:9092"):
        bind("192.0.2.1", 9092)


def test_connections_are_accepted_until_closed(reactor: Reactor) -> None:
    accepted: list[tuple[socket.socket, str]] = []
    (sock,) = bind("127.0.0.1", 0)
    listener = Listener(reactor, sock, lambda client, host: accepted.append((client, host)), print)
    clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(5)]
    iterate_until(reactor, lambda: len(accepted) == 5)
    assert {host for _, host in accepted} == {"127.0.0.1"}
    assert all(client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for client, _ in accepted)
    listener.close()
    listener.close()
    reactor.iterate(0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", listener.port))
    for closing in (*clients, *(client for client, _ in accepted)):
        closing.close()


def test_sockets_that_share_an_address_each_get_connections(reactor: Reactor) -> None:
    first = bind("127.0.0.1", 0, shares=True)
    port = first[0].getsockname()[1]
    second = bind("127.0.0.1", port, shares=True)
    accepted: list[int] = []
    listeners = [
        Listener(reactor, sock, lambda client, _host, number=number: (client.close(), accepted.append(number)), print)
        for number, (sock,) in enumerate((first, second))
    ]
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
    iterate_until(reactor, lambda: len(accepted) == 40)
    assert set(accepted) == {0, 1}
    for closing in (*clients, *listeners):
        closing.close()
    reactor.iterate(0)


def test_a_unix_socket_replaces_one_that_another_process_left(reactor: Reactor, tmp_path: Path) -> None:
    path, accepted = str(tmp_path / "links"), []
    bind_local(path).close()
    listener = Listener(reactor, bind_local(path), lambda client, host: accepted.append((client, host)), print)
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    iterate_until(reactor, lambda: accepted)
    assert (accepted[0][1], listener.port) == ("", 0)
    for closing in (client, accepted[0][0], listener):
        closing.close()
    reactor.iterate(0)


class Scarce:
    """A listening socket in a process that has no descriptor left for a while."""

    def __init__(self, real: socket.socket, failures: int) -> None:
        self.real, self.failures = real, failures
        self.tries = 0

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        self.tries += 1
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self.real.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)


def test_without_descriptors_it_pauses_reports_it_and_continues(
    reactor: Reactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "PAUSE_S", 0.1)
    troubles: list[Exception] = []
    accepted: list[socket.socket] = []
    (sock,) = bind("127.0.0.1", 0)
    scarce = Scarce(sock, failures=2)
    listener = Listener(reactor, scarce, lambda client, _host: accepted.append(client), troubles.append)  # type: ignore[arg-type]
    client = socket.create_connection(("127.0.0.1", listener.port))
    iterate_until(reactor, lambda: accepted)
    assert len(troubles) == 2
    assert scarce.tries <= 4  # not one for each turn of the loop
    listener.close()
    reactor.iterate(0)
    client.close()
    accepted[0].close()


def test_one_that_is_closed_while_it_pauses_stays_closed(reactor: Reactor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "PAUSE_S", 0.01)
    (sock,) = bind("127.0.0.1", 0)
    scarce = Scarce(sock, failures=1)
    troubles: list[Exception] = []
    listener = Listener(reactor, scarce, lambda _client, _host: None, troubles.append)  # type: ignore[arg-type]
    client = socket.create_connection(("127.0.0.1", listener.port))
    iterate_until(reactor, lambda: troubles)
    listener.close()
    start = time.monotonic()
    iterate_until(reactor, lambda: time.monotonic() > start + 0.05)
    assert scarce.tries == 1
    client.close()
