"""TLS on either side, in the same loop and the same shape as plain text."""

from __future__ import annotations

import contextlib
import gc
import random
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trustme
from kafka_share_proxy.brokers.dialling import Dialled
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.loop import reactor
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.loop.transports import RECORDS_PER_READ
from kafka_share_proxy.wire.values import Address

from tests.forwarding.plane_world import FETCH, LOCAL, METADATA, Peer, World, produce, request, response, some_routes

CA = trustme.CA()
OTHER_CA = trustme.CA()


def server_context(ca: trustme.CA = CA, *, clients_by: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("broker.test", "proxy.test").configure_cert(context)
    if clients_by is not None:
        clients_by.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(*, shows: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    CA.configure_trust(context)
    if shows is not None:
        shows.issue_cert("client.test").configure_cert(context)
    return context


class TlsPeer(Peer):
    """A peer that speaks TLS by the standard library's own socket."""

    def __init__(self, world: World, sock: socket.socket, context: ssl.SSLContext, **options: Any) -> None:
        sock.setblocking(False)
        wrapped = context.wrap_socket(sock, do_handshake_on_connect=False, **options)
        super().__init__(world, wrapped)

    def take(self) -> bytearray:
        try:
            while chunk := self.sock.recv(1 << 16):
                self.data += chunk
            self.ended = True
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.ended = True
        return self.data

    def send(self, data: bytes) -> None:
        view = memoryview(data)

        def sent() -> bool:
            nonlocal view
            try:
                view = view[self.sock.send(view[:16384]) :]
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                for peer in self.world.peers:
                    if peer is not self and peer.sock.fileno() >= 0:
                        peer.take()
            return not view

        self.world.iterate_until(sent)

    def shake(self) -> None:
        """Finish the handshake."""

        def shaken() -> bool:
            try:
                self.sock.do_handshake()  # type: ignore[attr-defined]  # an SSLSocket
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return False
            return True

        self.world.iterate_until(shaken)


class TlsWorld(World):
    """Clients, brokers or both speak TLS."""

    def __init__(
        self,
        *,
        clients: ssl.SSLContext | None = None,
        brokers: ssl.SSLContext | None = None,
        target: str = "broker.test",
        upstream: ssl.SSLContext | None = None,
        **options: Any,
    ) -> None:
        self.broker_context = brokers
        self.target = Address(target, 9093)
        dials = upstream or (client_context() if brokers is not None else None)
        client_tls, upstream_tls = (None if each is None else TlsContext(each) for each in (clients, dials))
        super().__init__(client_tls=client_tls, upstream_tls=upstream_tls, **options)

    def dial(self, targets: Any, done: Callable[[Dialled | OSError], None]) -> Callable[[], None]:
        if self.broker_context is None:
            return super().dial(targets, done)

        def finish() -> None:
            ours, theirs = socket.socketpair()
            self.brokers.append(TlsPeer(self, theirs, self.broker_context, server_side=True))
            self.peers.append(self.brokers[-1])
            done(Dialled(ours, self.target))

        self.reactor.call_soon(self, finish)
        return lambda: None

    def tls_client(self, context: ssl.SSLContext | None = None, name: str = "proxy.test") -> TlsPeer:
        sock = socket.create_connection(("127.0.0.1", self.port))
        client = TlsPeer(self, sock, context or client_context(), server_hostname=name)
        self.peers.append(client)
        return client


@pytest.fixture
def make() -> Iterator[Callable[..., TlsWorld]]:
    worlds: list[TlsWorld] = []

    def build(**options: Any) -> TlsWorld:
        worlds.append(TlsWorld(**options))
        return worlds[-1]

    yield build
    for world in worlds:
        world.close()


def talk(w: TlsWorld, client: Peer) -> Peer:
    """One request and its response; the broker of the connection."""
    before = len(w.brokers)
    client.send(request(FETCH, 11, 1, b"question"))
    w.iterate_until(lambda: len(w.brokers) > before)
    broker = w.brokers[-1]
    if isinstance(broker, TlsPeer):
        broker.shake()
    broker.expect(request(FETCH, 11, 1, b"question"))
    broker.send(response(1, b"answer"))
    client.expect(response(1, b"answer"))
    return broker


SIDES = {
    "clients": lambda: {"clients": server_context()},
    "brokers": lambda: {"brokers": server_context()},
    "both": lambda: {"clients": server_context(), "brokers": server_context()},
}


def opened(w: TlsWorld) -> Peer:
    if w.plane.admission.client_tls is None:
        return w.client()
    client = w.tls_client()
    client.shake()
    return client


@pytest.mark.parametrize("side", SIDES)
def test_requests_and_responses_pass(make: Callable[..., TlsWorld], side: str) -> None:
    w = make(**SIDES[side]())
    client = opened(w)
    broker = talk(w, client)
    client.send(request(METADATA, 9, 2))
    broker.expect(request(METADATA, 9, 2))
    broker.send(response(2, b"rewritten"))
    client.expect(response(2, b"REWRITTEN"))


@pytest.mark.parametrize("side", SIDES)
def test_large_frames_pass_both_ways_under_back_pressure(make: Callable[..., TlsWorld], side: str) -> None:
    w = make(**SIDES[side]())
    client = opened(w)
    broker = talk(w, client)
    body = random.Random(4).randbytes(5_000_000)
    client.send(request(FETCH, 11, 2, body))
    assert broker.receive(len(body) + 12) == request(FETCH, 11, 2, body)
    broker.send(response(2, body))
    assert client.receive(len(body) + 8) == response(2, body)


@pytest.mark.parametrize("side", SIDES)
def test_many_small_frames_pass_in_order(make: Callable[..., TlsWorld], side: str) -> None:
    w = make(**SIDES[side]())
    client = opened(w)
    broker = talk(w, client)
    burst = b"".join(request(FETCH, 11, n, bytes(n % 50)) for n in range(2000))
    client.send(burst)
    broker.expect(burst)
    responses = b"".join(response(n, bytes(n % 70)) for n in range(2000))
    broker.send(responses)
    client.expect(responses)


@pytest.mark.parametrize("side", SIDES)
def test_the_end_passes_both_ways(make: Callable[..., TlsWorld], side: str) -> None:
    w = make(**SIDES[side]())
    client = opened(w)
    broker = talk(w, client)
    client.close()
    broker.expect_end()
    second = opened(w)
    broker = talk(w, second)
    broker.send(response(9)[:0] + b"")
    broker.close()
    second.expect_end()


def test_what_a_leaving_client_sent_reaches_a_broker_that_is_slow_to_read(make: Callable[..., TlsWorld]) -> None:
    w = make(clients=server_context(), brokers=server_context())
    client = opened(w)
    broker = talk(w, client)
    records = b"".join(produce(n, 0, 9000) for n in range(300))
    sent = 0

    def send() -> bool:
        nonlocal sent
        with contextlib.suppress(ssl.SSLWantWriteError):
            sent += client.sock.send(records[sent : sent + 16384])
        return sent == len(records)

    w.iterate_until(send)
    client.close()
    assert broker.receive(len(records)) == records
    broker.expect_end()


def test_a_slow_client_gets_the_last_bytes_of_a_broker_that_has_closed(make: Callable[..., TlsWorld]) -> None:
    w = make(clients=server_context())
    client = opened(w)
    broker = talk(w, client)
    client.send(request(FETCH, 11, 2))
    broker.receive(12)
    whole = response(2, random.Random(5).randbytes(20_000_000))
    sent = 0
    for _ in range(300):
        try:
            sent += broker.sock.send(memoryview(whole)[sent:])
        except BlockingIOError:
            w.iterate()
    assert sent < len(whole)
    broker.close()
    assert client.receive(sent) == whole[:sent]
    client.expect_end()


def test_a_local_request_is_served_over_tls_and_a_leaving_client_is_noticed(make: Callable[..., TlsWorld]) -> None:
    async def handle(call: Any) -> bytes:
        return response(call.correlation_id, bytes(3_000_000 if call.correlation_id < 3 else 30_000_000))

    w = make(clients=server_context(), routes=some_routes(local=handle))
    client = opened(w)
    client.send(request(LOCAL, 1, 1) + request(LOCAL, 1, 2))
    for correlation_id in (1, 2):
        assert client.receive(3_000_008) == response(correlation_id, bytes(3_000_000))
    assert w.plane.budget.used == 0
    client.send(request(LOCAL, 1, 3))
    w.iterate_until(lambda: w.plane.budget.used)
    client.reset()
    w.iterate_until(lambda: not w.plane.statistics().connections)
    assert w.plane.budget.used == 0


def test_plain_text_on_a_tls_port_is_a_clear_note(make: Callable[..., TlsWorld]) -> None:
    w = make(clients=server_context())
    client = w.client()
    client.send(request(FETCH, 11, 1, bytes(50)))
    w.iterate_until(lambda: w.events())
    assert w.events() == ["client-protocol-error"]
    assert "TLS handshake failed" in w.reason()


def test_a_broker_whose_certificate_names_another_host_is_refused(make: Callable[..., TlsWorld]) -> None:
    w = make(brokers=server_context(), target="elsewhere.test")
    client = w.client()
    client.send(request(FETCH, 11, 1))
    w.iterate_until(lambda: w.brokers)
    with pytest.raises((ssl.SSLError, OSError)):
        w.brokers[0].shake()  # type: ignore[attr-defined]
    client.expect_end()
    assert w.events() == ["upstream-protocol-error"]
    assert "ertificate" in w.reason() or "CERTIFICATE" in w.reason()


def test_a_broker_whose_certificate_has_no_known_authority_is_refused(make: Callable[..., TlsWorld]) -> None:
    w = make(brokers=server_context(OTHER_CA))
    client = w.client()
    client.send(request(FETCH, 11, 1))
    w.iterate_until(lambda: w.brokers)
    with pytest.raises((ssl.SSLError, OSError)):
        w.brokers[0].shake()  # type: ignore[attr-defined]
    client.expect_end()


def test_a_client_without_the_required_certificate_is_refused(make: Callable[..., TlsWorld]) -> None:
    w = make(clients=server_context(clients_by=CA))
    with_one = w.tls_client(client_context(shows=CA))
    with_one.shake()
    talk(w, with_one)
    without = w.tls_client()
    with contextlib.suppress(OSError):
        without.shake()  # TLS 1.3: the client's part is over before the server has judged its certificate
    w.iterate_until(lambda: w.events() == ["client-protocol-error"])


def test_a_client_that_does_not_finish_its_handshake_is_closed(make: Callable[..., TlsWorld]) -> None:
    w = make(clients=server_context(), limits=Limits(tls_handshake_s=0.1))
    client = w.client()
    client.expect_end()
    assert "timed out" in w.reason()


def test_a_broker_that_does_not_finish_its_handshake_ends_the_client(make: Callable[..., TlsWorld]) -> None:
    w = make(brokers=server_context(), limits=Limits(dial_timeout_s=0.1))
    client = w.client()
    client.send(request(FETCH, 11, 1))
    client.expect_end()
    assert "timed out" in w.reason()


@pytest.mark.parametrize("size", [1, 5, 100])
def test_ciphertext_cut_anywhere_is_put_together(make: Callable[..., TlsWorld], size: int) -> None:
    w = make(clients=server_context())
    sock = socket.create_connection(("127.0.0.1", w.port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer = w.peer(sock)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context().wrap_bio(incoming, outgoing, server_hostname="proxy.test")

    def trickle() -> None:
        data = outgoing.read()
        for at in range(0, len(data), size):
            peer.send(data[at : at + size])
            w.iterate()

    def shaken() -> bool:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            trickle()
            incoming.write(bytes(peer.take()))
            peer.data.clear()
            return False
        trickle()
        return True

    w.iterate_until(shaken)
    tls.write(request(FETCH, 11, 1, b"body"))
    trickle()
    w.iterate_until(lambda: w.brokers)
    w.brokers[0].expect(request(FETCH, 11, 1, b"body"))


def test_garbage_after_the_handshake_ends_that_connection_only(make: Callable[..., TlsWorld]) -> None:
    w = make(clients=server_context())
    client, other = opened(w), opened(w)
    talk(w, client)
    talk(w, other)
    raw = socket.socket(fileno=client.sock.detach())
    raw.send(struct.pack(">BHH", 0x17, 0x0303, 40) + bytes(40))
    w.iterate_until(lambda: w.plane.statistics().connections == 1)
    raw.close()
    other.send(request(FETCH, 11, 2))
    w.brokers[1].expect(request(FETCH, 11, 2))


def test_many_tiny_records_of_one_client_do_not_keep_the_loop(
    make: Callable[..., TlsWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte in each TLS record: a few of them at a time, and all of them in the end."""
    monkeypatch.setattr(reactor, "SPREAD_S", 0.0)
    w = make(clients=server_context())
    client = opened(w)
    data = request(FETCH, 11, 1, bytes(3000))
    for byte in data:
        assert client.sock.send(bytes((byte,))) == 1
    byte_counts = []
    statistics = w.plane.statistics
    while not byte_counts or byte_counts[-1] < len(data):
        before = statistics().bytes_up
        w.iterate()
        byte_counts.append(statistics().bytes_up)
        assert byte_counts[-1] - before <= 2 * RECORDS_PER_READ, "when the kernel reports it, and when it is its turn"
        assert len(byte_counts) < len(data)
    w.iterate_until(lambda: w.brokers)
    w.brokers[0].expect(data)


def test_a_closed_tls_connection_leaves_nothing_to_the_garbage_collector(make: Callable[..., TlsWorld]) -> None:
    w = make(clients=server_context(), brokers=server_context())
    kinds = (ssl.SSLObject, ssl.MemoryBIO)

    def alive() -> int:
        return sum(isinstance(each, kinds) for each in gc.get_objects())

    gc.collect()
    before = alive()
    gc.disable()
    try:
        for _ in range(3):
            client = opened(w)
            talk(w, client)
            client.close()
            w.iterate_until(lambda: not w.plane.statistics().connections)
            for peer in w.peers:
                peer.close()
            w.peers.clear()
            w.brokers.clear()
        w.iterate()
        w.iterate()
        assert alive() <= before
    finally:
        gc.enable()
