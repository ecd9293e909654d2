"""The way up: the client's requests to the broker."""

from __future__ import annotations

import random
import struct

import pytest
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Route
from kafka_share_proxy.forwarding.limits import Limits

from tests.forwarding.plane_world import FETCH, HEARTBEAT, METADATA, produce, request, response, some_routes, world


def test_many_requests_in_one_read_are_one_write() -> None:
    """A broker that is written to in pieces reads in pieces, and takes more CPU (forwarding/README.md rule 3)."""
    with world() as w:
        client, broker = w.pair()
        burst = b"".join(request(FETCH, 11, n, bytes(50)) for n in range(200))
        client.send(burst)
        w.iterate_until(lambda: len(broker.take()) >= len(burst))
        assert broker.data == burst


@pytest.mark.parametrize("size", [1, 3, 7, 11, 13, 1000])
def test_frames_cut_anywhere_pass_in_order(size: int) -> None:
    with world() as w:
        client, broker = w.pair()
        requests = b"".join(
            (
                request(FETCH, 11, 1),
                produce(2, 1),
                produce(3, 0),
                request(METADATA, 9, 4),
                request(FETCH, 11, 5, bytes(50)),
            )
        )
        for at in range(0, len(requests), size):
            client.send(requests[at : at + size])
            w.iterate()
        broker.expect(requests)
        responses = response(1) + response(2, b"two") + response(4, b"rewritten") + response(5, bytes(60))
        for at in range(0, len(responses), size):
            broker.send(responses[at : at + size])
            w.iterate()
        client.expect(response(1) + response(2, b"two") + response(4, b"REWRITTEN") + response(5, bytes(60)))


def test_a_burst_without_acks_leaves_no_expected_response() -> None:
    with world() as w:
        client, broker = w.pair()
        for _ in range(50):
            client.send(b"".join(produce(n, 0, 20) for n in range(100)))
        client.send(request(METADATA, 9, 1))
        broker.receive(50 * 100 * len(produce(0, 0, 20)) + 12)
        assert w.plane.statistics().in_flight == 1
        broker.send(response(1, b"metadata"))
        client.expect(response(1, b"METADATA"))


def test_a_broker_that_reads_nothing_stops_the_client_and_memory_stays_flat() -> None:
    with world() as w:
        client, broker = w.pair()
        flood = random.Random(3).randbytes(20_000_000)
        frame = request(FETCH, 11, 1, flood)
        sent = stuck = 0
        while stuck < 20:
            try:
                sent += client.sock.send(memoryview(frame)[sent : sent + 1_000_000])
                stuck = 0
            except BlockingIOError:
                stuck += 1
                w.iterate()
        assert sent < len(frame)
        assert w.plane.statistics().unsent_bytes <= 512 * 1024
        assert broker.receive(sent) == frame[:sent]
        client.send(frame[sent:])
        broker.expect(frame[sent:])


def test_requests_past_the_limit_in_flight_are_not_read() -> None:
    with world(limits=Limits(in_flight_requests=10)) as w:
        client, broker = w.pair()
        client.send(b"".join(request(FETCH, 11, n) for n in range(11)))
        broker.receive(11 * 12)
        client.send(request(FETCH, 11, 11))
        broker.expect_silence()
        broker.send(response(0))
        broker.expect(request(FETCH, 11, 11))
        client.expect(response(0))


@pytest.mark.parametrize(
    ("garbage", "word"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (struct.pack(">i", -2), "negative"),
        (struct.pack(">i", 200 << 20) + bytes(8), "larger than the limit"),
        (struct.pack(">i", 3) + b"abc", "too short"),
    ],
)
def test_garbage_ends_its_connection_with_one_clear_note(garbage: bytes, word: str) -> None:
    with world() as w:
        client = w.client()
        client.send(garbage)
        client.expect_end()
        assert w.events() == ["client-protocol-error"]
        assert word in w.reason()
        assert w.plane.statistics().ended == {"client-protocol-error": 1}


def test_an_amended_request_passes_with_other_bytes_and_the_response_by_the_route_it_named() -> None:
    routes = some_routes()

    def capitals(frame: memoryview, _context: object) -> bytes:
        return struct.pack(">i", len(frame)) + bytes(frame[:4]) + bytes(frame[4:]).upper()

    def amend(frame: memoryview) -> Route:
        frame[8:] = bytes(len(frame) - 8)
        return Route(kind=Kind.FORWARD, key=HEARTBEAT, version=4, rewrite=capitals)

    routes.add(Route(kind=Kind.FORWARD, key=HEARTBEAT, version=4, amend=amend))
    with world(routes) as w:
        client, broker = w.pair()
        client.send(request(HEARTBEAT, 4, 9, b"secret")[:15])
        w.iterate()
        client.send(request(HEARTBEAT, 4, 9, b"secret")[15:] + request(FETCH, 11, 10))
        broker.expect(request(HEARTBEAT, 4, 9, bytes(6)) + request(FETCH, 11, 10))
        broker.send(response(9, b"low") + response(10, b"low"))
        client.expect(response(9, b"LOW") + response(10, b"low"))


@pytest.mark.parametrize("seed", range(30))
def test_arbitrary_bytes_of_a_client_never_end_the_loop(seed: int) -> None:
    """The fuzz invariant of the whole path."""
    rng = random.Random(seed)
    with world() as w:
        client, _ = w.pair()
        data = bytearray(
            b"".join(produce(n, n % 2) + request(FETCH, 11, n) + request(METADATA, 9, n) for n in range(5))
        )
        for _ in range(3):
            data[rng.randrange(len(data))] = rng.randrange(256)
        client.send(bytes(data))
        for _ in range(5):
            w.iterate()
        assert set(w.events()) <= {"client-protocol-error", "request-refused", "connection-closed"}
        survivor, broker = w.pair()
        survivor.send(request(FETCH, 11, 1))
        broker.expect(request(FETCH, 11, 1))


def test_routes_that_change_count_for_connections_that_exist() -> None:
    with world() as w:
        client, _broker = w.pair()
        del w.routes[b"\x00\x0c\x00\x04"]
        changed_routes = some_routes()
        changed_routes.add(Route(kind=Kind.REFUSE, key=HEARTBEAT, version=4, reason="no longer"))
        w.plane.use_routes(changed_routes)
        client.send(request(HEARTBEAT, 4, 1))
        client.expect_end()
        assert w.reason() == "no longer"
