"""Requests on the synchronous fast path: frames for client and broker, and the end of the connection."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_share_proxy.forwarding.connection_state import ClientState
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Route
from kafka_share_proxy.forwarding.served.interfaces import ExpectedResponse, RepeatableRequest
from kafka_share_proxy.forwarding.served.synchronous_fast_path import SynchronousFastPath
from kafka_share_proxy.loop.interfaces import Request

from tests.forwarding.plane_world import FETCH, LIST, WAY_BYTES, World, request, response, some_routes


class Taken(ExpectedResponse):
    """Handler that takes every request and sends another in its place; the client's response is made of the
    broker's.
    """

    def __init__(self) -> None:
        self.connection: SynchronousFastPath | None = None
        self.responses: list[bytes] = []
        self.is_lost = False
        self.takes = True
        self.on_taken: Callable[[], object] = lambda: None
        self.forwards = False
        self.body = b"other"

    def take(self, connection: SynchronousFastPath, frame: memoryview, requested: Request) -> bool:
        self.connection = connection
        if self.takes:
            number = int.from_bytes(frame[8:12], "big")
            connection.send_at_once(requested, number, self, request(LIST, 1, number, self.body))
            self.on_taken()
        return self.takes

    def on_response(self, frame: bytes) -> bool:
        if self.forwards:
            assert self.connection is not None
            return self.connection.forwards_response()
        self.responses.append(frame)
        return False

    def lost(self) -> None:
        self.is_lost = True

    def reply(self) -> None:
        assert self.connection is not None
        self.connection.immediate_response(self.responses.pop(0).upper())


class EvenRepeated(RepeatableRequest):
    """Request that those with an even correlation id repeat."""

    def __init__(self, handler: Taken, requested: Request) -> None:
        self.offered: list[bytes] = []
        self.request = requested
        self._handler = handler

    def plan(self, received: memoryview, size: int, now: float) -> tuple[bytes, int] | None:
        self.offered.append(bytes(received[:size]))
        number = int.from_bytes(received[8:12], "big")
        return None if number % 2 else (request(LIST, 1, number, b"again"), number)

    def on_response(self, frame: bytes) -> bool:
        return self._handler.on_response(frame)


def taking(handler: Taken) -> World:
    """Return a world in which LIST takes the fast path."""
    routes = some_routes()
    for version in (0, 1):
        routes.add(
            Route(
                kind=Kind.INSPECT,
                key=LIST,
                version=version,
                handler=_leave,
                serve_here=lambda _: True,
                opaque=True,
                synchronous_handler=handler.take,  # type: ignore[arg-type]
            )
        )
    return World(routes)


async def _leave(_call: object) -> None:
    """Leave the request to the broker."""


def test_a_request_received_alone_takes_the_fast_path_and_its_client_is_muted() -> None:
    """Later requests of the client wait, and are forwarded afterwards."""
    handler = Taken()
    w = taking(handler)
    client, broker = w.pair()
    for number in range(3):
        client.send(request(LIST, 1, number))
        broker.expect(request(LIST, 1, number, b"other"))
        client.send(request(FETCH, 11, 100 + number))
        broker.expect_silence()
        broker.send(response(number, b"body"))
        w.iterate_until(lambda: handler.responses)
        client.expect_silence()
        handler.reply()
        client.expect(response(number, b"BODY"))
        broker.expect(request(FETCH, 11, 100 + number))
        broker.send(response(100 + number))
        client.expect(response(100 + number))
    w.close()


def test_a_response_in_pieces_is_awaited_too() -> None:
    handler = Taken()
    w = taking(handler)
    client, broker = w.pair()
    client.send(request(LIST, 1, 1))
    broker.expect(request(LIST, 1, 1, b"other"))
    for byte in response(1, b"body"):
        broker.send(bytes([byte]))
        w.iterate()
    w.iterate_until(lambda: handler.responses)
    handler.reply()
    client.expect(response(1, b"BODY"))
    w.close()


def test_a_request_that_repeats_the_last_one_is_offered_to_what_served_it_first() -> None:
    """A request that it leaves goes to the fast path of the API."""
    handler = Taken()
    handler.forwards = True
    w = taking(handler)
    client, broker = w.pair()
    even = EvenRepeated(handler, w.plane.routes[request(LIST, 1, 0)[4:8]])
    for number in range(5):
        client.send(request(LIST, 1, number))
        broker.expect(request(LIST, 1, number, b"again" if number in (2, 4) else b"other"))
        broker.send(response(number, b"body"))
        client.expect(response(number, b"body"))
        assert handler.connection is not None
        handler.connection.repeated = even
    assert even.offered == [request(LIST, 1, number) for number in range(1, 5)]
    w.close()


def test_a_request_that_has_to_wait_is_not_compared_with_the_last_one() -> None:
    """It follows another one without a response, or comes during an exchange or after the end of the SASL session."""
    handler = Taken()
    handler.forwards = True
    w = taking(handler)
    client, broker = w.pair()
    client.send(request(LIST, 1, 0))
    broker.expect(request(LIST, 1, 0, b"other"))
    broker.send(response(0))
    client.expect(response(0))
    assert handler.connection is not None
    connection = handler.connection.owner
    handler.connection.repeated = even = EvenRepeated(handler, w.plane.routes[request(LIST, 1, 0)[4:8]])
    client.send(request(FETCH, 11, 1))
    broker.expect(request(FETCH, 11, 1))
    client.send(request(LIST, 1, 2))
    broker.expect_silence()
    broker.send(response(1))
    client.expect(response(1))
    broker.expect(request(LIST, 1, 2))
    broker.send(response(2))
    client.expect(response(2))
    connection.sasl.handshake_sent(1)
    client.send(request(LIST, 1, 4))
    w.iterate_until(lambda: connection.state.now is not ClientState.PASSING or connection.closed)
    assert even.offered == []
    w.close()


@pytest.mark.parametrize("whole", [True, False])
def test_response_that_is_the_clients_is_forwarded_unchanged(whole: bool) -> None:
    """Also if it arrives in pieces. The connection then continues."""
    handler = Taken()
    handler.forwards = True
    w = taking(handler)
    client, broker = w.pair()
    for number in range(3):
        client.send(request(LIST, 1, number))
        broker.expect(request(LIST, 1, number, b"other"))
        client.send(request(FETCH, 11, 100 + number))
        answer = response(number, b"body")
        if whole:
            broker.send(answer)
        else:
            for byte in answer:
                broker.send(bytes([byte]))
                w.iterate()
        client.expect(answer)
        broker.expect(request(FETCH, 11, 100 + number))
        broker.send(response(100 + number))
        client.expect(response(100 + number))
    assert w.plane.statistics().local_answers_total == 3
    w.close()


@pytest.mark.parametrize("forwards", [True, False])
def test_long_requests_and_responses_reach_peers_that_read_slowly(forwards: bool) -> None:
    """Neither socket takes all at once."""
    handler = Taken()
    handler.forwards, handler.body = forwards, bytes(range(256)) * (WAY_BYTES // 16)
    w = taking(handler)
    client, broker = w.pair()
    for number in range(2):
        client.send(request(LIST, 1, number))
        w.iterate_until(lambda: handler.connection is not None)
        for _ in range(5):
            w.iterate()
        broker.expect(request(LIST, 1, number, handler.body))
        broker.send(response(number, handler.body))
        if not forwards:
            w.iterate_until(lambda: handler.responses)
            handler.reply()
        for _ in range(5):
            w.iterate()
        client.expect(response(number, handler.body if forwards else handler.body.upper()))
    w.close()


def test_a_request_after_another_or_not_taken_is_handled_normally() -> None:
    """Two in one piece, one while another waits for its response, one that is left."""
    handler = Taken()
    w = taking(handler)
    client, broker = w.pair()
    client.send(request(LIST, 1, 1) + request(LIST, 1, 2))
    broker.expect(request(LIST, 1, 1))
    broker.send(response(1))
    client.expect(response(1))
    broker.expect(request(LIST, 1, 2))
    broker.send(response(2))
    client.expect(response(2))
    client.send(request(FETCH, 11, 3))
    broker.expect(request(FETCH, 11, 3))
    client.send(request(LIST, 1, 4))
    broker.expect_silence()
    broker.send(response(3))
    client.expect(response(3))
    broker.expect(request(LIST, 1, 4))
    broker.send(response(4))
    client.expect(response(4))
    handler.takes = False
    client.send(request(LIST, 1, 5))
    broker.expect(request(LIST, 1, 5))
    assert handler.responses == []
    w.close()


@pytest.mark.parametrize("who", ["client", "broker"])
@pytest.mark.parametrize("has_response", [False, True])
def test_a_client_that_leaves_ends_its_fast_path_request(who: str, has_response: bool) -> None:
    """It is notified if the broker has not responded; a response after the end is dropped."""
    handler = Taken()
    w = taking(handler)
    client, broker = w.pair()
    client.send(request(LIST, 1, 1))
    broker.expect(request(LIST, 1, 1, b"other"))
    if has_response:
        broker.send(response(1))
        w.iterate_until(lambda: handler.responses)
    (client if who == "client" else broker).close()
    w.iterate_until(lambda: w.notes)
    assert handler.is_lost != has_response
    if has_response:
        handler.reply()
    assert w.plane.statistics().connections == 0
    w.close()


def test_drain_ends_the_connection_after_the_response() -> None:
    """Earlier events changed the mask of the client's socket."""
    handler = Taken()
    w = taking(handler)
    client, broker = w.pair()
    client.send(request(LIST, 1, 1))
    broker.expect(request(LIST, 1, 1, b"other"))
    (connection,) = w.plane._connections.values()
    connection.drain()
    broker.send(response(1, b"body"))
    w.iterate_until(lambda: handler.responses)
    handler.reply()
    client.expect(response(1, b"BODY"))
    client.expect_end()
    assert w.reason() == "drained"
    w.close()


def test_a_forwarded_fast_path_request_is_sent_when_the_iteration_ends() -> None:
    """All requests of one iteration are therefore sent together: a coordinator of 4.3 stores them with one append."""
    handler, sent = Taken(), list[bytes]()
    w = taking(handler)
    client, broker = w.pair()
    handler.on_taken = lambda: sent.append(bytes(broker.take()))
    client.send(request(LIST, 1, 7))
    broker.expect(request(LIST, 1, 7, b"other"))
    assert sent == [b""]
    w.close()


def test_nothing_is_forwarded_where_the_connection_has_ended_in_the_same_iteration() -> None:
    """The owner of the request is notified."""
    handler = Taken()
    w = taking(handler)
    client, broker = w.pair()

    def end() -> None:
        assert handler.connection is not None
        handler.connection.owner.failed(OSError("gone"))

    handler.on_taken = end
    client.send(request(LIST, 1, 7))
    w.iterate_until(lambda: handler.is_lost)
    broker.expect_end()
    w.close()
