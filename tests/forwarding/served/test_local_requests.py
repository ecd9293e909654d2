"""Requests served here: the muted channel, and what becomes of it at the end."""

from __future__ import annotations

import socket
import time
import traceback
from typing import Any

import pytest
from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata
from kafka_share_proxy.brokers.connection_slots import OptionalSlot
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.loop.promise import running
from kafka_share_proxy.reading.chunk_cache import ReadKey
from kafka_share_proxy.reading.upstream_fetch import PartitionRead
from kafka_share_proxy.views.fetch.base_reads import ViewRead
from kafka_share_proxy.views.fetch.shared_reads import ViewReads
from kafka_share_proxy.views.fetch.view_chunks import ViewCache
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import RemoteProtocolError, UpstreamLost

from tests.forwarding.local_requests_world import Handler, local_world, started
from tests.forwarding.plane_world import (
    FETCH,
    LIST,
    LOCAL,
    METADATA,
    Peer,
    World,
    produce,
    request,
    response,
    some_routes,
    world,
)
from tests.support.scripted_cluster import Log


def test_a_local_request_is_served_here_and_never_forwarded() -> None:
    handler = Handler()
    with local_world(handler) as w:
        client = w.client()
        client.send(request(LOCAL, 1, 5, b"body"))
        call = started(w, handler)
        assert (call.key, call.version, call.correlation_id) == (LOCAL, 1, 5)
        assert bytes(call.message) == request(LOCAL, 1, 5, b"body")[4:]
        assert call.connection.client_host == "127.0.0.1"
        handler.results[0].set(response(5, b"from here"))
        client.expect(response(5, b"from here"))
        assert w.dialled == []
        assert w.plane.statistics().local_answers_total == 1


def test_how_long_a_local_request_took_is_reported() -> None:
    """The duration counts from the complete request to its response, waits for earlier responses included; a forwarded
    one has none.
    """
    handler = Handler()
    served: list[tuple[int, float]] = []
    with local_world(handler, served=lambda key, took_s: served.append((key, took_s))) as w:
        client = w.client()
        client.send(request(LOCAL, 1, 5))
        started(w, handler)
        assert served == []
        time.sleep(0.05)
        handler.results[0].set(response(5))
        client.expect(response(5))
        ((key, took_s),) = served
        assert key == LOCAL
        assert 0.05 <= took_s < 5


def test_it_starts_when_every_earlier_response_is_written() -> None:
    """An earlier Fetch is parked at the broker: the local request waits, and its lock does not run."""
    handler = Handler()
    with local_world(handler) as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1) + request(METADATA, 9, 2) + request(LOCAL, 1, 3))
        broker.receive(24)
        client.expect_silence()
        broker.send(response(1))
        client.expect(response(1))
        assert handler.calls == []
        broker.send(response(2, b"half")[:9])
        client.expect_silence()
        assert handler.calls == []
        broker.send(response(2, b"half")[9:])
        client.expect(response(2, b"HALF"))
        started(w, handler)
        handler.results[0].set(response(3))
        client.expect(response(3))


def test_a_half_passed_response_counts_as_not_written() -> None:
    handler = Handler()
    with local_world(handler) as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1) + request(LOCAL, 1, 2))
        broker.receive(12)
        broker.send(response(1, bytes(100))[:50])
        client.receive(50)
        client.expect_silence()
        assert handler.calls == []
        broker.send(response(1, bytes(100))[50:])
        started(w, handler)


def test_nothing_after_it_is_read_until_its_response_is_written() -> None:
    handler = Handler()
    with local_world(handler) as w:
        client, broker = w.pair()
        client.send(request(LOCAL, 1, 1) + request(FETCH, 11, 2) + request(LOCAL, 1, 3) + request(FETCH, 11, 4))
        started(w, handler)
        client.send(request(FETCH, 11, 5))
        broker.expect_silence()
        handler.results[0].set(response(1, b"first"))
        client.expect(response(1, b"first"))
        broker.expect(request(FETCH, 11, 2))
        assert len(handler.calls) == 1
        broker.send(response(2))
        started(w, handler, 2)
        handler.results[1].set(response(3, b"second"))
        client.expect(response(2) + response(3, b"second"))
        broker.expect(request(FETCH, 11, 4) + request(FETCH, 11, 5))


