"""Connections that move between two data planes, each with its routes, on one loop over real sockets."""

from __future__ import annotations

import array
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.fleet import moved_clients
from kafka_share_proxy.fleet.moved_clients import ARRIVING_MAX, BUSY_SHARE, MovedClients
from kafka_share_proxy.forwarding import fair_share, moved_connection
from kafka_share_proxy.forwarding.client_software import ClientSoftware
from kafka_share_proxy.forwarding.connection import ForwardedConnection
from kafka_share_proxy.forwarding.data_plane import Plane
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.moved_connection import MOVES_MAX
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.values import UNKNOWN_NODE

from tests.forwarding.plane_world import (
    FETCH,
    LOCAL,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    UPSTREAM,
    Peer,
    World,
    produce,
    request,
    response,
    some_routes,
)

EDGE, OWNER = b"carried", b"at the owner"


class Workers:
    """Two workers: clients connect to the edge, and requests of the LOCAL API belong to the owner."""

    def __init__(self, path: str, limits: Limits | None = None, owner_limits: Limits | None = None) -> None:
        self.path = path
        self.edge_calls: list[Call[Any]] = []
        self.owner_calls: list[Call[Any]] = []
        self.world = World(some_routes(local=self._at_edge), limits)
        self.reactor = self.world.reactor
        self.owner = Plane(
            self.reactor,
            some_routes(local=self._at_owner),
            owner_limits or Limits(),
            self.world.note,
            self.world.dial,
        )
        self.owner.ports.listen(UNKNOWN_NODE, "127.0.0.1", 0, lambda: [UPSTREAM])
        self.sender, self.receiver = (MovedClients(self.reactor, self.world.note) for _ in range(2))
        self.receiver.listen(path, self.owner.admission.admit_moved)

    async def _at_edge(self, call: Call[Any]) -> bytes:
        self.edge_calls.append(call)
        refused = self.sender.send(self.path, call)
        if refused is not None:
            await refused
        return response(call.correlation_id, EDGE)

    async def _at_owner(self, call: Call[Any]) -> bytes:
        self.owner_calls.append(call)
        return response(call.correlation_id, OWNER)

    @property
    def here(self) -> int:
        return self.world.plane.statistics().connections

    @property
    def there(self) -> int:
        return self.owner.statistics().connections

    def connection(self, plane: Plane) -> ForwardedConnection:
        (connection,) = plane.connections()
        return connection

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()
        self.owner.close()
        self.world.close()


@contextmanager
def two_workers(path: Path, **limits: Limits) -> Iterator[Workers]:
    workers = Workers(str(path / "links.clients"), **limits)
    try:
        yield workers
    finally:
        workers.close()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    with two_workers(tmp_path) as both:
        yield both


def local(correlation_id: int, body: bytes = b"") -> bytes:
    return request(LOCAL, 0, correlation_id, body)


def forwarded(client: Peer, broker: Peer, correlation_id: int, records: bytes) -> None:
    """Send a Fetch through the proxy, and its response back."""
    client.send(request(FETCH, 11, correlation_id))
    broker.expect(request(FETCH, 11, correlation_id))
    broker.send(response(correlation_id, records))
    client.expect(response(correlation_id, records))


def moved(workers: Workers) -> tuple[Peer, Peer]:
    """Return a client that has moved to the owner, and its broker."""
    client, broker = workers.world.pair()
    client.send(local(1))
    client.expect(response(1, OWNER))
    return client, broker


def test_a_client_moves_with_its_request_and_its_upstream_connection(workers: Workers) -> None:
    client, broker = moved(workers)
    workers.world.iterate_until(lambda: (workers.here, workers.there) == (0, 1))
    forwarded(client, broker, 2, b"records")
    client.send(local(3))
    client.expect(response(3, OWNER))
    assert (len(workers.edge_calls), len(workers.owner_calls)) == (1, 2)
    assert len(workers.world.brokers) == 1
    client.close()
    broker.expect_end()
    workers.world.iterate_until(lambda: workers.there == 0)


