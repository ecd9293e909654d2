"""The data plane with one port: the TLS server name selects the broker. And load balancers that name their clients."""

from __future__ import annotations

import ipaddress
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import trustme
from kafka_share_proxy.forwarding.admission import Entrance
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.loop.proxy_headers import ProxyHeaders
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address

from tests.forwarding.plane_world import FETCH, World, request, world
from tests.support.proxy_headers import LOCAL, header, of_client

CA = trustme.CA()
BOOTSTRAP, ADVICE = "kafka.example", "use kafka.example"
ONE, TWO = Address("one.test", 1), Address("two.test", 2)
CLIENT = "192.0.2.7"


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("*.kafka.example", BOOTSTRAP).configure_cert(context)
    return context


@contextmanager
def one_port(**options: Any) -> Iterator[World]:
    """A plane with brokers 1 and 2 on the port of the bootstrap listener."""
    tls = TlsContext(server_context())
    with world(client_tls=tls, entrance=Entrance(names_advice=ADVICE), **options) as plane_world:
        plane_world.port = plane_world.plane.ports.listen(
            UNKNOWN_NODE, "127.0.0.1", 0, lambda: [Address("any.test", 0)], BOOTSTRAP
        )
        plane_world.plane.ports.serve_by_name(1, "broker-1.Kafka.example", lambda: [ONE])
        plane_world.plane.ports.serve_by_name(2, "broker-2.kafka.example", lambda: [TWO])
        yield plane_world


def dial(plane_world: World, before: bytes = b"") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", plane_world.port))
    sock.sendall(before)
    sock.setblocking(False)
    return sock


def shake(
    plane_world: World,
    name: str | None,
    before: bytes = b"",
    context: ssl.SSLContext | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> ssl.SSLSocket:
    """A client after its handshake. Raises ssl.SSLError. `meanwhile` is called when the proxy has responded."""
    if context is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        CA.configure_trust(context)
        context.check_hostname = name is not None
    wrapped = context.wrap_socket(dial(plane_world, before), server_hostname=name, do_handshake_on_connect=False)

    def is_done() -> bool:
        try:
            wrapped.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    is_done()
    plane_world.iterate_until(lambda: select.select([wrapped], [], [], 0)[0])
    meanwhile()
    try:
        plane_world.iterate_until(is_done)
    except ssl.SSLError:
        wrapped.close()
        raise
    plane_world.peer(wrapped)
    return wrapped


def has_ended(client: ssl.SSLSocket) -> bool:
    try:
        return not client.recv(1)
    except ssl.SSLWantReadError:
        return False


def dialled(plane_world: World, client: ssl.SSLSocket) -> list[Address]:
    """Return where the first request of the client goes."""
    before = len(plane_world.dialled)
    client.send(request(FETCH, 11, 0))
    plane_world.iterate_until(lambda: len(plane_world.dialled) > before)
    return list(plane_world.dialled[-1])


@pytest.mark.parametrize(
    ("name", "target"),
    [("broker-1.kafka.example", ONE), ("BROKER-2.KAFKA.EXAMPLE", TWO), (BOOTSTRAP, Address("any.test", 0))],
)
def test_the_server_name_selects_the_broker(name: str, target: Address) -> None:
    with one_port() as plane_world:
        assert dialled(plane_world, shake(plane_world, name)) == [target]
        (connection,) = plane_world.plane.connections()
        assert connection.is_bootstrap is (name == BOOTSTRAP)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (None, "no TLS server name (SNI): use kafka.example"),
        ("broker-3.kafka.example", "unknown TLS server name 'broker-3.kafka.example': use kafka.example"),
    ],
)
def test_a_client_without_a_known_name_gets_an_alert_and_a_log_line(name: str | None, reason: str) -> None:
    with one_port() as plane_world:
        with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
            shake(plane_world, name)
        plane_world.iterate_until(lambda: plane_world.notes)
        assert plane_world.notes == [
            ("server-name-refused", {"client": "127.0.0.1", "node_id": UNKNOWN_NODE, "reason": reason})
        ]
        assert plane_world.plane.statistics().ended == {"server-name-refused": 1}


def test_brokers_come_and_go_by_name() -> None:
    with one_port() as plane_world:
        plane_world.plane.ports.close_listener(1)
        with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
            shake(plane_world, "broker-1.kafka.example")
        plane_world.plane.ports.serve_by_name(1, "broker-1.kafka.example", lambda: [TWO])
        assert dialled(plane_world, shake(plane_world, "broker-1.kafka.example")) == [TWO]


def test_a_broker_that_is_forgotten_during_the_handshake_ends_it() -> None:
    with one_port() as plane_world:
        client = shake(
            plane_world, "broker-1.kafka.example", meanwhile=lambda: plane_world.plane.ports.close_listener(1)
        )
        plane_world.iterate_until(lambda: plane_world.plane.is_idle)
        assert list(plane_world.plane.connections()) == []
        plane_world.iterate_until(lambda: select.select([client], [], [], 0)[0])
        with suppress(ConnectionResetError):
            plane_world.iterate_until(lambda: has_ended(client))


def test_a_renewed_certificate_keeps_the_names() -> None:
    """Contexts are replaced by a reload (loop/tls_context.py)."""
    with one_port() as plane_world:
        assert plane_world.plane.admission.client_tls is not None
        plane_world.plane.admission.client_tls.current = server_context()
        assert dialled(plane_world, shake(plane_world, "broker-1.kafka.example")) == [ONE]
        with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
            shake(plane_world, "broker-3.kafka.example")


