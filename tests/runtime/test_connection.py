"""One client connection and its upstream connection: forwarding, rewriting, back-pressure, the end."""

from __future__ import annotations

import random
import socket
import struct

import pytest

from proxy.cluster.routes import Kind, Route
from proxy.errors import AnswerUnusable
from proxy.values import Limits
from tests.runtime.plane_world import (
    API_VERSIONS,
    FETCH,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    UPSTREAM,
    World,
    answer,
    produce,
    request,
    some_routes,
    world,
)


def test_bytes_pass_both_ways_unchanged_and_nothing_is_dialled_before_the_first() -> None:
    with world() as w:
        client = w.client()
        assert w.dialled == []
        client.send(request(FETCH, 11, 7, b"request"))
        w.turn_until(lambda: w.brokers)
        w.brokers[0].expect(request(FETCH, 11, 7, b"request"))
        w.brokers[0].send(answer(7, b"answer"))
        client.expect(answer(7, b"answer"))
        assert w.dialled == [[UPSTREAM]]


def test_each_client_has_an_upstream_connection_of_its_own() -> None:
    with world() as w:
        pairs = [w.pair() for _ in range(3)]
        for number, (client, _) in enumerate(pairs):
            client.send(request(FETCH, 11, number))
        for number, (_, broker) in enumerate(pairs):
            broker.expect(request(FETCH, 11, number))


def test_many_requests_in_one_read_are_one_write() -> None:
    """A broker that is written to in pieces reads in pieces, and that costs it (anchors: up to 1.7 times)."""
    with world() as w:
        client, broker = w.pair()
        burst = b"".join(request(FETCH, 11, n, bytes(50)) for n in range(200))
        client.send(burst)
        w.turn_until(lambda: len(broker.take()) >= len(burst))
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
            w.turn()
        broker.expect(requests)
        answers = answer(1) + answer(2, b"two") + answer(4, b"rewritten") + answer(5, bytes(60))
        for at in range(0, len(answers), size):
            broker.send(answers[at : at + size])
            w.turn()
        client.expect(answer(1) + answer(2, b"two") + answer(4, b"REWRITTEN") + answer(5, bytes(60)))


def test_large_frames_pass_as_they_come() -> None:
    with world() as w:
        client, broker = w.pair()
        body = random.Random(1).randbytes(3_000_000)
        client.send(request(FETCH, 11, 1, body[:1000]))
        broker.expect(request(FETCH, 11, 1, body[:1000]))
        whole = answer(1, body)
        broker.send(whole[:1_000_000])
        client.receive(1_000_000)
        broker.send(whole[1_000_000:])
        assert client.receive(len(whole) - 1_000_000) == whole[1_000_000:]


def test_only_answers_of_their_kind_are_rewritten_in_the_middle_of_others() -> None:
    with world() as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1) + request(METADATA, 9, 2) + request(METADATA, 9, 3) + request(FETCH, 11, 4))
        broker.receive(4 * 12)
        broker.send(answer(1, b"a") + answer(2, b"b") + answer(3) + answer(4, b"d"))
        client.expect(answer(1, b"a") + answer(2, b"B") + answer(3) + answer(4, b"d"))


def test_an_answer_larger_than_the_receive_buffer_is_gathered_and_rewritten() -> None:
    with world() as w:
        client, broker = w.pair()
        client.send(request(METADATA, 9, 2))
        broker.receive(12)
        broker.send(answer(2, b"b" * 1_000_000) + answer(9))
        client.expect(answer(2, b"B" * 1_000_000))


def test_an_answer_too_large_to_be_gathered_ends_the_connection_with_a_reason() -> None:
    with world(limits=Limits(collected_bytes=1000)) as w:
        client, broker = w.pair()
        client.send(request(METADATA, 9, 2))
        broker.receive(12)
        broker.send(answer(2, b"b" * 1001)[:100])
        client.expect_end()
        assert "limits.collected_bytes" in w.reason()