def test_records_without_acks_before_it_are_passed_on_first() -> None:
    handler = Handler()
    with local_world(handler) as w:
        client, broker = w.pair()
        burst = b"".join(produce(n, 0, 5000) for n in range(200))
        client.send(burst + request(LOCAL, 1, 3))
        for _ in range(10):
            w.iterate()
        assert handler.calls == []
        broker.expect(burst)
        started(w, handler)


def test_a_flood_after_a_muted_request_is_not_read() -> None:
    """At most one receive buffer is kept."""
    handler = Handler()
    with local_world(handler) as w:
        client, broker = w.pair()
        client.send(request(LOCAL, 1, 1))
        started(w, handler)
        flood = b"".join(request(FETCH, 11, n, bytes(1000)) for n in range(8000))
        sent = stuck = 0
        while stuck < 20:
            try:
                sent += client.sock.send(memoryview(flood)[sent : sent + 500_000])
            except BlockingIOError:
                stuck += 1
                w.iterate()
        assert sent < len(flood)
        handler.results[0].set(response(1))
        client.expect(response(1))
        assert broker.receive(sent) == flood[:sent]


def test_a_large_local_request_is_gathered_and_one_too_large_refused() -> None:
    handler = Handler()
    with local_world(handler, Limits(served_request_bytes=600_000)) as w:
        client = w.client()
        client.send(request(LOCAL, 1, 1, bytes(500_000)))
        started(w, handler)
        other = w.client()
        other.send(request(LOCAL, 1, 1, bytes(600_000))[:50])
        other.expect_end()
        assert "limits.served_request_bytes" in w.reason()


def test_a_request_larger_than_those_served_here_is_refused_at_its_head() -> None:
    """Its objects would take many times its bytes, before any rights are checked."""
    handler = Handler()
    with local_world(handler, Limits(served_request_bytes=1000)) as w:
        client = w.client()
        client.send(request(LOCAL, 1, 1, bytes(1000))[:50])
        client.expect_end()
        assert "of 1008 bytes is larger than limits.served_request_bytes (1000)" in w.reason()
        assert handler.calls == []


@pytest.mark.parametrize("is_ours", [True, False])
def test_an_inspected_request_may_be_larger_only_where_it_passes_on(is_ours: bool) -> None:
    handler = Handler()
    routes = some_routes(inspect=handler, serve_here=lambda frame: is_ours)
    with world(routes, Limits(served_request_bytes=1000)) as w:
        client = w.client()
        large = request(LIST, 1, 1, bytes(1000))
        client.send(large)
        if is_ours:
            client.expect_end()
            assert "limits.served_request_bytes" in w.reason()
        else:
            w.iterate_until(lambda: w.brokers)
            w.brokers[0].expect(large)
        assert handler.calls == []


def test_a_client_that_leaves_while_muted_ends_everything_immediately() -> None:
    handler = Handler()
    closed: list[str] = []
    with local_world(handler) as w:
        client, broker = w.pair()
        client.send(request(LOCAL, 1, 1) + request(FETCH, 11, 2))
        call = started(w, handler)
        call.connection.on_close(lambda: closed.append("told"))
        client.close()
        broker.expect_end()
        assert handler.ended == [1]
        assert closed == ["told"]
        handler.results[0].set(response(1))
        assert w.plane.statistics().connections == 0


def test_a_client_that_leaves_while_its_request_still_waits_ends_immediately() -> None:
    handler = Handler()
    with local_world(handler) as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1) + request(LOCAL, 1, 2))
        broker.receive(12)
        client.expect_silence()
        client.sock.shutdown(socket.SHUT_WR)
        broker.expect_end()
        assert handler.calls == []


def test_a_broker_that_goes_while_a_local_request_runs_ends_the_client_immediately() -> None:
    handler = Handler()
    with local_world(handler) as w:
        client, broker = w.pair()
        client.send(request(LOCAL, 1, 1))
        started(w, handler)
        broker.close()
        client.expect_end()
        assert handler.ended == [1]


def test_on_close_of_a_connection_that_has_ended_is_called_immediately() -> None:
    handler = Handler()
    durations: list[int] = []
    with local_world(handler) as w:
        client = w.client()
        client.send(request(LOCAL, 1, 1))
        call = started(w, handler)
        client.close()
        w.iterate_until(lambda: not w.plane.statistics().connections)
        call.connection.on_close(lambda: durations.append(1))
        assert durations == [1]


GRANTED = OptionalSlot[str]()