def drains(workers: Workers) -> None:
    """Let the edge send its connections away, and close those that stay."""
    plane = workers.world.plane
    plane.moves_away = lambda connection: workers.sender.send_idle(workers.path, connection)
    plane.admission.close()
    plane.drain_now()


def test_an_idle_connection_moves_when_its_worker_ends_and_its_client_sees_nothing(workers: Workers) -> None:
    client, broker = workers.world.pair()
    forwarded(client, broker, 1, b"records")
    drains(workers)
    workers.world.iterate_until(lambda: (workers.here, workers.there) == (0, 1))
    forwarded(client, broker, 2, b"more")
    client.send(local(3))
    client.expect(response(3, OWNER))
    assert len(workers.world.brokers) == 1
    assert workers.connection(workers.owner).moves == 0, "only moves for a request are limited"
    client.close()
    broker.expect_end()


def test_a_connection_with_a_request_in_flight_moves_after_its_response(workers: Workers) -> None:
    """The next worker reads the requests that the client sends meanwhile."""
    client, broker = workers.world.pair()
    client.send(request(FETCH, 11, 1))
    broker.expect(request(FETCH, 11, 1))
    drains(workers)
    client.send(request(FETCH, 11, 2))
    workers.world.iterate()
    assert (workers.here, workers.there) == (1, 0)
    broker.send(response(1, b"records"))
    client.expect(response(1, b"records"))
    broker.expect(request(FETCH, 11, 2))
    assert (workers.here, workers.there) == (0, 1)
    broker.send(response(2, b"more"))
    client.expect(response(2, b"more"))


def test_any_number_of_connections_move_in_one_iteration(workers: Workers) -> None:
    count = ARRIVING_MAX + 10
    pairs = [workers.world.pair() for _ in range(count)]
    drains(workers)
    workers.world.iterate_until(lambda: (workers.here, workers.there) == (0, count))
    for client, broker in pairs:
        client.send(request(FETCH, 11, 1))
        broker.expect(request(FETCH, 11, 1))


def test_moves_are_not_limited_when_a_worker_ends(workers: Workers) -> None:
    client, _ = workers.world.pair()
    workers.connection(workers.world.plane).moves = MOVES_MAX
    workers.world.plane.admission.close()
    client.send(local(1))
    client.expect(response(1, OWNER))
    assert workers.connection(workers.owner).moves == MOVES_MAX


def test_an_idle_connection_that_the_other_worker_refuses_is_closed(workers: Workers) -> None:
    client, broker = workers.world.pair()
    forwarded(client, broker, 1, b"records")
    workers.owner.admission.close()
    drains(workers)
    client.expect_end()
    workers.world.iterate_until(lambda: (workers.here, workers.there) == (0, 0))
    assert "connection-not-moved" in workers.world.events()


def test_a_connection_that_has_sent_nothing_is_closed_when_its_worker_ends(workers: Workers) -> None:
    client = workers.world.client()
    drains(workers)
    client.expect_end()


def test_a_busy_worker_takes_over_connections_of_one_that_ends(workers: Workers) -> None:
    workers.receiver.busy = 1.0
    client, broker = workers.world.pair()
    forwarded(client, broker, 1, b"records")
    drains(workers)
    workers.world.iterate_until(lambda: (workers.here, workers.there) == (0, 1))


def gives(workers: Workers, share: int = 1) -> int:
    """Let the edge give one of `share` connections to the owner. Return how many it gives."""

    def send(place: int, connection: ForwardedConnection) -> bool:
        assert place == 1
        return workers.sender.send_idle(workers.path, connection, may_stay=True)

    plane = workers.world.plane
    placements = [(1, connection) for connection in fair_share.surplus(plane.connections(), share)]
    plane.give(placements, send)
    return len(placements)


