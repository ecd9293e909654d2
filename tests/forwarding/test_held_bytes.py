"""Bytes that clients can make the proxy keep before their requests are complete, and before the broker knows the
clients.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Route, Routes
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop import slices
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry

from tests.forwarding.local_requests_world import Handler, local_world, started
from tests.forwarding.plane_world import LIST, LOCAL, METADATA, Peer, World, request, response, some_routes, world
from tests.forwarding.walk.test_gathering import STATUS, resident

INTRODUCTION = (METADATA, 1, b"\0\0\0\0")
"""Metadata v1 of no topics."""
INTRODUCED = request(METADATA, 1, 1, b"\xff\xff\0\0\0\0")
RESPONSE = response(1, b"\0\0\0\0\0\0\0\0\0\0\0\0")


def nobody_looks(_frame: memoryview) -> bool:
    raise AssertionError("looked into")


def inspecting(limits: Limits, serve_here: Any = nobody_looks, **options: Any) -> Any:
    return world(some_routes(inspect=Handler(), serve_here=serve_here), limits, **options)


def half(w: World, size: int, come: int) -> Peer:
    """A client that has sent a part of a request which is gathered."""
    client = w.client()
    client.send(request(LIST, 1, 1, bytes(size))[:come])
    w.iterate_until(lambda: w.plane.gathered.used >= come or w.events())
    return client


def test_a_request_is_bounded_until_the_broker_knows_the_client() -> None:
    """512 KiB as on a broker before SASL is done: beyond it the client is not read until a request has its response."""
    limits = Limits(unauthenticated_request_bytes=100_000)
    with inspecting(limits, lambda _: False, introduction=INTRODUCTION) as w:
        client, large = w.client(), request(LIST, 1, 7, bytes(500_000))
        client.send(large[:90_000])
        w.iterate_until(lambda: w.brokers)
        w.brokers[0].expect(INTRODUCED)
        for _ in range(20):
            w.iterate()
        assert w.plane.gathered.used <= 90_000
        w.brokers[0].send(RESPONSE)
        client.send(large[90_000:])
        w.brokers[0].expect(large)
        client.send(large)
        w.brokers[0].expect(large)  # requested once


def test_a_client_that_the_broker_does_not_know_gathers_nothing() -> None:
    limits = Limits(unauthenticated_request_bytes=100_000)
    with inspecting(limits, introduction=INTRODUCTION) as w:
        client = w.client()
        client.send(request(LIST, 1, 7, bytes(500_000))[:90_000])
        w.iterate_until(lambda: w.brokers)
        w.brokers[0].expect(INTRODUCED)
        w.brokers[0].close()
        client.expect_end()
        assert w.plane.gathered.used == 0


def test_nothing_is_decoded_before_the_broker_knows_the_client() -> None:
    handler = Handler()
    with local_world(handler, introduction=INTRODUCTION) as w:
        client = w.client()
        client.send(request(LOCAL, 1, 5))
        w.iterate_until(lambda: w.brokers)
        w.brokers[0].expect(INTRODUCED)
        assert handler.calls == []
        w.brokers[0].send(RESPONSE)
        started(w, handler)
        handler.results[0].set(response(5))
        client.expect(response(5))
        client.send(request(LOCAL, 1, 6))
        started(w, handler, 2)
        w.brokers[0].expect_silence()
        other = w.client()
        other.send(request(LOCAL, 1, 5))
        w.iterate_until(lambda: len(w.brokers) > 1)
        w.brokers[1].close()
        other.expect_end()
        assert len(handler.calls) == 2


def test_what_needs_no_authentication_is_served_before_the_broker_knows_the_client() -> None:
    """ApiVersions during SASL, where a request of the proxy's own would end the connection."""
    handler = Handler()
    with local_world(handler, introduction=INTRODUCTION) as w:
        name = LOCAL.to_bytes(2, "big") + (1).to_bytes(2, "big")
        w.plane.routes[name] = replace(w.plane.routes[name], needs_no_authentication=True)
        client = w.client()
        client.send(request(LOCAL, 1, 5))
        started(w, handler)
        handler.results[0].set(response(5))
        client.expect(response(5))
        assert not w.brokers


def test_half_requests_of_all_connections_have_one_limit() -> None:
    """The longest unfinished request makes room; the others, and short ones, continue."""
    with inspecting(Limits(gathered_total_bytes=1_000_000), lambda _: False) as w:
        first = half(w, 900_000, 200_000)
        longest = half(w, 900_000, 500_000)
        second = half(w, 900_000, 200_000)
        second.send(request(LIST, 1, 1, bytes(900_000))[200_000:400_000])
        longest.expect_end()
        assert w.events() == ["request-refused"]
        assert "limits.gathered_total_bytes (1000000)" in w.reason()
        assert w.plane.gathered.used == 600_000
        first.expect_silence()
        for client in (first, second):
            client.reset()
        w.iterate_until(lambda: w.plane.gathered.used == 0)


