"""Responses that do not simply pass."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import UnusableResponse

from tests.forwarding.plane_world import FETCH, METADATA, request, response, some_routes, world


def test_only_responses_of_their_kind_are_rewritten_in_the_middle_of_others() -> None:
    with world() as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1) + request(METADATA, 9, 2) + request(METADATA, 9, 3) + request(FETCH, 11, 4))
        broker.receive(4 * 12)
        broker.send(response(1, b"a") + response(2, b"b") + response(3) + response(4, b"d"))
        client.expect(response(1, b"a") + response(2, b"B") + response(3) + response(4, b"d"))


def test_a_refused_response_ends_the_connection_and_earlier_ones_pass() -> None:
    def refuse(_frame: memoryview, _context: object) -> bytes:
        raise UnusableResponse("it names broker 7, which has no listener")

    with world(some_routes(rewrite=refuse)) as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1) + request(METADATA, 9, 2))
        broker.receive(24)
        broker.send(response(1, b"good") + response(2, b"broker.internal"))
        client.expect(response(1, b"good"))
        client.expect_end()
        assert w.reason() == "it names broker 7, which has no listener"


def test_an_exception_in_one_connection_touches_no_other() -> None:
    def broken(_frame: memoryview, _context: object) -> bytes:
        raise ZeroDivisionError("a bug")

    with world(some_routes(rewrite=broken)) as w:
        client, broker = w.pair()
        other, other_broker = w.pair()
        client.send(request(METADATA, 9, 1))
        broker.receive(12)
        broker.send(response(1, b"x"))
        client.expect_end()
        assert w.events() == ["connection-failed"]
        assert isinstance(w.notes[-1][1]["error"], ZeroDivisionError)
        other.send(request(FETCH, 11, 1))
        other_broker.expect(request(FETCH, 11, 1))
