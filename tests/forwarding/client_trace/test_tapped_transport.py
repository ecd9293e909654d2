"""A transport whose bytes are observed is otherwise the one that it wraps."""

from __future__ import annotations

import socket

import pytest
from kafka_share_proxy.forwarding.client_trace.tapped_transport import TappedTransport
from kafka_share_proxy.loop.polling import READ
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.transports import PlainTransport


def test_bytes_that_passed_are_observed_and_no_others() -> None:
    ours, theirs = socket.socketpair()
    reactor = Reactor()
    received: list[bytes] = []
    sent: list[bytes] = []
    tapped = TappedTransport(
        PlainTransport(reactor, ours), lambda data: received.append(bytes(data)), lambda data: sent.append(bytes(data))
    )
    buffer = memoryview(bytearray(100))
    with pytest.raises(BlockingIOError):
        tapped.recv_into(buffer)
    theirs.sendall(b"request")
    assert (tapped.recv_into(buffer), tapped.send(b"response")) == (7, 8)
    assert (received, sent, theirs.recv(100)) == ([b"request"], [b"response"], b"response")
    large = bytes(1 << 24)
    accepted = tapped.send(large)
    assert accepted < len(large)
    assert len(sent[1]) == accepted
    theirs.close()
    reactor.shut()
    ours.close()


def test_events_and_the_end_are_those_of_the_socket() -> None:
    ours, theirs = socket.socketpair()
    reactor = Reactor()
    tapped = TappedTransport(PlainTransport(reactor, ours), lambda _data: None, lambda _data: None)
    events: list[int] = []
    tapped.attach(events.append, 0)
    tapped.wait_for(1)
    theirs.sendall(b"x")
    reactor.iterate(0.01)
    assert events == []
    tapped.want(READ)
    reactor.iterate(1)
    assert events == [READ]
    tapped.send_eof()
    assert theirs.recv(1) == b""
    assert tapped.discard_received() is False
    theirs.close()
    assert tapped.discard_received() is True
    tapped.close()
    reactor.iterate(0)
    assert ours.fileno() == -1
    reactor.shut()
