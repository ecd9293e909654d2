"""TLS handshakes of connected peers: limits, order, deadlines, and nothing left over."""

from __future__ import annotations

import gc
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trustme
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop import handshakes
from kafka_share_proxy.loop.handshakes import HandshakeLimits, Handshakes
from kafka_share_proxy.loop.polling import READ
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.loop.tls_memory import ESTABLISHED_BYTES, HANDSHAKE_BYTES, SHORT_CHUNK_BYTES
from kafka_share_proxy.loop.transports import PlainTransport, TlsTransport

from tests.support.tls_attack import HELLO, RESET

CA = trustme.CA()
NO_LIMITS = HandshakeLimits(1000, 1000, 600.0)


class Room:
    """Handshakes on a loop of their own, and sockets of peers."""

    def __init__(self, limits: HandshakeLimits = NO_LIMITS) -> None:
        self.reactor = Reactor(new_pump)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        CA.issue_cert("proxy.test").configure_cert(context)
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.handshakes = Handshakes(self.reactor, TlsContext(context), limits, self._note)
        self.done: list[str] = []
        self.failed: list[tuple[str, str]] = []
        self.transports: list[TlsTransport] = []
        self.peers: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1000)

    def _note(self, event: str, /, **context: Any) -> None:
        self.notes.append((event, context))

    def connect(self, host: str, sent: bytes = b"") -> socket.socket:
        """A peer at this address that has sent these bytes."""
        peer = socket.create_connection(self._listener.getsockname())
        self.peers.append(peer)
        peer.settimeout(5)
        peer.sendall(sent)
        accepted, _ = self._listener.accept()
        self.handshakes.begin(
            accepted, host, lambda transport: self._finished(host, transport), lambda error: self._ended(host, error)
        )
        return peer

    def _finished(self, host: str, transport: TlsTransport) -> None:
        self.done.append(host)
        self.transports.append(transport)
        transport.attach(self._on_event, READ)

    def _on_event(self, _mask: int) -> None:
        for transport in self.transports:
            transport.recv_into(self.reactor.buffer)

    def _ended(self, host: str, error: Exception) -> None:
        self.failed.append((host, str(error)))

    def shake(self, peer: socket.socket) -> ssl.SSLSocket:
        """Finish the handshake of a peer that has sent nothing."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        CA.configure_trust(context)
        peer.setblocking(False)
        wrapped = context.wrap_socket(peer, do_handshake_on_connect=False, server_hostname="proxy.test")
        self.peers.append(wrapped)
        before = len(self.done)

        def finished() -> bool:
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                return False
            return len(self.done) > before

        self.iterate_until(finished)
        return wrapped

    def iterate_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline
            self.reactor.iterate(0.01)

    def iterate(self, count: int = 5) -> None:
        for _ in range(count):
            self.reactor.iterate(0.0)

    def close(self) -> None:
        self.handshakes.close()
        for transport in self.transports:
            transport.close()
        for peer in (*self.peers, self._listener):
            peer.close()
        self.iterate()
        self.reactor.shut()


def has_response(peer: socket.socket) -> bool:
    """True if the proxy has sent a TLS handshake record."""
    readable, _, _ = select.select([peer], [], [], 0)
    return bool(readable) and peer.recv(1, socket.MSG_PEEK) == b"\x16"


@pytest.fixture
def make() -> Iterator[Callable[..., Room]]:
    rooms: list[Room] = []

    def build(limits: HandshakeLimits = NO_LIMITS) -> Room:
        rooms.append(Room(limits))
        return rooms[-1]

    yield build
    for room in rooms:
        room.close()


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> list[TlsTransport]:
    """TLS transports that were created for handshakes."""
    transports: list[TlsTransport] = []

    def recorded(*arguments: Any, **options: Any) -> TlsTransport:
        transports.append(TlsTransport(*arguments, **options))
        return transports[-1]

    monkeypatch.setattr(handshakes, "TlsTransport", recorded)
    return transports


def test_a_finished_handshake_is_handed_over_once(make: Callable[..., Room]) -> None:
    room = make()
    room.shake(room.connect("a"))
    assert (room.done, room.failed, room.handshakes.pending, room.handshakes.of("a")) == (["a"], [], 0, 0)


def test_a_peer_that_leaves_while_its_handshake_is_queued_is_noticed_before_any_cryptography(
    make: Callable[..., Room], contexts: list[TlsTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    room = make()
    monkeypatch.setattr(room.handshakes, "_next", lambda: None)
    leaves, resets = room.connect("a", HELLO), room.connect("b", HELLO)
    room.iterate()
    assert room.handshakes.pending == 2
    leaves.close()
    resets.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    resets.close()
    room.iterate_until(lambda: not room.handshakes.pending)
    assert sorted(host for host, _ in room.failed) == ["a", "b"]
    assert contexts == []


@pytest.mark.parametrize("sent", [0, 3, 5, len(HELLO) // 2, len(HELLO) - 1])
def test_no_tls_object_exists_until_the_client_hello_is_complete(
    make: Callable[..., Room], contexts: list[TlsTransport], sent: int
) -> None:
    room = make()
    peer = room.connect("a", HELLO[:sent])
    room.iterate(20)
    assert contexts == []
    peer.sendall(HELLO[sent:])
    room.iterate_until(lambda: contexts)
    room.iterate_until(lambda: room.handshakes.pending == 1 and has_response(peer))


def test_a_peer_that_stays_silent_ends_at_the_deadline(make: Callable[..., Room]) -> None:
    room = make(NO_LIMITS._replace(timeout_s=0.1))
    for sent in (b"", HELLO[:100], HELLO):
        room.connect("a", sent)
    room.iterate_until(lambda: len(room.failed) == 3)
    assert {words for _, words in room.failed} == {"TLS handshake timed out"}
    assert room.handshakes.pending == 0


def test_bytes_that_are_no_tls_fail_with_the_reason_of_openssl(make: Callable[..., Room]) -> None:
    room = make()
    room.connect("a", b"GET / HTTP/1.1\r\n\r\n")
    room.connect("b", b"\x16")
    room.iterate_until(lambda: room.failed)
    assert [(host, "TLS handshake failed" in words) for host, words in room.failed] == [("a", True)]


def test_at_the_limit_of_an_address_its_longest_waiting_handshake_makes_room(make: Callable[..., Room]) -> None:
    room = make(HandshakeLimits(100, 3, 600.0))
    first, *_ = [room.connect("a", HELLO) for _ in range(3)]
    other = room.connect("b")
    room.iterate_until(lambda: all(has_response(peer) for peer in room.peers[:3]))
    room.shake(room.connect("a"))
    assert room.done == ["a"]
    assert room.handshakes.of("a") == 2
    while first.recv(1 << 16):
        pass  # what the proxy had sent; then the end
    room.shake(other)
    reason = "limits.tls_handshakes_per_address (3) is reached"
    assert room.notes == [("tls-handshake-limit", {"client": "a", "reason": reason})]
    assert room.handshakes.refused == 1


def test_at_the_limit_of_all_the_busiest_address_makes_room(make: Callable[..., Room]) -> None:
    room = make(HandshakeLimits(6, 5, 600.0))
    for host in "aaaab":
        room.connect(host)
    room.connect("c")
    room.shake(room.connect("d"))
    assert [room.handshakes.of(host) for host in "abcd"] == [3, 1, 1, 0]
    assert room.notes[0][1] == {"client": "a", "reason": "limits.tls_handshakes (6) is reached"}


def test_a_new_connection_is_refused_where_all_handshakes_of_its_address_wait(
    make: Callable[..., Room], monkeypatch: pytest.MonkeyPatch
) -> None:
    """These peers wait for the proxy, not it for them: none of them is ended."""
    room = make(HandshakeLimits(100, 2, 600.0))
    monkeypatch.setattr(room.handshakes, "_next", lambda: None)
    room.connect("a", HELLO)
    room.connect("a", HELLO)
    room.iterate()
    refused = room.connect("a", HELLO)
    assert room.handshakes.of("a") == 2
    room.iterate()
    with pytest.raises(ConnectionResetError):
        refused.recv(1)


def test_addresses_alternate_one_handshake_in_each_loop_iteration(
    make: Callable[..., Room], contexts: list[TlsTransport]
) -> None:
    room = make()
    many = [room.connect("a", HELLO) for _ in range(20)]
    one = room.connect("b", HELLO)
    counts = []
    for _ in range(6):
        before = len(contexts)
        room.reactor.iterate(0.0)
        counts.append(len(contexts) - before)
    assert max(counts) == 1
    assert has_response(one), "the second in turn, whatever waits from the other address"
    assert len(contexts) < len(many)


def test_all_of_a_storm_of_clients_of_one_address_connect_in_the_end(make: Callable[..., Room]) -> None:
    """Clients come again after a while, as Kafka's do."""
    room = make(HandshakeLimits(40, 10, 600.0))
    for _ in range(30):
        room.shake(room.connect("a"))
        room.connect("a", HELLO)
    assert len(room.done) == 30


