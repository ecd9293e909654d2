"""TLS of clients in the pump: what passes without Python, and what is left to the transport."""

from __future__ import annotations

import errno
import gc
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest
from kafka_share_proxy.forwarding.client_trace.client_trace import TraceLimits
from kafka_share_proxy.forwarding.walk.pump import KERNEL, new_pump
from kafka_share_proxy.forwarding.walk.walking import Pending
from kafka_share_proxy.loop.interfaces import TlsBuffers
from kafka_share_proxy.loop.iterations import Iterations
from kafka_share_proxy.loop.polling import new_poller
from kafka_share_proxy.loop.tls_memory import ESTABLISHED_BYTES
from kafka_share_proxy.loop.transports import RECORDS_PER_READ, TlsTransport

from tests.forwarding.client_trace.test_client_trace import ADDRESS, summaries
from tests.forwarding.client_trace.test_tap import only
from tests.forwarding.plane_world import FETCH, Peer, request, response
from tests.forwarding.walk.test_pump import BUFFER, Up
from tests.forwarding.walk.test_pump import World as PumpWorld
from tests.forwarding.walk.test_pump import request as pump_request
from tests.loop.test_transports import TlsWorld, opened, server_context, talk

pytestmark = pytest.mark.skipif(KERNEL == "python", reason="the pump could not be built in C here")


@pytest.fixture
def world() -> Iterator[TlsWorld]:
    tls_world = TlsWorld(clients=server_context())
    yield tls_world
    tls_world.close()


