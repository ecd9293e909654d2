"""The way down: the broker's responses to the client."""

from __future__ import annotations

import random
import struct

import pytest
from kafka_share_proxy.forwarding.limits import Limits

from tests.forwarding.plane_world import FETCH, METADATA, request, response, world


def test_large_frames_pass_as_they_come() -> None:
    with world() as w:
        client, broker = w.pair()
        body = random.Random(1).randbytes(3_000_000)
        client.send(request(FETCH, 11, 1, body[:1000]))
        broker.expect(request(FETCH, 11, 1, body[:1000]))
        whole = response(1, body)
        broker.send(whole[:1_000_000])
        client.receive(1_000_000)
        broker.send(whole[1_000_000:])
        assert client.receive(len(whole) - 1_000_000) == whole[1_000_000:]


@pytest.mark.parametrize("size", [1_000_000, 6_000_000])
def test_a_response_larger_than_the_receive_buffer_is_gathered_and_rewritten(size: int) -> None:
    """Also one for which there is not room in advance."""
    with world() as w:
        client, broker = w.pair()
        client.send(request(METADATA, 9, 2) + request(FETCH, 11, 3))
        broker.receive(24)
        broker.send(response(2, b"b" * size) + response(3))
        client.expect(response(2, b"B" * size) + response(3))


@pytest.mark.parametrize("size", [300_000, 1_500_000, 4_194_304, 6_000_000])
@pytest.mark.parametrize("piece", [77_777, 262_144, 1_000_001])
def test_a_response_in_small_pieces_is_collected_whole(size: int, piece: int) -> None:
    """The kernel reports less than a large part of it only at the end; the bytes after it are reported again
    immediately.
    """
    with world() as w:
        client, broker = w.pair()
        client.send(request(METADATA, 9, 2))
        broker.receive(12)
        whole = response(2, b"b" * size)
        for start in range(0, len(whole), piece):
            broker.send(whole[start : start + piece])
            w.iterate()
        client.expect(response(2, b"B" * size))
        client.send(request(FETCH, 11, 3))
        broker.receive(12)
        broker.send(response(3))
        client.expect(response(3))


def test_received_bytes_of_a_collected_response_are_read_within_a_second_or_two_even_if_little_follows() -> None:
    """The kernel may never have as much as the requested low-water mark."""
    with world() as w:
        client, broker = w.pair()
        client.send(request(METADATA, 9, 2))
        broker.receive(12)
        broker.send(response(2, b"b" * 3_000_000)[:800_000])
        (connection,) = w.plane._connections.values()
        w.iterate_until(
            lambda: connection.responses.gathering is not None and connection.responses.gathering.missing == 2_200_008
        )


@pytest.mark.parametrize("come", [100, 300_000, 1_500_000])
def test_a_broker_that_disconnects_within_a_collected_response_ends_its_client(come: int) -> None:
    with world() as w:
        client, broker = w.pair()
        client.send(request(METADATA, 9, 2))
        broker.receive(12)
        broker.send(response(2, b"b" * 3_000_000)[:come])
        for _ in range(3):
            w.iterate()
        broker.close()
        client.expect_end()


def test_a_response_too_large_to_be_gathered_ends_the_connection_with_a_reason() -> None:
    with world(limits=Limits(collected_bytes=1000)) as w:
        client, broker = w.pair()
        client.send(request(METADATA, 9, 2))
        broker.receive(12)
        broker.send(response(2, b"b" * 1001)[:100])
        client.expect_end()
        assert "limits.collected_bytes" in w.reason()


@pytest.mark.parametrize("garbage", [response(99), b"\x15\x03\x03\x00\x02\x02\x46\x00", struct.pack(">ii", -9, 1)])
def test_a_broker_that_returns_nonsense_loses_its_client(garbage: bytes) -> None:
    with world() as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1))
        broker.receive(12)
        broker.send(garbage)
        client.expect_end()
        broker.expect_end()
        assert w.events() == ["upstream-protocol-error"]


def test_a_response_without_a_request_ends_the_connection() -> None:
    with world() as w:
        client, broker = w.pair()
        broker.send(response(1))
        client.expect_end()
        assert "belongs to no request" in w.reason()


def test_a_client_that_reads_nothing_stops_its_broker_and_no_other() -> None:
    with world() as w:
        client, broker = w.pair()
        other, other_broker = w.pair()
        client.send(request(FETCH, 11, 1))
        broker.receive(12)
        whole = response(1, bytes(20_000_000))
        sent = stuck = 0
        while stuck < 20:
            try:
                sent += broker.sock.send(memoryview(whole)[sent : sent + 1_000_000])
                stuck = 0
            except BlockingIOError:
                stuck += 1
                w.iterate()
        assert sent < len(whole)
        assert w.plane.statistics().unsent_bytes <= 512 * 1024
        other.send(request(FETCH, 11, 1))
        other_broker.expect(request(FETCH, 11, 1))
        assert client.receive(sent) == whole[:sent]


def test_a_broker_that_closes_while_the_client_does_not_read_is_passed_on_whole() -> None:
    with world() as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1))
        broker.receive(12)
        whole = response(1, random.Random(2).randbytes(20_000_000))
        view, sent = memoryview(whole), 0
        for _ in range(200):
            try:
                sent += broker.sock.send(view[sent:])
            except BlockingIOError:
                w.iterate()
        assert sent < len(whole)
        broker.close()
        assert client.receive(sent) == whole[:sent]
        client.expect_end()