def test_clients_with_certificates_are_verified_as_well() -> None:
    """Mutual TLS is independent of the name."""
    with one_port() as plane_world:
        assert plane_world.plane.admission.client_tls is not None
        verifying = plane_world.plane.admission.client_tls.current
        verifying.verify_mode = ssl.CERT_REQUIRED
        CA.configure_trust(verifying)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        CA.configure_trust(context)
        CA.issue_cert("client").configure_cert(context)
        assert dialled(plane_world, shake(plane_world, "broker-1.kafka.example", context=context)) == [ONE]
        shake(plane_world, "broker-1.kafka.example")  # TLS 1.3: the client is done before the server has verified
        plane_world.iterate_until(lambda: plane_world.notes)
        assert "client-protocol-error" in plane_world.events()


@contextmanager
def balanced(sources: str = "127.0.0.0/8", timeout_s: float = 60.0, **options: Any) -> Iterator[World]:
    """A plane whose clients from these addresses are load balancers."""
    with world(**options) as plane_world:
        plane_world.plane.admission._proxy_headers = ProxyHeaders(
            plane_world.reactor, [ipaddress.ip_network(sources)], timeout_s, "proxy_protocol.clients"
        )
        yield plane_world


def connect(plane_world: World, sent: bytes) -> socket.socket:
    sock = dial(plane_world, sent)
    plane_world.peer(sock)
    return sock


def test_a_client_of_a_load_balancer_has_its_own_address() -> None:
    with balanced() as plane_world:
        connect(plane_world, of_client(CLIENT) + request(FETCH, 11, 0))
        plane_world.iterate_until(lambda: plane_world.brokers)
        plane_world.brokers[0].expect(request(FETCH, 11, 0))
        assert [each.client_host for each in plane_world.plane.connections()] == [CLIENT]


def test_a_client_that_is_no_load_balancer_sends_no_header() -> None:
    """Only the addresses in the setting may name another client."""
    with balanced("192.0.2.0/24") as plane_world:
        connect(plane_world, request(FETCH, 11, 0))
        plane_world.iterate_until(lambda: plane_world.brokers)
        assert [each.client_host for each in plane_world.plane.connections()] == ["127.0.0.1"]


def test_the_header_precedes_tls() -> None:
    with one_port() as plane_world:
        plane_world.plane.admission._proxy_headers = ProxyHeaders(
            plane_world.reactor, [ipaddress.ip_network("127.0.0.1")], 60.0, "proxy_protocol.clients"
        )
        assert dialled(plane_world, shake(plane_world, "broker-2.kafka.example", of_client(CLIENT))) == [TWO]
        assert [each.client_host for each in plane_world.plane.connections()] == [CLIENT]
        with pytest.raises(ssl.SSLError):
            shake(plane_world, None, of_client("192.0.2.8"))
        plane_world.iterate_until(lambda: plane_world.notes)
        assert plane_world.notes[-1][1]["client"] == "192.0.2.8"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (request(FETCH, 11, 0), "begins without a PROXY protocol header"),
        (b"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n", "is of version 1"),
    ],
)
def test_bytes_that_are_no_header_close_the_connection_with_a_log_line(sent: bytes, reason: str) -> None:
    with balanced() as plane_world:
        connect(plane_world, sent)
        plane_world.iterate_until(lambda: plane_world.notes)
        ((event, context),) = plane_world.notes
        assert (event, context["client"], reason in context["reason"]) == ("proxy-header-refused", "127.0.0.1", True)
        assert (list(plane_world.plane.connections()), plane_world.plane.is_idle) == ([], True)


def test_limits_count_the_clients_and_not_the_load_balancer() -> None:
    with balanced(limits=Limits(connections_per_address=2)) as plane_world:
        for client in (CLIENT, CLIENT, "192.0.2.8", CLIENT):
            connect(plane_world, of_client(client))
        plane_world.iterate_until(lambda: plane_world.notes)
        assert [each.client_host for each in plane_world.plane.connections()] == [CLIENT, CLIENT, "192.0.2.8"]
        reason = "limits.connections_per_address (2) is reached"
        assert plane_world.notes == [("connection-limit", {"client": CLIENT, "reason": reason})]


def test_incomplete_headers_count_as_connections() -> None:
    """A load balancer that opens many of them cannot use up all descriptors."""
    with balanced(limits=Limits(connections=3)) as plane_world:
        for _ in range(4):
            connect(plane_world, of_client(CLIENT)[:20])
        plane_world.iterate_until(lambda: plane_world.notes)
        assert plane_world.notes[0][1]["reason"] == "limits.connections (3) is reached"
        assert not plane_world.plane.is_idle


def test_a_health_check_is_no_event_for_operators() -> None:
    """HAProxy's check sends LOCAL and leaves."""
    with balanced() as plane_world:
        connect(plane_world, header(LOCAL, 0, b"")).close()
        plane_world.iterate_until(lambda: plane_world.notes)
        assert plane_world.events() == ["connection-closed"]
        assert plane_world.notes[0][1]["client"] == "127.0.0.1"


def test_draining_ends_incomplete_headers() -> None:
    with balanced() as plane_world:
        waiting = connect(plane_world, b"")
        plane_world.iterate_until(lambda: not plane_world.plane.is_idle)
        plane_world.plane.admission.close()
        plane_world.iterate()
        assert (plane_world.plane.is_idle, plane_world.notes) == (True, [])
        assert waiting.recv(1) == b""