def test_a_worker_gives_every_second_connection_of_each_client(workers: Workers) -> None:
    pairs = [workers.world.pair() for _ in range(6)]
    for place, connection in enumerate(workers.world.plane.connections()):
        connection.software = ClientSoftware("aabbab"[place])
    assert gives(workers, 2) == 3
    workers.world.iterate_until(lambda: (workers.here, workers.there) == (3, 3))
    for plane in (workers.world.plane, workers.owner):
        clients = [connection.software.client_id for connection in plane.connections() if connection.software]
        assert set(clients) == {"a", "b"}
    for number, (client, broker) in enumerate(pairs):
        forwarded(client, broker, number, b"records")


def test_a_connection_at_work_is_given_after_its_response(workers: Workers) -> None:
    client, broker = workers.world.pair()
    client.send(request(FETCH, 11, 1))
    broker.expect(request(FETCH, 11, 1))
    assert gives(workers) == 1
    workers.world.iterate()
    client.send(request(FETCH, 11, 2))
    workers.world.iterate()
    assert (workers.here, workers.there) == (1, 0)
    broker.send(response(1, b"records"))
    client.expect(response(1, b"records"))
    broker.expect(request(FETCH, 11, 2))
    assert (workers.here, workers.there) == (0, 1)
    broker.send(response(2, b"more"))
    client.expect(response(2, b"more"))


def test_a_connection_that_cannot_be_given_is_served_as_before(workers: Workers) -> None:
    """Refused by the other worker, or without such a worker."""
    client, broker = workers.world.pair()
    forwarded(client, broker, 1, b"records")
    workers.owner.admission.close()
    assert gives(workers) == 1
    workers.world.iterate_until(lambda: "connection-not-moved" in workers.world.events())
    forwarded(client, broker, 2, b"more")
    workers.receiver.close()
    workers.world.iterate()
    assert gives(workers) == 1
    workers.world.iterate()
    forwarded(client, broker, 3, b"more")
    assert (workers.here, workers.there) == (1, 0)


def test_connections_that_were_moved_or_have_state_here_are_not_moved(workers: Workers) -> None:
    for _ in range(2):
        workers.world.pair()
    first, second = workers.world.plane.connections()
    first.moves = 1
    second.on_close(lambda: None)
    assert gives(workers) == 0


def test_a_connection_does_not_move_within_an_exchange_of_sasl(workers: Workers) -> None:
    client, broker = begun_sasl(workers)
    assert gives(workers) == 1
    workers.world.iterate()
    assert (workers.here, workers.there) == (1, 0)
    client.send(request(SASL_AUTHENTICATE, 1, 2))
    broker.expect(request(SASL_AUTHENTICATE, 1, 2))


def begun_sasl(workers: Workers) -> tuple[Peer, Peer]:
    """Return a client between the two requests of an exchange, and its broker."""
    client = workers.world.client()
    client.send(request(SASL_HANDSHAKE, 1, 1, b"\0\5PLAIN"))
    workers.world.iterate_until(lambda: workers.world.brokers)
    broker = workers.world.brokers[0]
    broker.frame()
    broker.send(response(1, b"\0\0\0\0\0\0"))
    client.expect(response(1, b"\0\0\0\0\0\0"))
    return client, broker


def test_requests_after_the_moving_one_are_served_in_their_order(workers: Workers) -> None:
    client, broker = workers.world.pair()
    tail = produce(5, 1)
    client.send(local(1, b"x" * 100) + request(FETCH, 11, 2) + local(3) + request(FETCH, 11, 4) + tail[:20])
    client.expect(response(1, OWNER))
    broker.expect(request(FETCH, 11, 2))
    broker.send(response(2))
    client.expect(response(2) + response(3, OWNER))
    client.send(tail[20:])
    broker.expect(request(FETCH, 11, 4) + tail)
    broker.send(response(4) + response(5))
    client.expect(response(4) + response(5))


