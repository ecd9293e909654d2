"""Listening sockets that stay open while workers are replaced."""

import errno
import socket

import pytest
from kafka_share_proxy.app.workers.listening_sockets import ListeningSockets
from kafka_share_proxy.localkafka.addresses import HOST, free_ports


def test_all_places_share_a_port_and_each_keeps_its_sockets() -> None:
    sockets, (port,) = ListeningSockets(), free_ports(1)
    first, second = sockets.open(0, HOST, port), sockets.open(1, HOST, port)
    assert [sock.getsockname() for sock in first] == [sock.getsockname() for sock in second]
    assert sockets.open(0, HOST, port) is first
    sockets.close()


def test_a_connection_waits_for_the_next_worker_of_its_place() -> None:
    sockets, (port,) = ListeningSockets(), free_ports(1)
    (listening,) = sockets.open(0, HOST, port)
    listening.dup().close()  # a worker that ends
    with socket.create_connection((HOST, port), timeout=5) as client:
        listening.settimeout(5)
        accepted, _ = listening.accept()
        with accepted:
            accepted.sendall(b"served")
            assert client.recv(6) == b"served"
    sockets.close()


def test_a_port_of_another_program_is_refused_even_if_that_shares_it() -> None:
    (port,) = free_ports(1)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind((HOST, port))
        other.listen()
        with pytest.raises(OSError, match=f"cannot listen on {HOST}:{port}") as refused:
            ListeningSockets().open(0, HOST, port)
    assert refused.value.errno == errno.EADDRINUSE


def test_sockets_that_no_worker_uses_are_closed() -> None:
    sockets, (old, new) = ListeningSockets(), free_ports(2)
    sockets.open(0, HOST, old)
    (new_socket,) = sockets.open(0, HOST, new)
    sockets.close_others({(0, HOST, new)})
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, old), timeout=5)
    assert sockets.open(0, HOST, new) == [new_socket]
    sockets.close()
