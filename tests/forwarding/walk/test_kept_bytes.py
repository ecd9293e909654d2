"""Received bytes that wait for one of the next turns: order, fairness, memory."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from kafka_share_proxy.forwarding.dispatch.routes import Context
from kafka_share_proxy.forwarding.walk import kept_bytes
from kafka_share_proxy.forwarding.walk.kept_bytes import NOTHING, READ_AFTER_PAUSE, keep, memory_of
from kafka_share_proxy.forwarding.walk.walk import INSPECTIONS_MAX
from kafka_share_proxy.loop.reactor import RECEIVE_BYTES, SHARE_S, SPREAD_S

from tests.forwarding import plane_world
from tests.forwarding.plane_world import FETCH, LIST, LOCAL, METADATA, PRODUCE, Peer, World, request, response, world

SLOW_S = 2 * SHARE_S
"""Duration of a slow request: the share of its connection is used up after each."""
IN_ONE_TURN = 2 + int(SPREAD_S / SLOW_S)
"""Most slow requests in one turn: one as it is received, then those of `SPREAD_S`, the last of which may begin late."""
MANY = 60


class Slow:
    """Counts what it takes part in, and takes its time for each."""

    def __init__(self) -> None:
        self.count = 0

    def rewrite(self, frame: memoryview, context: Context) -> bytes | None:
        self._work()
        return plane_world.rewrite(frame, context)

    def serve_here(self, _frame: memoryview) -> bool:
        self._work()
        return False

    async def local(self, call: Any) -> bytes:
        self._work()
        return response(call.correlation_id, b"here")

    def _work(self) -> None:
        self.count += 1
        time.sleep(SLOW_S)


async def never(_call: Any) -> None:
    raise AssertionError("nothing inspected here is served here")


def slow_world(slow: Slow, **options: Any) -> Any:
    handlers = {"rewrite": slow.rewrite, "inspect": never, "serve_here": slow.serve_here, "local": slow.local}
    return world(plane_world.some_routes(**handlers), **options)


def counts_by_turn(w: World, slow: Slow, until: Callable[[], object]) -> list[int]:
    """How many slow requests were treated in each turn."""
    counts = [slow.count]
    deadline = time.monotonic() + plane_world.LIMIT_S
    while not until():
        assert time.monotonic() < deadline
        w.iterate()
        counts.append(slow.count)
    return [after - before for before, after in pairwise(counts)]


def test_rewritten_responses_are_spread_over_iterations_and_others_are_forwarded_in_between() -> None:
    slow = Slow()
    with slow_world(slow) as w:
        (client, broker), (other, its_broker) = w.pair(), w.pair()
        client.send(b"".join(request(METADATA, 9, n) for n in range(MANY)))
        broker.receive(MANY * 12)
        broker.send(b"".join(response(n, b"body%d" % n) for n in range(MANY)))
        w.iterate_until(lambda: slow.count)
        assert w.plane.statistics().gathered_bytes > 0, "bytes that wait are counted"
        other.send(request(FETCH, 11, 1))
        its_broker.expect(request(FETCH, 11, 1))
        assert slow.count < MANY, "the other client did not wait for all of them"
        expected = b"".join(response(n, b"BODY%d" % n) for n in range(MANY))
        counts = counts_by_turn(w, slow, lambda: len(client.take()) >= len(expected))
        assert max(counts) <= IN_ONE_TURN
        client.expect(expected)
        assert w.plane.statistics().gathered_bytes == 0


def test_inspected_requests_are_spread_over_iterations_and_order_is_kept() -> None:
    slow = Slow()
    with slow_world(slow) as w:
        client, broker = w.pair()
        burst = b"".join(request(LIST if n % 3 else FETCH, 1, n) for n in range(4 * MANY))
        client.send(burst)
        counts = counts_by_turn(w, slow, lambda: len(broker.take()) >= len(burst))
        assert max(counts) <= 4 * INSPECTIONS_MAX, "as it is received, as the walk begins, and twice in its turn"
        broker.expect(burst)
        assert w.plane.statistics().gathered_bytes == 0


def test_local_requests_of_many_connections_share_the_iterations() -> None:
    slow = Slow()
    with slow_world(slow) as w:
        clients = [w.client() for _ in range(8)]
        for client in clients:
            client.send(b"".join(request(LOCAL, 1, n) for n in range(10)))
        expected = b"".join(response(n, b"here") for n in range(10))
        w.iterate_until(lambda: slow.count >= len(clients))  # the first of each is served as it is received
        counts = counts_by_turn(w, slow, lambda: all(len(client.take()) >= len(expected) for client in clients))
        assert max(counts) <= IN_ONE_TURN
        for client in clients:
            client.expect(expected)


def test_many_connections_with_something_to_rewrite_get_one_response_each_before_they_queue() -> None:
    slow = Slow()
    with slow_world(slow) as w:
        pairs = [w.pair() for _ in range(6)]
        for client, broker in pairs:
            client.send(b"".join(request(METADATA, 9, n) for n in range(10)))
            broker.receive(120)
        for _, broker in pairs:
            broker.send(b"".join(response(n, b"body") for n in range(10)))
        expected = b"".join(response(n, b"BODY") for n in range(10))
        counts = counts_by_turn(w, slow, lambda: all(len(client.take()) >= len(expected) for client, _ in pairs))
        assert max(counts) <= len(pairs) + IN_ONE_TURN


def test_a_client_that_leaves_while_its_requests_wait_has_them_forwarded() -> None:
    slow = Slow()
    with slow_world(slow) as w:
        client, broker = w.pair()
        burst = b"".join(request(LIST, 1, n) for n in range(MANY))
        client.send(burst)
        w.iterate_until(lambda: slow.count)
        client.close()
        w.iterate_until(lambda: len(broker.take()) >= len(burst))
        broker.expect(burst)


def test_a_broker_that_leaves_while_its_responses_wait_has_them_forwarded() -> None:
    slow = Slow()
    with slow_world(slow) as w:
        client, broker = w.pair()
        client.send(b"".join(request(METADATA, 9, n) for n in range(MANY)))
        broker.receive(MANY * 12)
        broker.send(b"".join(response(n, b"body") for n in range(MANY)))
        broker.close()
        client.expect(b"".join(response(n, b"BODY") for n in range(MANY)))
        client.expect_end()


def test_a_client_that_ends_while_responses_wait_leaves_no_bytes() -> None:
    slow = Slow()
    with slow_world(slow) as w:
        client, broker = w.pair()
        client.send(b"".join(request(METADATA, 9, n) for n in range(MANY)))
        broker.receive(MANY * 12)
        broker.send(b"".join(response(n, b"body") for n in range(MANY)))
        w.iterate_until(lambda: slow.count)
        client.reset()
        w.iterate_until(lambda: not w.plane.statistics().connections)
        assert w.plane.statistics().gathered_bytes == 0
        assert slow.count < MANY


def test_responses_wait_until_the_client_takes_what_it_was_sent() -> None:
    with world() as w:
        w.reactor.share_ends = w.reactor.later_share_ends = lambda: 0.0  # type: ignore[method-assign]  # a pause after each
        client, broker = w.pair()
        count, size = 500, 50_000  # more than the kernel keeps on the way
        client.send(b"".join(request(METADATA, 9, n) for n in range(count)))
        broker.receive(count * 12)
        unsent, data = 0, memoryview(b"".join(response(n, b"a" * size) for n in range(count)))
        for _ in range(200):  # until nothing moves
            try:
                unsent += broker.sock.send(data[unsent:])
            except BlockingIOError:
                w.iterate()
        assert unsent < len(data)
        statistics = w.plane.statistics()
        assert statistics.unsent_bytes + statistics.gathered_bytes <= 3 * RECEIVE_BYTES
        broker.send(bytes(data[unsent:]))
        client.expect(b"".join(response(n, b"A" * size) for n in range(count)))


def test_a_client_whose_bytes_had_to_wait_is_read_less_at_a_time() -> None:
    """This many connections that pipeline do not keep a receive buffer each."""
    slow = Slow()
    with slow_world(slow) as w:
        client, broker = w.pair()
        frame = request(LIST, 1, 1, bytes(2000))
        sent = w.peer(client.sock.dup())
        sent.send(frame * 20)  # the first is a whole receive buffer at most
        sent.send(frame * 100)
        w.iterate_until(lambda: slow.count > 25)
        assert w.plane.statistics().gathered_bytes <= 2 * READ_AFTER_PAUSE
        broker.expect(frame * 120)
        client.send(request(FETCH, 11, 1))
        broker.expect(request(FETCH, 11, 1))


def some_stream(random_: random.Random) -> list[tuple[bytes, bytes, bytes]]:
    """Return requests, the broker's responses, and the client's responses; the last two are empty if there is none."""
    exchanges = []
    for number in range(40):
        body = random_.randbytes(random_.choice((0, 5, 50, 3000)))
        kind = random_.randrange(5)
        if kind == 0:
            exchanges.append((request(LOCAL, 1, number, body), b"", response(number, b"here")))
        elif kind == 1:
            exchanges.append((request(LIST, 1, number, body), response(number, body), response(number, body)))
        elif kind == 2:
            exchanges.append((request(METADATA, 9, number), response(number, b"x" * 90), response(number, b"X" * 90)))
        elif kind == 3:
            requested = request(PRODUCE, 7, number, struct.pack(">hhh", -1, -1, 0) + body)
            exchanges.append((requested, b"", b""))
        else:
            exchanges.append((request(FETCH, 11, number, body), response(number, body), response(number, body)))
    return exchanges


@pytest.mark.parametrize("seed", range(12))
def test_any_mix_of_requests_keeps_its_order_with_a_pause_after_each_frame(seed: int) -> None:
    random_ = random.Random(seed)

    async def local(call: Any) -> bytes:
        return response(call.correlation_id, b"here")

    handlers = {"local": local, "inspect": never, "serve_here": lambda _frame: False}
    with world(plane_world.some_routes(**handlers)) as w:
        w.reactor.share_ends = w.reactor.later_share_ends = lambda: 0.0  # type: ignore[method-assign]
        client, broker = w.pair()
        stream = some_stream(random_)
        _send_in_pieces(client, b"".join(requested for requested, _, _ in stream), random_)
        forwarded = [(requested, back) for requested, back, got in stream if back or not got]
        responded = 0
        while responded < len(forwarded):  # local requests wait for the requests before them
            requested, back = forwarded[responded]
            broker.expect(requested)
            _send_in_pieces(broker, back, random_)
            responded += 1
        client.expect(b"".join(got for _, _, got in stream))
        assert w.plane.statistics().gathered_bytes == 0


def _send_in_pieces(peer: Peer, data: bytes, random_: random.Random) -> None:
    at = 0
    while at < len(data):
        size = random_.choice((1, 7, 100, 5000, 100_000))
        peer.send(data[at : at + size])
        at += size
        if random_.random() < 0.2:
            peer.world.iterate()


def test_bytes_are_copied_out_of_the_shared_buffer_and_later_only_when_half_is_unused() -> None:
    shared = memoryview(bytearray(b"0123456789" * 10))
    retained_bytes = keep(shared, 20, 100, shared)
    shared[20:100] = bytes(80)
    assert (bytes(retained_bytes[:5]), len(retained_bytes), memory_of(retained_bytes)) == (b"01234", 80, 80)
    more = keep(retained_bytes, 30, 80, shared)
    assert (len(more), memory_of(more)) == (50, 80)
    less = keep(more, 12, 50, shared)
    assert (len(less), memory_of(less)) == (38, 38)
    less[0] = 1  # a look may change bytes in place
    assert keep(less, 38, 38, shared) is NOTHING
    assert memory_of(kept_bytes.NOTHING) == 0