def test_a_client_moves_only_after_the_responses_to_its_earlier_requests(workers: Workers) -> None:
    client, broker = workers.world.pair()
    client.send(request(FETCH, 11, 1) + local(2))
    broker.expect(request(FETCH, 11, 1))
    client.expect_silence()
    assert workers.edge_calls == []
    broker.send(response(1, b"r" * 1000)[:500])
    workers.world.iterate()
    broker.send(response(1, b"r" * 1000)[500:])
    client.expect(response(1, b"r" * 1000) + response(2, OWNER))
    assert len(workers.owner_calls) == 1


def test_acks_0_before_the_moving_request_reach_the_broker_first(workers: Workers) -> None:
    client, broker = workers.world.pair()
    client.send(produce(1, 0, 5000) + local(2) + produce(3, 0))
    client.expect(response(2, OWNER))
    broker.expect(produce(1, 0, 5000) + produce(3, 0))


def test_a_moved_connection_is_counted_once(workers: Workers) -> None:
    client, _ = moved(workers)
    workers.world.iterate_until(lambda: workers.world.plane.is_idle)
    here, there = workers.world.plane.statistics(), workers.owner.statistics()
    assert (here.connections_total, there.connections_total) == (1, 0)
    assert (here.connections_moved_total, dict(here.ended)) == (1, {})
    assert there.upstream_connections == 1
    client.close()
    workers.world.iterate_until(lambda: workers.owner.statistics().ended == {"connection-closed": 1})


def test_user_software_and_age_move_too(workers: Workers) -> None:
    client, broker = begun_sasl(workers)
    token = b"\0alice\0secret"
    client.send(request(SASL_AUTHENTICATE, 0, 2, b"\xff\xff" + len(token).to_bytes(4, "big") + token))
    broker.frame()
    broker.send(response(2, b"\0\0\xff\xff\0\0\0\0"))
    client.expect(response(2, b"\0\0\xff\xff\0\0\0\0"))
    before = workers.connection(workers.world.plane)
    before.sasl.expires = before.timeouts.opened_at + 3600
    client.send(local(3))
    client.expect(response(3, OWNER))
    after = workers.connection(workers.owner)
    assert (before.sasl.user, after.sasl.user) == ("alice", "alice")
    assert after.sasl.expires == before.sasl.expires
    assert after.sasl.stage is before.sasl.stage
    assert after.timeouts.opened_at == before.timeouts.opened_at
    assert (after.client_host, after.reached, after.moves) == ("127.0.0.1", UPSTREAM, 1)


def test_an_owner_without_room_refuses_and_the_request_is_carried(tmp_path: Path) -> None:
    with two_workers(tmp_path, owner_limits=Limits(connections=1)) as workers:
        first, _ = moved(workers)
        client, broker = workers.world.pair()
        client.send(local(1) + request(FETCH, 11, 2))
        client.expect(response(1, EDGE))
        broker.expect(request(FETCH, 11, 2))
        broker.send(response(2))
        client.expect(response(2))
        assert (workers.here, workers.there) == (1, 1)
        assert ("connection-not-moved", "limits.connections (1) is reached") in [
            (event, context.get("reason")) for event, context in workers.world.notes
        ]
        first.close()


def test_a_busy_owner_refuses_so_that_others_share_its_work(workers: Workers) -> None:
    workers.receiver.measure()
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    workers.receiver.measure()
    assert 0.1 < workers.receiver.busy < 1.5
    workers.receiver.busy = BUSY_SHARE + 0.01
    client, _ = workers.world.pair()
    client.send(local(1))
    client.expect(response(1, EDGE))
    assert (workers.here, workers.there) == (1, 0)
    assert workers.world.notes[-1][1]["reason"] == "this worker uses 81% of a core"


@pytest.mark.parametrize("why", ["no listener", "a drain"])
def test_an_owner_that_does_not_serve_the_broker_refuses(workers: Workers, why: str) -> None:
    if why == "a drain":
        workers.owner.admission.close()
    else:
        workers.owner.ports.close_listener(UNKNOWN_NODE)
    client, _ = workers.world.pair()
    client.send(local(1))
    client.expect(response(1, EDGE))
    assert (workers.here, workers.there) == (1, 0)