def test_an_answer_that_may_not_pass_ends_the_connection_and_what_was_before_it_passes() -> None:
    def refuse(_frame: memoryview, _context: object) -> bytes:
        raise AnswerUnusable("it names broker 7, which has no listener")

    with world(some_routes(rewrite=refuse)) as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1) + request(METADATA, 9, 2))
        broker.receive(24)
        broker.send(answer(1, b"good") + answer(2, b"broker.internal"))
        client.expect(answer(1, b"good"))
        client.expect_end()
        assert w.reason() == "it names broker 7, which has no listener"


def test_a_burst_without_acks_leaves_nothing_behind() -> None:
    with world() as w:
        client, broker = w.pair()
        for _ in range(50):
            client.send(b"".join(produce(n, 0, 20) for n in range(100)))
        client.send(request(METADATA, 9, 1))
        broker.receive(50 * 100 * len(produce(0, 0, 20)) + 12)
        assert w.plane.statistics().in_flight == 1
        broker.send(answer(1, b"metadata"))
        client.expect(answer(1, b"METADATA"))


def test_a_request_that_is_amended_passes_with_other_bytes_and_the_answer_by_the_route_it_named() -> None:
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
        w.turn()
        client.send(request(HEARTBEAT, 4, 9, b"secret")[15:] + request(FETCH, 11, 10))
        broker.expect(request(HEARTBEAT, 4, 9, bytes(6)) + request(FETCH, 11, 10))
        broker.send(answer(9, b"low") + answer(10, b"low"))
        client.expect(answer(9, b"LOW") + answer(10, b"low"))


def test_an_api_nobody_knows_ends_the_connection_with_a_reason_and_no_other() -> None:
    with world() as w:
        client, _ = w.pair()
        other, _ = w.pair()
        client.send(request(9999, 0, 1))
        client.expect_end()
        assert (w.notes[-1][0], w.reason()) == ("request-refused", "API key 9999 version 0 is not known here")
        other.send(request(FETCH, 11, 1))
        w.brokers[1].expect(request(FETCH, 11, 1))


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


@pytest.mark.parametrize("garbage", [answer(99), b"\x15\x03\x03\x00\x02\x02\x46\x00", struct.pack(">ii", -9, 1)])
def test_a_broker_that_answers_nonsense_loses_its_client(garbage: bytes) -> None:
    with world() as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1))
        broker.receive(12)
        broker.send(garbage)
        client.expect_end()
        broker.expect_end()
        assert w.events() == ["upstream-protocol-error"]


def test_an_answer_nobody_asked_for_ends_the_connection() -> None:
    with world() as w:
        client, broker = w.pair()
        broker.send(answer(1))
        client.expect_end()
        assert "nobody asked" in w.reason()


def test_a_broker_that_closes_takes_its_client_along_after_its_last_bytes() -> None:
    with world() as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1, b"x"))
        broker.receive(13)
        broker.send(answer(1, bytes(10_000)))
        broker.close()
        client.expect(answer(1, bytes(10_000)))
        client.expect_end()


def test_a_broker_that_closes_while_the_client_does_not_read_is_passed_on_whole() -> None:
    with world() as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1))
        broker.receive(12)
        whole = answer(1, random.Random(2).randbytes(20_000_000))
        view, sent = memoryview(whole), 0
        for _ in range(200):
            try:
                sent += broker.sock.send(view[sent:])
            except BlockingIOError:
                w.turn()
        assert sent < len(whole)
        broker.close()
        assert client.receive(sent) == whole[:sent]
        client.expect_end()


@pytest.mark.parametrize("farewell", ["close", "reset", "half"])
def test_a_client_that_leaves_takes_its_upstream_connection_along(farewell: str) -> None:
    with world() as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1))
        broker.receive(12)
        if farewell == "half":
            client.sock.shutdown(socket.SHUT_WR)
        else:
            client.close() if farewell == "close" else client.reset()
        broker.expect_end()
        assert w.plane.statistics().connections == 0


