"""Bytes that are no Kafka request end their own connection, with a log line and a count, and touch no other."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.records import records

from tests.support.blocking_connection import Connection, build
from tests.support.brokers import Running
from tests.support.raw import Raw, address, until

pytestmark = pytest.mark.broker

WAIT_S = 30
SERVED_S = 20
"""Twenty small requests of another client, on a starved machine too."""


def _tls_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="kafka.test")
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


NO_REQUESTS = {
    "tls-hello": _tls_hello(),
    "http": b"GET / HTTP/1.1\r\nHost: kafka.test\r\n\r\n",
    "negative-size": struct.pack(">i", -5) + b"abcde",
    "size-of-nothing": struct.pack(">i", 0),
    "oversized": struct.pack(">i", (100 << 20) + 1) + bytes(100),
    "unknown-api": struct.pack(">ihhih", 10, 9999, 0, 7, -1),
    "unknown-version": struct.pack(">ihhih", 10, 3, 99, 7, -1),
    "broken-share-fetch": struct.pack(">ihhih", 14, 78, 2, 7, -1) + b"\xff\xff\xff\xff",
}


@pytest.fixture(scope="module")
def quiet(running: Running, kafka_39: Cluster) -> Front:
    """A proxy that logged nothing in the last minute: the number of lines of one kind per minute is limited.

    It is ready before it logs that it serves, so the last line of its start is awaited.
    """
    front = running.front(
        kafka_39.bootstrap, {"commits": {"state": "memory"}, "share_groups": {"serve": "local", "state": "memory"}}
    )
    until(lambda: any("] serving " in line for line in _log(front)), "the last line of the start")
    return front


@pytest.mark.parametrize("name", sorted(NO_REQUESTS))
def test_no_request(quiet: Front, name: str) -> None:
    """The connection ends, one line says so, and a connection that was open before continues."""
    with Raw(quiet.bootstrap) as raw:
        raw.brokers()
        before = _log(quiet)
        assert _respond_until_the_end(quiet, NO_REQUESTS[name]) == b""
        reported = until(lambda: _log(quiet)[len(before) :], "a log line")
        assert len([line for line in reported if "warning" in line or "info" in line]) == 1, reported
        assert raw.brokers()


def _respond_until_the_end(front: Front, data: bytes) -> bytes:
    """Send, and read until the proxy closes; raises TimeoutError when it does not."""
    with socket.create_connection(address(front.bootstrap), WAIT_S) as connection:
        connection.sendall(data)
        response = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(4096):
                response += piece
        return response


def _log(front: Front) -> list[str]:
    return front.log.read_text().splitlines()


def test_truncated_request(front_39: Front) -> None:
    """A client that disconnects in the middle of a request leaves no resources allocated."""
    with socket.create_connection(address(front_39.bootstrap), WAIT_S) as connection:
        connection.sendall(struct.pack(">ihhih", 1000, 3, 12, 7, -1))
    with Raw(front_39.bootstrap) as raw:
        assert raw.brokers()


def test_client_that_does_not_read(front_39: Front, fresh: Callable[[str], str]) -> None:
    """A client that requests much and reads nothing is not read any further; other clients are served in the
    meantime.
    """
    with Raw(front_39.bootstrap) as raw:
        topic = raw.create_topic(fresh("topic"))
        raw.produce(topic, [b"x" * 900_000])
        requested = build("MetadataRequest", topics=None)
        deaf = Connection(raw.node(1), timeout_s=2)
        try:
            sent = 0
            with contextlib.suppress(TimeoutError):
                while sent < 200_000:
                    deaf.send(3, 12, requested)
                    sent += 1
            assert sent < 200_000
            began = time.monotonic()
            for _ in range(20):
                raw.brokers()
            assert time.monotonic() - began < SERVED_S
        finally:
            deaf.close()


def test_burst_without_acknowledgement(front_39: Front, fresh: Callable[[str], str]) -> None:
    """Requests without a response do not shift the responses to later requests."""
    with Raw(front_39.bootstrap) as raw:
        topic = raw.create_topic(fresh("topic"))
        connection = raw.kept(raw.node(1))
        batch = records.build_batch(0, [records.Record(value=b"value", timestamp=1)])
        part = {"name": topic.name, "partition_data": [{"index": 0, "records": batch}]}
        for _ in range(300):
            connection.send(0, 9, build("ProduceRequest", acks=0, timeout_ms=1000, topic_data=[part]))
        response = raw.send_request("Metadata", 12, on=connection, topics=[{"name": topic.name}])
        assert response.topics[0].name == topic.name
        until(lambda: raw.end_offset(topic) == 300, "all records")