def ended_connections(room: Room, count: int) -> None:
    """Return handshakes that ended in every way: by the peer immediately, in its turn, by garbage; and finished
    ones.
    """
    for number in range(count):
        peer = room.connect("a", (HELLO, HELLO[:50], b"", b"x" * 50)[number % 4])
        if number % 8 < 4:
            room.iterate(2)
        peer.close()
        room.peers.remove(peer)
    room.iterate_until(lambda: not room.handshakes.pending)
    peer = room.shake(room.connect("a"))
    peer.close()
    room.peers.clear()
    room.transports.pop().close()
    room.failed.clear()
    room.notes.clear()
    room.done.clear()
    room.iterate()


def test_ended_handshakes_leave_nothing_to_the_garbage_collector(make: Callable[..., Room]) -> None:
    room = make()
    ended_connections(room, 16)  # objects made once
    gc.collect()
    gc.disable()
    kinds = (TlsTransport, PlainTransport, ssl.SSLObject, ssl.MemoryBIO, handshakes._Handshake)
    try:
        earlier = [each for each in gc.get_objects() if isinstance(each, kinds)]  # other tests' in this process
        before = len(gc.get_objects())
        for _ in range(5):
            ended_connections(room, 40)
        assert len(gc.get_objects()) - before < 50
        left = [each for each in gc.get_objects() if isinstance(each, kinds)]
        assert [each for each in left if not any(each is other for other in earlier)] == []
    finally:
        gc.enable()


