"""The proxy's own requests on a client's upstream connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka_share_proxy.forwarding.served import injected_requests
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.errors import UpstreamLost

from tests.forwarding.local_requests_world import QUERY_VERSION, Handler, local_world, requested, started
from tests.forwarding.plane_world import FETCH, HEARTBEAT, LOCAL, request, response


def asking(steps: list[Any]) -> Callable[..., Any]:
    """Handler that sends a request to the broker and returns its response."""

    async def handle(call: Call) -> bytes:
        steps.append(call)
        body = await call.connection.send_request(HEARTBEAT, QUERY_VERSION, b"question")
        steps.append(bytes(body))
        return response(call.correlation_id, bytes(body))

    return handle


def test_a_request_is_sent_on_the_clients_upstream_connection_and_its_response_to_the_handler() -> None:
    steps: list[Any] = []
    with local_world(asking(steps)) as w:
        client, broker = w.pair()
        client.send(request(LOCAL, 1, 9))
        broker.expect(requested(1, b"question"))
        broker.send(response(1, b"granted"))
        client.expect(response(9, b"granted"))
        assert len(w.dialled) == 1


def test_a_request_is_what_dials_where_nothing_was_forwarded_before() -> None:
    with local_world(asking([])) as w:
        client = w.client()
        client.send(request(LOCAL, 1, 9))
        w.iterate_until(lambda: w.brokers)
        w.brokers[0].expect(requested(1, b"question"))


def test_a_response_to_a_request_may_be_large_and_arrive_in_pieces() -> None:
    steps: list[Any] = []
    with local_world(asking(steps)) as w:
        client, broker = w.pair()
        client.send(request(LOCAL, 1, 9))
        broker.receive(len(requested(1, b"question")))
        whole = response(1, bytes(range(256)) * 4000)
        for at in range(0, len(whole), 100_000):
            broker.send(whole[at : at + 100_000])
            w.iterate()
        client.expect(response(9, bytes(range(256)) * 4000))


def test_a_late_response_to_an_abandoned_request_precedes_the_clients_next_and_stays_here() -> None:
    """The handler returns without waiting for the broker; the client continues in the meantime."""
    late: list[bytes] = []

    async def handle(call: Call) -> bytes:
        promise = call.connection.send_request(HEARTBEAT, QUERY_VERSION, b"slow")
        promise.on_settled(lambda: late.append(bytes(promise.result())))
        return response(call.correlation_id, b"at once")

    with local_world(handle) as w:
        client, broker = w.pair()
        client.send(request(LOCAL, 1, 1))
        client.expect(response(1, b"at once"))
        client.send(request(FETCH, 11, 2))
        broker.expect(requested(1, b"slow") + request(FETCH, 11, 2))
        assert w.plane.statistics().in_flight == 1
        broker.send(response(1, b"late")[:5])
        w.iterate()
        broker.send(response(1, b"late")[5:] + response(2, b"fetched"))
        client.expect(response(2, b"fetched"))
        assert late == [b"late"]


def test_an_abandoned_request_does_not_hold_up_the_next_local_request() -> None:
    async def handle(call: Call) -> bytes:
        call.connection.send_request(HEARTBEAT, QUERY_VERSION, b"never answered")
        return response(call.correlation_id)

    with local_world(handle) as w:
        client, _ = w.pair()
        client.send(request(LOCAL, 1, 1) + request(LOCAL, 1, 2) + request(LOCAL, 1, 3))
        client.expect(response(1) + response(2) + response(3))


HALF_AT = 300_000
"""Response size from which the rest is gathered in a separate buffer."""


def half_responded(w: Any) -> tuple[Any, Any, bytes]:
    """Return a client whose first request has its response while a request of the proxy stays open, half of whose
    response has arrived.
    """
    client, broker = w.pair()
    client.send(request(LOCAL, 1, 1))
    client.expect(response(1, b"at once"))
    broker.expect(requested(1, b"slow"))
    whole = response(1, bytes(2 * HALF_AT))
    broker.send(whole[:HALF_AT])
    w.iterate()
    return client, broker, whole[HALF_AT:]


async def leaves_a_query_open(call: Call) -> bytes:
    if call.correlation_id == 1:
        call.connection.send_request(HEARTBEAT, QUERY_VERSION, b"slow")
    return response(call.correlation_id, b"at once")


def test_a_local_request_starts_while_a_response_to_ours_is_pending() -> None:
    """The client is owed nothing: what is read ahead for it must not hold up its next request."""
    with local_world(leaves_a_query_open) as w:
        client, broker, rest = half_responded(w)
        assert w.plane.statistics().in_flight == 0
        client.send(request(LOCAL, 1, 2))
        client.expect(response(2, b"at once"))
        broker.send(rest)
        client.send(request(LOCAL, 1, 3))
        client.expect(response(3, b"at once"))


def test_a_local_request_waits_for_the_response_before_it_while_one_to_ours_is_pending() -> None:
    """Bytes read ahead do not replace a response that the client still waits for."""
    with local_world(leaves_a_query_open) as w:
        client, broker, rest = half_responded(w)
        client.send(request(FETCH, 11, 2) + request(LOCAL, 1, 3))
        client.expect_silence()
        assert w.plane.statistics().in_flight == 2
        broker.send(rest)
        client.expect_silence()
        broker.send(response(2, b"fetched"))
        client.expect(response(2, b"fetched") + response(3, b"at once"))


def test_a_request_that_loses_its_connection_fails() -> None:
    errors: list[BaseException] = []

    async def handle(call: Call) -> bytes:
        promise = call.connection.send_request(HEARTBEAT, QUERY_VERSION, b"")
        other: Promise[None] = Promise()
        promise.on_settled(lambda: other.set(None))
        try:
            await other
            promise.result()
        except UpstreamLost as error:
            errors.append(error)
        return response(call.correlation_id)

    with local_world(handle) as w:
        client, broker = w.pair()
        client.send(request(LOCAL, 1, 1))
        broker.receive(len(requested(1, b"")))
        waiting: list[Any] = []
        broker.close()
        client.expect_end()
        assert waiting == []
        assert w.plane.statistics().connections == 0


def test_a_wait_of_another_owner_for_a_request_fails_when_its_connection_ends() -> None:
    """A promise may have waiters beyond the connection's own handler (the cache others read from)."""
    errors: list[BaseException] = []
    promises: list[Promise[memoryview]] = []

    async def handle(call: Call) -> bytes:
        promises.append(call.connection.send_request(HEARTBEAT, QUERY_VERSION, b""))

        def settled() -> None:
            try:
                promises[0].result()
            except UpstreamLost as error:
                errors.append(error)

        promises[0].on_settled(settled)
        return response(call.correlation_id)

    with local_world(handle) as w:
        client, _ = w.pair()
        client.send(request(LOCAL, 1, 1))
        client.expect(response(1))
        client.close()
        w.iterate_until(lambda: errors)