@pytest.fixture
def masks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Events of sockets in TLS that Python handles."""
    handled: list[int] = []
    on_event = TlsTransport._on_event
    monkeypatch.setattr(TlsTransport, "_on_event", lambda self, mask: (handled.append(mask), on_event(self, mask))[1])
    return handled


def exchanged(client: Peer, broker: Peer, number: int, size: int = 10) -> None:
    client.send(request(FETCH, 11, number, bytes(size)))
    broker.expect(request(FETCH, 11, number, bytes(size)))
    broker.send(response(number, bytes(size)))
    client.expect(response(number, bytes(size)))


def transport_of(w: TlsWorld) -> TlsTransport:
    transport = only(w).client.transport
    assert isinstance(transport, TlsTransport)
    return transport


@pytest.mark.parametrize("size", [0, 16_000, 100_000])
def test_requests_and_responses_in_tls_pass_without_python(world: TlsWorld, masks: list[int], size: int) -> None:
    client = opened(world)
    broker = talk(world, client)
    masks.clear()
    for number in range(5):
        exchanged(client, broker, number, size)
    assert masks == []


def test_long_responses_are_encrypted_without_python(world: TlsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    client = opened(world)
    broker = talk(world, client)
    sent: list[int] = []
    monkeypatch.setattr(TlsTransport, "send", lambda _self, data: sent.append(len(data)))
    for number in range(3):
        exchanged(client, broker, number, 150_000)
    assert sent == []


def test_responses_that_the_client_does_not_accept_are_kept_in_order(world: TlsWorld) -> None:
    client = opened(world)
    broker = talk(world, client)
    count = 400
    client.send(b"".join(request(FETCH, 11, n) for n in range(count)))
    broker.receive(count * len(request(FETCH, 11, 0)))
    transport_of(world)._plain._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    sent = 0
    while not transport_of(world)._unsent:
        broker.send(response(sent, bytes(900)))
        sent += 1
        world.iterate()
        assert sent < count
    assert transport_of(world)._encrypted_bytes
    broker.send(b"".join(response(number, bytes(900)) for number in range(sent, count)))
    for number in range(count):
        client.expect(response(number, bytes(900)))
    exchanged(client, broker, count)


def test_more_records_than_one_read_decrypts_are_read_in_later_iterations(world: TlsWorld) -> None:
    client = opened(world)
    broker = talk(world, client)
    frames = [request(FETCH, 11, number) for number in range(500)]
    for frame in frames:
        client.sock.send(frame)
    broker.expect(b"".join(frames))


def test_memory_of_the_buffers_is_counted_once_and_returned(world: TlsWorld) -> None:
    memory = world.plane.admission.tls_memory
    client = opened(world)
    broker = talk(world, client)
    exchanged(client, broker, 2, 100)
    before = memory.used
    assert before > ESTABLISHED_BYTES
    exchanged(client, broker, 3, 12_000)
    grown = memory.used
    assert before + 2 * 12_000 < grown < before + 2 * 20_000
    exchanged(client, broker, 4, 12_000)
    assert memory.used == grown
    client.close()
    world.iterate_until(lambda: not world.plane.statistics().connections)
    world.iterate()
    assert memory.used == 0


def test_a_client_in_tls_is_traced_and_passes_without_python_afterwards(world: TlsWorld, masks: list[int]) -> None:
    client = opened(world)
    broker = talk(world, client)
    world.plane.client_trace.begin(ADDRESS, TraceLimits())
    exchanged(client, broker, 2)
    assert summaries(world) == ["> Fetch 2", "< Fetch 2"]
    world.plane.client_trace.finish("enough")
    masks.clear()
    exchanged(client, broker, 3)
    assert masks == []


@pytest.mark.parametrize("garbage", [b"\x17\x03\x03\0\x28" + bytes(40), b"no record of TLS at all"])
def test_bytes_that_are_no_record_end_their_connection_only(world: TlsWorld, garbage: bytes) -> None:
    client, other = opened(world), opened(world)
    broker = talk(world, client)
    second = talk(world, other)
    raw = socket.socket(fileno=client.sock.detach())
    raw.send(garbage)
    world.iterate_until(lambda: world.plane.statistics().connections == 1)
    raw.close()
    broker.expect_end()
    exchanged(other, second, 2)


@pytest.mark.parametrize("says_farewell", [True, False])
def test_end_of_the_client_follows_its_last_request(world: TlsWorld, says_farewell: bool) -> None:
    client = opened(world)
    broker = talk(world, client)
    client.send(request(FETCH, 11, 2))
    if says_farewell:
        with suppress(ssl.SSLError):
            client.sock.setblocking(False)
            client.sock.unwrap()  # type: ignore[attr-defined]  # an SSLSocket
    client.close()
    broker.expect(request(FETCH, 11, 2))
    broker.expect_end()


def test_a_closed_connection_leaves_nothing_to_the_garbage_collector(world: TlsWorld) -> None:
    def alive() -> int:
        return sum(isinstance(each, ssl.SSLObject | ssl.MemoryBIO) for each in gc.get_objects())

    gc.collect()
    before = alive()
    gc.disable()
    try:
        client = opened(world)
        exchanged(client, talk(world, client), 2)
        client.close()
        world.iterate_until(lambda: not world.plane.statistics().connections)
        world.iterate_until(lambda: alive() <= before)
    finally:
        gc.enable()


class Session:
    """TLS that changes no byte."""

    def __init__(self) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.record = BUFFER
        self.trouble: BaseException | None = None
        self.own = b""
        """Message of TLS itself, made by the next read."""

    def read(self, size: int, buffer: memoryview) -> int:
        if self.trouble is not None:
            raise self.trouble
        self.outgoing.write(self.own)
        data = self.incoming.read(min(size, self.record))
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: memoryview) -> int:
        if self.trouble is not None:
            raise self.trouble
        return self.outgoing.write(data)


class Owner:
    """Records the calls of a TLS transport."""

    def __init__(self) -> None:
        self._unsent = b""
        self.reported: list[str] = []
        self.trouble: BaseException | None = None

    def counted_received(self, _size: int) -> int:
        if self.trouble is not None:
            raise self.trouble
        return BUFFER

    def counted_sent(self, size: int) -> None:
        self.counted_received(size)

    def flush_own(self) -> None:
        self.reported.append("flush_own")

    def continue_later(self) -> None:
        self.reported.append("continue_later")


class Pair(PumpWorld):
    """A client in TLS and a broker without, between which the pump is."""

    def __init__(self) -> None:
        super().__init__()
        self.session, self.owner = Session(), Owner()
        tls = TlsBuffers(self.owner, self.session.incoming, self.session.outgoing, self.session)
        inner, outer = (end.fileno() for end in self.ends)
        self.pump.connect(inner, self.up, outer, tls, None)
        self.pump.connect(outer, self.down, inner, None, tls)

    def respond(self) -> bytes:
        """Send a request past the pump, and its response."""
        self.up.receive(memoryview(pump_request(1, 11, 2)), 0, 12)
        frame = response(2, bytes(20))
        self.broker.sendall(frame)
        self.iterate()
        return frame


@pytest.fixture
def sides() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def test_own_messages_of_tls_are_sent(sides: Pair) -> None:
    sides.session.own = b"x"
    sides.client.sendall(pump_request(1, 11, 2))
    sides.iterate()
    assert sides.broker.recv(100) == pump_request(1, 11, 2)
    assert sides.owner.reported == ["flush_own"]


def test_records_beyond_the_first_64_are_left_to_the_transport(sides: Pair) -> None:
    sides.session.record = 1
    frame = pump_request(1, 11, 2, bytes(100))
    sides.client.sendall(frame)
    sides.iterate()
    assert sides.broker.recv(1000) == frame[:RECORDS_PER_READ]
    assert sides.owner.reported == ["continue_later"]


@pytest.mark.parametrize(
    ("trouble", "code"),
    [(ssl.SSLError("bad record"), errno.EPROTO), (ssl.SSLZeroReturnError(), errno.EPROTO), (None, 0)],
)
def test_failed_decryption_and_the_end_are_reported(sides: Pair, trouble: Exception | None, code: int) -> None:
    sides.session.trouble, sides.session.record = trouble, 0
    sides.client.sendall(pump_request(1, 11, 2))
    sides.iterate()
    assert sides.up.reported == [("ended", code, 0)]


def test_incomplete_record_is_waited_for(sides: Pair) -> None:
    sides.session.trouble = ssl.SSLWantReadError()
    sides.client.sendall(pump_request(1, 11, 2)[:5])
    sides.iterate()
    sides.session.trouble = None
    sides.client.sendall(pump_request(1, 11, 2)[5:])
    sides.iterate()
    assert sides.up.reported == []
    assert sides.broker.recv(100) == pump_request(1, 11, 2)


def test_response_passes_unless_bytes_wait_before_it(sides: Pair) -> None:
    frame = sides.respond()
    assert sides.client.recv(100) == frame
    sides.owner._unsent = b"before"
    frame = sides.respond()
    assert sides.down.reported == [("sent", 0, len(frame))]


def test_failed_encryption_is_reported_as_a_lost_client(sides: Pair) -> None:
    sides.session.trouble = ssl.SSLError("no key")
    frame = sides.respond()
    assert sides.down.reported == [("sent", -errno.EPIPE, len(frame))]


def test_a_base_exception_ends_the_iteration(sides: Pair) -> None:
    sides.owner.trouble = KeyboardInterrupt()
    sides.client.sendall(pump_request(1, 11, 2))
    with pytest.raises(KeyboardInterrupt):
        sides.iterate()
    sides.session.trouble = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        sides.respond()
    assert (sides.up.reported, sides.down.reported) == ([], [])


@pytest.mark.parametrize("wrong", [(), (1, 2, 3), "four"])
def test_a_pump_takes_only_buffers_of_tls(wrong: object) -> None:
    poller = new_poller()
    pump = new_pump(poller, memoryview(bytearray(100)), {}, Iterations())
    assert pump is not None
    with pytest.raises(ValueError, match="TlsBuffers"):
        pump.connect(3, Up(Pending()), 4, wrong, None)  # type: ignore[arg-type]
    poller.close()