@pytest.mark.skipif(not STATUS.exists(), reason="resident memory is told by /proc")
def test_memory_of_an_ended_connection_is_released_immediately() -> None:
    """Other references do not matter: there may be no garbage collection for long."""
    gc.collect()
    gc.disable()
    try:
        with inspecting(Limits(gathered_total_bytes=8 << 20), lambda _: False) as w:
            before = resident()
            for _ in range(20):
                half(w, 4_000_000, 3_000_000)
            w.iterate_until(lambda: w.events().count("request-refused") >= 17)
            assert resident() - before < (8 << 20) + (8 << 20), "60 MB came; the clients are of this process, too"
    finally:
        gc.enable()


def test_the_newest_connection_ends_where_none_is_unfinished() -> None:
    """Responses that are being gathered are the brokers' to finish."""
    with world(limits=Limits(gathered_total_bytes=400_000)) as w:
        client, broker = w.pair()
        client.send(request(METADATA, 9, 2))
        broker.receive(12)
        broker.send(response(2, b"b" * 300_000)[:1000])
        w.iterate_until(lambda: w.plane.gathered.used == 300_008)
        other, other_broker = w.pair()
        other.send(request(METADATA, 9, 2))
        other_broker.receive(12)
        other_broker.send(response(2, b"b" * 300_000)[:1000])
        other.expect_end()
        assert "limits.gathered_total_bytes" in w.reason()
        broker.send(response(2, b"b" * 300_000)[1000:])
        assert client.frame()[4:] == b"B" * 300_000
        assert w.plane.gathered.used == 0


def test_a_rewritten_response_counts_until_its_client_has_read_it() -> None:
    with world(limits=Limits(gathered_total_bytes=12_000_000)) as w:
        pairs = [w.pair(), w.pair()]
        for client, broker in pairs:
            client.send(request(METADATA, 9, 2))
            broker.receive(12)
        pairs[0][1].send(response(2, b"b" * 10_000_000))
        w.iterate_until(lambda: 1_000_000 < w.plane.gathered.used < 10_000_000)
        pairs[1][1].send(response(2, b"b" * 10_000_000)[:1000])
        pairs[1][0].expect_end()
        assert "limits.gathered_total_bytes" in w.reason()
        assert len(pairs[0][0].frame()) == 10_000_004
        w.iterate_until(lambda: w.plane.gathered.used == 0)


def test_a_request_has_to_come_whole_in_time() -> None:
    with inspecting(Limits(gathering_s=1.0)) as w:
        client = half(w, 900_000, 1000)
        w.iterate_until(lambda: client.take() or client.ended)
        assert "limits.gathering_s (1)" in w.reason()
        assert w.plane.gathered.used == 0


def test_an_inspected_request_has_its_own_limit() -> None:
    with inspecting(Limits(inspected_request_bytes=1000)) as w:
        client = w.client()
        client.send(request(LIST, 1, 1, bytes(1000))[:50])
        client.expect_end()
        assert "limits.inspected_request_bytes" in w.reason()


def delete_groups(names: list[str]) -> bytes:
    return frames.request(42, 2, 7, "client", registry.message("DeleteGroupsRequest")(groups_names=names))


def decoding(handler: Any, **limits: Any) -> Any:
    """A world with one API that is decoded and served."""
    routes = Routes()
    routes.add(Route(kind=Kind.LOCAL, key=42, version=2, handler=handler))
    return world(routes, Limits(**limits))


def test_a_request_with_too_many_elements_is_refused_with_the_name_of_the_limit() -> None:
    handler = Handler()
    with decoding(handler, served_request_elements=5000) as w:
        client = w.client()
        client.send(delete_groups(["group"] * 5001))
        client.expect_end()
        assert w.reason() == "request 42 v2 has more elements than limits.served_request_elements (5000)"
        assert handler.calls == []
        assert w.events() == ["request-refused"]


def test_a_large_request_is_read_over_several_iterations_of_the_loop_and_then_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)  # a fast machine decodes all of it within two slices
    calls: list[Call] = []
    handler = Handler()
    with decoding(handler) as w:
        w.client().send(delete_groups(["g"] * 25_000))
        turns = 0
        while not handler.calls:
            w.iterate()
            turns += 1
        calls = handler.calls
        assert len(calls[0].message.groups_names) == 25_000
        assert turns > 20
        assert w.plane.gathered.used > 25_000
        handler.results[0].set(response(7))
        w.iterate_until(lambda: w.plane.gathered.used == 0)