def depends(connection: ForwardedConnection) -> None:
    connection.on_close(lambda: None)


def has_moved_often(connection: ForwardedConnection) -> None:
    connection.moves = MOVES_MAX


@pytest.mark.parametrize("reason", [depends, has_moved_often])
def test_a_connection_stays_where_something_depends_on_it(
    workers: Workers, reason: Callable[[ForwardedConnection], None]
) -> None:
    client, _ = workers.world.pair()
    reason(workers.connection(workers.world.plane))
    client.send(local(1))
    client.expect(response(1, EDGE))
    assert (workers.here, workers.there) == (1, 0)


def test_a_draining_connection_stays_until_its_response_is_sent(workers: Workers) -> None:
    client, broker = workers.world.pair()
    client.send(request(FETCH, 11, 1) + local(2))
    broker.expect(request(FETCH, 11, 1))
    workers.connection(workers.world.plane).drain()
    broker.send(response(1))
    client.expect(response(1) + response(2, EDGE))
    client.expect_end()


def test_many_unread_bytes_keep_a_connection_here(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_connection, "UNREAD_BYTES_MAX", 1000)
    client, broker = workers.world.pair()
    tail = produce(2, 1, 1000)
    client.send(local(1) + tail)
    client.expect(response(1, EDGE))
    broker.expect(tail)


def test_a_client_stays_if_the_owner_does_not_listen(workers: Workers) -> None:
    Path(workers.path).unlink()
    client, _ = workers.world.pair()
    client.send(local(1))
    client.expect(response(1, EDGE))
    assert workers.here == 1


class Silent:
    """Owner that accepts a connection, and does nothing."""

    def __init__(self, path: str) -> None:
        Path(path).unlink()
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listening.bind(path)
        self.listening.listen()

    def accept(self) -> socket.socket:
        self.listening.settimeout(10)
        return self.listening.accept()[0]


def test_a_client_is_disconnected_if_the_owner_is_killed_before_it_responds(workers: Workers) -> None:
    """The owner may have served the request: a kill is indistinguishable from that."""
    silent = Silent(workers.path)
    client, broker = workers.world.pair()
    client.send(local(1) + request(FETCH, 11, 2))
    workers.world.iterate_until(lambda: workers.edge_calls)
    end = silent.accept()
    data, descriptors, _, _ = socket.recv_fds(end, 1 << 20, 2)
    assert bytes(moved_connection.decode(data).unread) == local(1) + request(FETCH, 11, 2)
    assert workers.here == 0, "it is counted by neither"
    client.expect_silence()
    for descriptor in descriptors:
        os.close(descriptor)
    end.close()
    client.expect_end()
    broker.expect_end()
    silent.listening.close()