def test_a_request_on_a_connection_that_has_ended_fails_immediately() -> None:
    handler = Handler()
    with local_world(handler) as w:
        client = w.client()
        client.send(request(LOCAL, 1, 1))
        call = started(w, handler)
        client.close()
        w.iterate_until(lambda: not w.plane.statistics().connections)
        promise = call.connection.send_request(HEARTBEAT, QUERY_VERSION, b"")
        with pytest.raises(UpstreamLost):
            promise.result()


def test_a_request_in_the_middle_of_a_forwarded_request_waits_for_its_end() -> None:
    handler = Handler()
    with local_world(handler) as w:
        client, broker = w.pair()
        client.send(request(LOCAL, 1, 1))
        connection = started(w, handler).connection
        handler.results[0].set(response(1))
        client.expect(response(1))
        whole = request(FETCH, 11, 2, bytes(100))
        client.send(whole[:60])
        broker.expect(whole[:60])
        promise = connection.send_request(HEARTBEAT, QUERY_VERSION, b"?")
        broker.expect_silence()
        client.send(whole[60:] + request(FETCH, 11, 3))
        broker.expect(whole[60:] + request(FETCH, 11, 3) + requested(1, b"?"))
        broker.send(response(2) + response(3) + response(1, b"!"))
        client.expect(response(2) + response(3))
        w.iterate_until(lambda: promise.done)
        assert bytes(promise.result()) == b"!"


def keep_alive_world(monkeypatch: pytest.MonkeyPatch, handler: Any) -> Any:
    monkeypatch.setattr(injected_requests, "KEEP_ALIVE_S", 0.5)
    return local_world(handler, keep_alive=lambda _connection: (HEARTBEAT, QUERY_VERSION, b"alive"))


def test_an_upstream_connection_used_for_a_local_request_is_kept_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with keep_alive_world(monkeypatch, asking([])) as w:
        plain, plain_broker = w.pair()
        client, broker = w.pair()
        client.send(request(LOCAL, 1, 1))
        broker.expect(requested(1, b"question"))
        broker.send(response(1))
        client.expect(response(1))
        broker.expect(requested(2, b"alive"))
        broker.send(response(2, b"yes"))
        client.expect_silence()
        plain_broker.expect_silence()
        assert not plain.take()


def test_nothing_keeps_alive_in_the_middle_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with keep_alive_world(monkeypatch, asking([])) as w:
        client, broker = w.pair()
        client.send(request(LOCAL, 1, 1))
        broker.expect(requested(1, b"question"))
        broker.send(response(1))
        client.expect(response(1))
        client.send(request(FETCH, 11, 2, bytes(100))[:50])
        broker.receive(50)
        start = w.reactor.now()
        w.iterate_until(lambda: w.reactor.now() > start + 2.2)
        assert broker.take() == b""