def test_what_a_leaving_client_sent_reaches_a_broker_that_is_slow_to_read() -> None:
    """acks=0 records are not lost because their producer closed."""
    with world() as w:
        client, broker = w.pair()
        records = b"".join(produce(n, 0, 9000) for n in range(300))
        client.send(records)
        client.close()
        assert broker.receive(len(records)) == records
        broker.expect_end()


def test_what_a_client_sent_before_there_was_a_broker_reaches_it_even_if_the_client_has_left() -> None:
    with world() as w:
        w.hold_dials = True
        client = w.client()
        client.send(produce(1, 0))
        w.turn_until(lambda: w.dials)
        client.close()
        for _ in range(5):
            w.turn()
        w.dials[0]()
        w.turn_until(lambda: w.brokers)
        w.brokers[0].expect(produce(1, 0))
        w.brokers[0].expect_end()


def test_an_upstream_that_cannot_be_reached_ends_the_client_with_a_reason() -> None:
    with world() as w:
        w.refuse_dials = OSError("broker.test:9092: Connection refused")
        client = w.client()
        client.send(request(API_VERSIONS, 3, 1))
        client.expect_end()
        assert (w.notes[-1][0], w.reason()) == ("upstream-unreachable", "broker.test:9092: Connection refused")


def test_bytes_that_come_while_dialling_wait_in_order() -> None:
    with world() as w:
        w.hold_dials = True
        client = w.client()
        client.send(request(FETCH, 11, 1, b"one"))
        w.turn_until(lambda: w.dials)
        client.send(request(FETCH, 11, 2, b"two"))
        for _ in range(3):
            w.turn()
        w.dials[0]()
        w.turn_until(lambda: w.brokers)
        w.brokers[0].expect(request(FETCH, 11, 1, b"one") + request(FETCH, 11, 2, b"two"))


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
                w.turn()
        assert sent < len(frame)
        assert w.plane.statistics().unsent_bytes <= 512 * 1024
        assert broker.receive(sent) == frame[:sent]
        client.send(frame[sent:])
        broker.expect(frame[sent:])


def test_a_client_that_reads_nothing_stops_its_broker_and_no_other() -> None:
    with world() as w:
        client, broker = w.pair()
        other, other_broker = w.pair()
        client.send(request(FETCH, 11, 1))
        broker.receive(12)
        whole = answer(1, bytes(20_000_000))
        sent = stuck = 0
        while stuck < 20:
            try:
                sent += broker.sock.send(memoryview(whole)[sent : sent + 1_000_000])
                stuck = 0
            except BlockingIOError:
                stuck += 1
                w.turn()
        assert sent < len(whole)
        assert w.plane.statistics().unsent_bytes <= 512 * 1024
        other.send(request(FETCH, 11, 1))
        other_broker.expect(request(FETCH, 11, 1))
        assert client.receive(sent) == whole[:sent]


def test_both_ways_stalled_at_once_go_on_again() -> None:
    """Neither side reads while it sends: nothing is lost, nothing locks up."""
    with world() as w:
        client, broker = w.pair()
        up = b"".join(request(FETCH, 11, n, bytes(200_000)) for n in range(60))
        client.send(request(FETCH, 11, 1000))
        broker.receive(12)
        down = answer(1000, bytes(12_000_000))
        sent_up = sent_down = stuck = 0
        while stuck < 20:
            stuck += 1
            for _ in range(2):
                try:
                    sent_up += (count := client.sock.send(memoryview(up)[sent_up : sent_up + 500_000]))
                    sent_down += (more := broker.sock.send(memoryview(down)[sent_down : sent_down + 500_000]))
                    stuck = 0 if count + more else stuck
                except BlockingIOError:
                    w.turn()
        assert client.receive(sent_down) == down[:sent_down]
        assert broker.receive(sent_up) == up[:sent_up]