def test_slots_are_a_connections_own() -> None:
    handler = Handler()
    with local_world(handler) as w:
        first, second = w.client(), w.client()
        first.send(request(LOCAL, 1, 1))
        GRANTED.put(started(w, handler).connection, "granted")
        second.send(request(LOCAL, 1, 1))
        assert GRANTED.of(started(w, handler, 2).connection) is None
        assert GRANTED.of(handler.calls[0].connection) == "granted"
        assert handler.calls[0].connection.id != handler.calls[1].connection.id


def test_a_handler_that_fails_ends_its_connection_with_a_note() -> None:
    handler = Handler()
    with local_world(handler) as w:
        client = w.client()
        client.send(request(LOCAL, 1, 1))
        started(w, handler)
        handler.results[0].fail(ZeroDivisionError("a bug"))
        client.expect_end()
        assert w.events() == ["handler-failed"]


@pytest.mark.parametrize(
    ("error", "event"),
    [(RemoteProtocolError("no such request"), "client-protocol-error"), (UpstreamLost("gone"), "connection-closed")],
)
def test_errors_of_a_handler_are_distinguished(error: Exception, event: str) -> None:
    handler = Handler()
    with local_world(handler) as w:
        client = w.client()
        client.send(request(LOCAL, 1, 1))
        started(w, handler)
        handler.results[0].fail(error)
        client.expect_end()
        assert w.events() == [event]


def test_a_request_whose_bytes_cannot_be_decoded_ends_the_connection() -> None:
    routes = some_routes(local=Handler())
    for name, route in list(routes.items()):
        if route.key == LOCAL:
            routes[name] = type(route)(kind=route.kind, key=LOCAL, version=route.version, handler=route.handler)
    with world(routes) as w:
        client = w.client()
        client.send(request(LOCAL, 1, 1, b"\x00\x02me\x00\xff\xff\xff\xff"))
        client.expect_end()
        assert w.events() == ["client-protocol-error"]


def test_an_inspected_request_is_served_here_or_passed_on_in_order() -> None:
    handler = Handler()
    routes = some_routes(inspect=handler, serve_here=lambda frame: bytes(frame[8:]) == b"ours")
    with world(routes) as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1) + request(LIST, 0, 2, b"theirs") + request(LIST, 0, 3, b"ours"))
        broker.expect(request(FETCH, 11, 1) + request(LIST, 0, 2, b"theirs"))
        broker.send(response(1) + response(2, b"list"))
        client.expect(response(1) + response(2, b"list"))
        started(w, handler)
        handler.results[0].set(response(3, b"our list"))
        client.expect(response(3, b"our list"))


def test_a_handler_that_returns_none_forwards_the_request_unchanged() -> None:
    handler = Handler()
    with local_world(handler) as w:
        client, broker = w.pair()
        client.send(request(LOCAL, 1, 1, b"body") + request(FETCH, 11, 2))
        started(w, handler)
        handler.results[0].set(None)
        broker.expect(request(LOCAL, 1, 1, b"body") + request(FETCH, 11, 2))
        broker.send(response(1, b"theirs") + response(2))
        client.expect(response(1, b"theirs") + response(2))


def slow_client(w: World, handler: Handler, size: int) -> Peer:
    client = w.client()
    client.send(request(LOCAL, 1, 1))
    started(w, handler, len(handler.calls) + 1)
    before = w.plane.budget.used
    handler.results[-1].set(response(1, bytes(size)))
    w.iterate_until(lambda: w.plane.budget.used > before)
    return client


def test_a_local_response_counts_until_the_kernel_has_it() -> None:
    handler = Handler()
    with local_world(handler) as w:
        client = slow_client(w, handler, 20_000_000)
        assert w.plane.budget.used == 20_000_008
        client.receive(20_000_008)
        w.iterate_until(lambda: w.plane.budget.used == 0)


def test_a_local_response_leaves_the_account_with_its_connection() -> None:
    handler = Handler()
    with local_world(handler) as w:
        client = slow_client(w, handler, 20_000_000)
        client.close()
        w.iterate_until(lambda: w.plane.budget.used == 0)


def test_a_client_that_reads_no_byte_of_a_local_response_is_closed() -> None:
    handler = Handler()
    with local_world(handler, Limits(stalled_client_s=1.0)) as w:
        slow_client(w, handler, 20_000_000)
        w.iterate_until(lambda: w.events() == ["client-stalled"])
        assert w.plane.budget.used == 0