def test_a_client_is_disconnected_if_the_owner_does_not_respond(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the owner too: it may take the message much later, and must not serve half of a connection then."""
    monkeypatch.setattr(moved_clients, "RESPONSE_S", 0.05)
    silent = Silent(workers.path)
    client, broker = workers.world.pair()
    client.send(local(1))
    client.expect_end()
    broker.expect_end()
    end = silent.accept()
    _, descriptors, _, _ = socket.recv_fds(end, 1 << 20, 2)
    with socket.socket(fileno=descriptors[0]) as late:
        late.settimeout(5)
        while late.recv(4096):
            pass
        with pytest.raises(BrokenPipeError):
            late.send(b"x")
    os.close(descriptors[1])
    end.close()
    silent.listening.close()


def test_a_client_that_was_sent_survives_the_sender(workers: Workers) -> None:
    silent = Silent(workers.path)
    client, broker = workers.world.pair()
    client.send(local(1))
    workers.world.iterate_until(lambda: workers.edge_calls)
    workers.connection(workers.world.plane).end("connection-cut")  # as at the end of a process
    workers.world.iterate_until(lambda: workers.world.plane.is_idle)
    end = silent.accept()
    data, descriptors, _, _ = socket.recv_fds(end, 1 << 20, 2)
    sockets = [socket.socket(fileno=each) for each in descriptors]
    workers.owner.admission.admit_moved(moved_connection.decode(data), *sockets)
    client.expect(response(1, OWNER))
    client.send(request(FETCH, 11, 2))
    broker.expect(request(FETCH, 11, 2))
    end.close()
    silent.listening.close()


def test_a_client_that_leaves_during_a_move_ends_at_the_owner(workers: Workers) -> None:
    client, broker = workers.world.pair()
    client.send(local(1))
    workers.world.iterate_until(lambda: workers.edge_calls)
    client.reset()
    broker.expect_end()
    workers.world.iterate_until(lambda: workers.world.plane.is_idle and workers.owner.is_idle)


def unix(path: str) -> socket.socket:
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.setblocking(False)
    end.connect(path)
    return end


def reply(workers: Workers, end: socket.socket) -> bytes:
    got: list[bytes] = []

    def received() -> bool:
        try:
            got.append(end.recv(4096))
        except BlockingIOError:
            return False
        return True

    workers.world.iterate_until(received)
    end.close()
    return got[0]


def descriptors_of(pid: str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  # a count


@pytest.mark.parametrize(
    ("data", "sockets", "reported"),
    [
        (b"\0\0rubbish", 2, b""),
        (b"\xff\xffrubbish", 2, b"version -1 is not known here"),
        (b"\0", 2, b"not known here"),
        (moved_connection.encode(messages.MovedClient(node_id=-1)), 1, b"1 sockets instead of 2"),
        (moved_connection.encode(messages.MovedClient(node_id=-1)), 0, b"0 sockets instead of 2"),
        (moved_connection.encode(messages.MovedClient(node_id=77)), 2, b"no listener"),
    ],
)
def test_invalid_message_is_refused_and_its_sockets_are_closed(
    workers: Workers, data: bytes, sockets: int, reported: bytes
) -> None:
    before = descriptors_of()
    ends = socket.socketpair()
    end = unix(workers.path)
    socket.send_fds(end, [data], [each.fileno() for each in ends[:sockets]])
    text = reply(workers, end)
    assert text[:1] == b"-"
    assert reported in text
    for each in ends:
        each.close()
    workers.world.iterate_until(lambda: descriptors_of() == before)
    assert workers.there == 0


def test_a_descriptor_that_is_no_socket_is_refused_and_closed(workers: Workers) -> None:
    before = descriptors_of()
    end = unix(workers.path)
    reading, writing = os.pipe()
    descriptors = array.array("i", [reading, writing])
    end.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
    assert b"0 sockets instead of 2" in reply(workers, end)
    os.close(reading)
    os.close(writing)
    workers.world.iterate_until(lambda: descriptors_of() == before)


def test_ends_without_a_message_are_bounded(workers: Workers) -> None:
    ends = [unix(workers.path) for _ in range(ARRIVING_MAX + 1)]
    workers.world.iterate_until(lambda: len(workers.receiver._arriving) == ARRIVING_MAX)
    assert reply(workers, ends[0]) == b""
    client, _ = moved(workers)
    client.close()
    for end in ends[1:]:
        end.close()
    workers.world.iterate_until(lambda: not workers.receiver._arriving)


def test_an_end_without_a_message_is_closed_after_a_while(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_clients, "ARRIVAL_S", 0.05)
    assert reply(workers, unix(workers.path)) == b""


def test_a_moved_client_may_produce_and_fetch_as_before(workers: Workers) -> None:
    """Through the pump, which forwards bytes of both sides in C."""
    client, broker = moved(workers)
    for number in range(2, 200, 2):
        client.send(produce(number, 1, 3000) + request(FETCH, 11, number + 1))
        broker.expect(produce(number, 1, 3000) + request(FETCH, 11, number + 1))
        broker.send(response(number, b"p" * 50) + response(number + 1, b"f" * 5000))
        client.expect(response(number, b"p" * 50) + response(number + 1, b"f" * 5000))