def test_the_memory_of_handshakes_and_connections_is_counted_and_returned(make: Callable[..., Room]) -> None:
    room = make()
    memory = room.handshakes.memory
    room.connect("a", HELLO[:50])
    room.iterate()
    assert memory.used == 0
    unfinished = room.connect("a", HELLO)
    room.iterate_until(lambda: has_response(unfinished))
    assert memory.used == HANDSHAKE_BYTES
    peer = room.shake(room.connect("a"))
    established = HANDSHAKE_BYTES + ESTABLISHED_BYTES
    room.iterate_until(lambda: established <= memory.used < established + 8192)
    peer.send(bytes(10_000))
    room.iterate_until(lambda: memory.used > established + 10_000)
    unfinished.close()
    room.iterate_until(lambda: room.handshakes.pending == 1)
    room.transports.pop().close()
    room.iterate()
    assert memory.used == 0


def test_without_memory_new_handshakes_are_refused_and_chunks_are_small(make: Callable[..., Room]) -> None:
    room = make()
    memory = room.handshakes.memory
    memory.limit = 2 * HANDSHAKE_BYTES
    for host in "ab":
        waiting = room.connect(host, HELLO)
        room.iterate_until(lambda waiting=waiting: has_response(waiting))  # type: ignore[misc]
    refused = room.connect("c")
    room.iterate()
    with pytest.raises((ConnectionResetError, AssertionError)):
        assert refused.recv(1), "closed"
    assert memory.chunk_bytes == SHORT_CHUNK_BYTES
    reason = f"limits.tls_total_bytes ({memory.limit}) are in use"
    assert room.notes == [("tls-handshake-limit", {"client": "c", "reason": reason})]