def test_requests_past_the_limit_in_flight_are_not_read() -> None:
    with world(limits=Limits(in_flight_requests=10)) as w:
        client, broker = w.pair()
        client.send(b"".join(request(FETCH, 11, n) for n in range(11)))
        broker.receive(11 * 12)
        client.send(request(FETCH, 11, 11))
        broker.expect_silence()
        broker.send(answer(0))
        broker.expect(request(FETCH, 11, 11))
        client.expect(answer(0))


def test_a_client_too_many_is_closed_with_a_note() -> None:
    with world(limits=Limits(connections=2)) as w:
        kept = [w.client(), w.client()]
        sock = socket.create_connection(("127.0.0.1", w.port))
        third = w.peer(sock)
        third.expect_end()
        assert w.events() == ["connection-limit"]
        kept[0].close()
        w.turn_until(lambda: w.plane.statistics().connections == 1)
        w.client()


def test_an_exception_in_one_connection_touches_no_other() -> None:
    def broken(_frame: memoryview, _context: object) -> bytes:
        raise ZeroDivisionError("a bug")

    with world(some_routes(rewrite=broken)) as w:
        client, broker = w.pair()
        other, other_broker = w.pair()
        client.send(request(METADATA, 9, 1))
        broker.receive(12)
        broker.send(answer(1, b"x"))
        client.expect_end()
        assert w.events() == ["connection-failed"]
        assert isinstance(w.notes[-1][1]["error"], ZeroDivisionError)
        other.send(request(FETCH, 11, 1))
        other_broker.expect(request(FETCH, 11, 1))


def test_routes_that_change_count_for_connections_that_exist() -> None:
    with world() as w:
        client, _broker = w.pair()
        del w.routes[b"\x00\x0c\x00\x04"]
        w.routes = some_routes()
        w.routes.add(Route(kind=Kind.REFUSE, key=HEARTBEAT, version=4, reason="no longer"))
        w.plane.refresh_routes()
        client.send(request(HEARTBEAT, 4, 1))
        client.expect_end()
        assert w.reason() == "no longer"


def test_hundreds_of_connections_at_once() -> None:
    with world() as w:
        pairs = [w.pair() for _ in range(300)]
        for number, (client, _) in enumerate(pairs):
            client.send(request(FETCH, 11, number))
        for number, (_, broker) in enumerate(pairs):
            broker.expect(request(FETCH, 11, number))
            broker.send(answer(number, b"%d" % number))
        for number, (client, _) in enumerate(pairs):
            client.expect(answer(number, b"%d" % number))
        assert w.plane.statistics().connections == 300


def test_figures_add_up_after_connections_have_gone() -> None:
    with world() as w:
        client, broker = w.pair()
        client.send(produce(1, 1, 50))
        broker.receive(len(produce(1, 1, 50)))
        assert w.plane.statistics().in_flight == 1
        broker.send(answer(1, b"ok"))
        client.receive(10)
        client.close()
        w.turn_until(lambda: not w.plane.statistics().connections)
        figures = w.plane.statistics()
        assert figures.bytes_up == 12 + len(produce(1, 1, 50))
        assert figures.bytes_down == 8 + 10
        assert figures.ended == {"connection-closed": 1}


@pytest.mark.parametrize("seed", range(30))
def test_a_client_that_sends_any_bytes_ends_or_goes_on_and_the_loop_lives(seed: int) -> None:
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
            w.turn()
        assert set(w.events()) <= {"client-protocol-error", "request-refused", "connection-closed"}
        survivor, broker = w.pair()
        survivor.send(request(FETCH, 11, 1))
        broker.expect(request(FETCH, 11, 1))


def test_the_world_of_these_tests_notices_silence() -> None:
    """The tests can fail: bytes that never come are an error."""
    with world() as w:
        client, _ = w.pair()
        with pytest.raises(AssertionError, match="never came about"):
            w.turn_until(lambda: client.take(), limit_s=0.05)
    assert isinstance(w, World)
    assert PRODUCE == 0
