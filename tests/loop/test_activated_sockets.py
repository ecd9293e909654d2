"""Sockets of a service manager."""

import os
import socket
import subprocess
import sys

import pytest
from kafka_share_proxy.loop.activated_sockets import ActivatedSockets, activated_sockets

PROGRAM = """
import os, socket
os.environ["LISTEN_PID"] = str(os.getpid())
from kafka_share_proxy.loop.activated_sockets import activated_sockets
sockets = activated_sockets()
(listening,) = sockets.bind("127.0.0.1", {port})
listening.setblocking(True)
client, _ = listening.accept()
client.sendall(",".join(sorted(name for name in os.environ if name.startswith("LISTEN"))).encode() or b"none")
"""


def test_clients_that_connected_before_the_process_are_served() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            program = f"import os; os.dup2({listening.fileno()}, 3)\n{PROGRAM.format(port=port)}"
            child = subprocess.Popen(
                [sys.executable, "-c", program],
                pass_fds=[listening.fileno()],
                env=os.environ | {"LISTEN_FDS": "1"},
            )
            assert client.recv(100) == b"none", "child processes must not take the sockets for theirs"
            assert child.wait(20) == 0


def test_an_address_without_such_a_socket_is_bound() -> None:
    (sock,) = ActivatedSockets().bind("127.0.0.1", 0)
    with sock:
        assert sock.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_a_socket_serves_its_address_and_one_on_all_addresses_any(host: str) -> None:
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        port = everywhere.getsockname()[1]
        sockets = ActivatedSockets([everywhere])
        (first,), (second,) = sockets.bind(host, port), sockets.bind(host, port, shares=True)
        with first, second:
            assert first.getsockname() == second.getsockname() == ("0.0.0.0", port)
            assert not first.getblocking()


def test_a_socket_of_another_address_is_not_used() -> None:
    with socket.create_server(("127.0.0.2", 0)) as other:
        port = other.getsockname()[1]
        (sock,) = ActivatedSockets([other]).bind("127.0.0.1", port)
        with sock:
            assert sock.getsockname() == ("127.0.0.1", port)


@pytest.mark.parametrize("environment", [{}, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_FDS": "2"}])
def test_sockets_passed_to_another_process_are_not_used(environment: dict[str, str]) -> None:
    assert activated_sockets(environment).addresses == []
    assert environment == {}