def test_a_client_that_takes_a_little_now_and_then_is_not_closed() -> None:
    handler = Handler()
    with local_world(handler, Limits(stalled_client_s=1.0)) as w:
        client = slow_client(w, handler, 40_000_000)
        for _ in range(3):
            before = w.reactor.now()
            w.iterate_until(lambda before=before: w.reactor.now() > before + 0.8)  # type: ignore[misc]
            client.take()
        assert w.events() == []


def test_a_silent_client_is_closed_with_its_upstream_but_not_while_it_waits_for_a_response() -> None:
    handler = Handler()
    with local_world(handler, Limits(idle_client_s=1.0)) as w:
        client, broker = w.pair()
        waiting, other_broker = w.pair()
        waiting.send(request(FETCH, 11, 1))
        broker.expect_end()
        client.expect_end()
        assert w.reason() == "client idle"
        w.iterate()
        assert other_broker.take() == request(FETCH, 11, 1)
        assert not other_broker.ended


class SharedRead:
    """A local handler: the first request reads a base partition upstream, all others wait for that read."""

    def __init__(self) -> None:
        self.reads = ViewReads(ViewCache(1 << 20, 10.0))
        self.key = ReadKey(b"t" * 16, 0, False)
        self.services: Any = None
        self.calls: list[Call] = []
        self.raised_in: list[object] = []
        self.resumed_in: list[tuple[object, list[str]]] = []

    async def __call__(self, call: Call) -> bytes:
        self.calls.append(call)
        if len(self.calls) == 1:
            head = PartitionRead(self.key, "t", 0, 5, 1 << 20)
            options: Any = {"wait_s": 0.5, "max_bytes": 1 << 20, "read_committed": False}
            read = ViewRead(call.connection, self.services, self.reads, [head], (), **options)
            read.done.on_settled(self.fails)
        flight = self.reads.flight(self.key, 0, 5, 0.5, self.services.timers.now())
        assert flight is not None
        await flight.done
        self.resumed_in.append((running(), [frame.name for frame in traceback.extract_stack()]))
        return response(call.correlation_id, bytes(flight.chunks[self.key].records))

    def fails(self) -> None:
        self.raised_in.append(running())
        raise ZeroDivisionError("a bug")

    def build_services(self, w: World) -> None:
        self.services = Services(
            limits=Limits(),
            timers=w.reactor,
            notes=w.note,
            book=AddressBook(20000, "proxy.example", lambda *_: True),
            topology=ClusterMetadata(),
            versions=EffectiveVersions(Offer()),
            responses=w.plane.budget,
            slices=w.plane.slices,
        )


def respond_fetch(broker: Peer, records: bytes) -> None:
    """Respond as the broker to the Fetch that the proxy sends on a client's connection."""
    header, fetch = frames.decode_request(memoryview(broker.frame()))
    message = registry.message("FetchResponse")
    (topic,), version = fetch.topics, header.version
    entry = message.PartitionData(partition_index=0, error_code=0, high_watermark=2, records=records)
    topic_response = message.FetchableTopicResponse(topic_id=topic.topic_id, partitions=[entry])
    broker.send(frames.response(FETCH, version, header.correlation_id, message(responses=[topic_response])))


def test_a_waiter_of_a_shared_read_that_raises_ends_its_own_connection_only() -> None:
    """Two clients wait for one Fetch, sent on the connection of the first."""
    handler = SharedRead()
    records = Log(leader=1)
    records.append(2)
    with local_world(handler) as w:
        handler.build_services(w)
        first, broker = w.pair()
        first.send(request(LOCAL, 1, 1))
        w.iterate_until(lambda: len(handler.calls) == 1)
        second, other_broker = w.pair()
        second.send(request(LOCAL, 1, 2))
        w.iterate_until(lambda: len(handler.calls) == 2)
        respond_fetch(broker, records.batches[0][2])
        second.expect(response(2, records.batches[0][2]))
        first.expect_end()
        assert w.events() == ["connection-failed"]
        connections = [call.connection for call in handler.calls]
        assert handler.raised_in == connections[:1]
        ((resumed_in, stack),) = handler.resumed_in
        assert resumed_in is connections[1]
        assert "_arrived" not in stack
        second.send(request(FETCH, 11, 3))
        other_broker.expect(request(FETCH, 11, 3))
