"""The upstream connection of a client: dial, bytes that wait for it, and what is sent after the client has left."""

from __future__ import annotations

from tests.forwarding.plane_world import (
    API_VERSIONS,
    FETCH,
    produce,
    request,
    world,
)


def test_each_client_has_its_own_upstream_connection() -> None:
    with world() as w:
        pairs = [w.pair() for _ in range(3)]
        for number, (client, _) in enumerate(pairs):
            client.send(request(FETCH, 11, number))
        for number, (_, broker) in enumerate(pairs):
            broker.expect(request(FETCH, 11, number))


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
        w.iterate_until(lambda: w.dials)
        client.close()
        for _ in range(5):
            w.iterate()
        w.dials[0]()
        w.iterate_until(lambda: w.brokers)
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
        w.iterate_until(lambda: w.dials)
        client.send(request(FETCH, 11, 2, b"two"))
        for _ in range(3):
            w.iterate()
        w.dials[0]()
        w.iterate_until(lambda: w.brokers)
        w.brokers[0].expect(request(FETCH, 11, 1, b"one") + request(FETCH, 11, 2, b"two"))
