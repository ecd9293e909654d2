"""One link: it ends when the other side is silent, does not listen, or is none of the fleet."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
import trio
from kafka_share_proxy.fleet import peer_link
from kafka_share_proxy.fleet.peer_link import PeerLink
from kafka_share_proxy.fleet.peer_protocol import NONCE_BYTES, PeerProtocol
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.transports import PlainTransport
from kafka_share_proxy.wire.definitions import registry

from tests.support.conditions import until

LIMIT_S = 10.0


class User:
    """Received messages, and the reason of the end."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.reasons: list[str] = []

    def receive(self, message: Any) -> None:
        if type(message).__name__ == "PeerForget":
            raise ZeroDivisionError
        self.messages.append(message)

    def lost(self, reason: str) -> None:
        self.reasons.append(reason)


class End:
    """One end of a link."""

    def __init__(self, reactor: Reactor, sock: socket.socket, *, dials: bool) -> None:
        self.user = User()
        self.ended = self.rejoins = 0
        """Number of reported ends, and of rejoins of the other side."""
        self.events: list[str] = []
        protocol = PeerProtocol("x:1", None, bytes([dials]) * NONCE_BYTES, dials=dials)
        self.link = PeerLink(
            reactor,
            PlainTransport(reactor, sock),
            protocol,
            lambda event, **_context: self.events.append(event),
            lambda: 7,
            lambda _link: self.user,
            self._end,
            self._rejoin,
        )

    def _rejoin(self) -> None:
        self.rejoins += 1

    def _end(self, _link: PeerLink) -> None:
        self.ended += 1


def play(test: Callable[..., Any]) -> None:
    reactor = Reactor(new_pump)
    try:
        reactor.run(lambda: test(reactor))
    finally:
        reactor.shut()


def closed(number: int) -> Any:
    return registry.message("PeerClosed")(connection_id=number)


def test_an_end_with_unread_messages_is_reported_as_any_other() -> None:
    """The kernel then resets the connection."""

    async def test(reactor: Reactor) -> None:
        left, right = socket.socketpair()
        a, b = End(reactor, left, dials=True), End(reactor, right, dials=False)
        await until(lambda: a.link.user and b.link.user)
        right.send(b"unread")
        a.link.close("enough")
        await until(lambda: b.ended)
        assert b.user.reasons == ["the other proxy closed the link"]

    play(test)


def test_messages_pass_and_the_end_is_reported_to_both() -> None:
    async def test(reactor: Reactor) -> None:
        left, right = socket.socketpair()
        a, b = End(reactor, left, dials=True), End(reactor, right, dials=False)
        await until(lambda: a.link.user and b.link.user)
        a.link.send(closed(1))
        b.link.send(registry.message("PeerResponse")(id=2, frame=bytes(10 << 20)))
        await until(lambda: a.user.messages and b.user.messages)
        assert len(a.user.messages[0].frame) == 10 << 20
        a.link.close("enough")
        a.link.close("twice")
        a.link.send(closed(2))
        await until(lambda: b.ended)
        assert (a.user.reasons, b.user.reasons) == (["enough"], ["the other proxy closed the link"])
        assert (a.ended, b.ended) == (1, 1)
        assert a.events == ["peer-linked", "peer-lost"]

    play(test)


def test_a_message_to_a_closed_link_ends_it_with_the_same_reason() -> None:
    """A ping may be due before the end of the stream is read."""

    async def test(reactor: Reactor) -> None:
        left, right = socket.socketpair()
        a, b = End(reactor, left, dials=True), End(reactor, right, dials=False)
        await until(lambda: a.link.user and b.link.user)
        left.shutdown(socket.SHUT_RDWR)
        b.link.ping()
        b.link._flush()
        assert b.user.reasons == ["the other proxy closed the link"]
        assert b.ended == 1

    play(test)


def test_link_outlives_messages_of_unknown_kinds_which_are_reported_once() -> None:
    async def test(reactor: Reactor) -> None:
        left, right = socket.socketpair()
        a, b = End(reactor, left, dials=True), End(reactor, right, dials=False)
        await until(lambda: a.link.user and b.link.user)
        for number in range(3):
            a.link._queue(a.link.protocol._framed(100, number.to_bytes(8, "big")))
        a.link.send(closed(1))
        await until(lambda: b.user.messages and len(a.user.messages) == 3)
        assert [(message.kind, message.id) for message in a.user.messages] == [(100, 0), (100, 1), (100, 2)]
        assert b.events == ["peer-linked", "peer-message-unknown"]
        assert (a.ended, b.ended) == (0, 0)
        a.link.close("over")
        b.link.close("over")

    play(test)


def test_request_that_an_earlier_version_does_not_know_is_refused_without_being_sent() -> None:
    async def test(reactor: Reactor) -> None:
        left, right = socket.socketpair()
        a, b = End(reactor, left, dials=True), End(reactor, right, dials=False)
        await until(lambda: a.link.user and b.link.user)
        query = registry.message("PeerGroupKnownRequest")(id=5, feature="f", group_id="g")
        a.link.protocol.peer_kinds = kind = a.link.protocol.kind_of(query)
        a.link.send(query)
        await until(lambda: a.user.messages)
        assert [(message.kind, message.id) for message in a.user.messages] == [(kind, 5)]
        a.link.send(closed(1))
        await until(lambda: b.user.messages)
        assert [type(message).__name__ for message in b.user.messages] == ["PeerClosed"]
        a.link.close("over")
        b.link.close("over")

    play(test)


def test_internal_error_ends_the_link_and_is_logged() -> None:
    async def test(reactor: Reactor) -> None:
        left, right = socket.socketpair()
        a, b = End(reactor, left, dials=True), End(reactor, right, dials=False)
        await until(lambda: a.link.user and b.link.user)
        a.link.send(registry.message("PeerForget")(chunks=[1]))
        await until(lambda: b.ended)
        assert b.events == ["peer-linked", "callback-failed", "peer-lost"]

    play(test)


def test_the_other_side_is_notified_of_a_rejoin() -> None:
    async def test(reactor: Reactor) -> None:
        left, right = socket.socketpair()
        a, b = End(reactor, left, dials=True), End(reactor, right, dials=False)
        await until(lambda: a.link.user and b.link.user)
        a.link.ping()
        a.link.ping(rejoins=True)
        a.link.send(closed(1))
        await until(lambda: b.user.messages)
        assert (a.rejoins, b.rejoins) == (0, 1)
        assert [type(message).__name__ for message in b.user.messages] == ["PeerClosed"]
        a.link.close("over")
        b.link.close("over")

    play(test)


def test_all_links_ping_at_the_same_times() -> None:
    """So an idle worker wakes up once for all of them."""
    times = [100.0 + 0.07 * number for number in range(20)]
    following = [peer_link.next_common(now, 0.5) for now in times]
    assert all(now < at <= now + 0.5 for now, at in zip(times, following, strict=True))
    assert {at % 0.5 for at in following} == {0.0}


@pytest.mark.parametrize("reported", [b"", b"GET / HTTP/1.1\r\n\r\n"])
def test_link_without_a_proof_in_time_is_closed(reported: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_link, "HANDSHAKE_S", 0.1)
    monkeypatch.setattr(peer_link, "PING_S", 0.05)

    async def test(reactor: Reactor) -> None:
        left, right = socket.socketpair()
        a = End(reactor, left, dials=False)
        right.sendall(reported)
        await until(lambda: a.ended)
        assert a.events == ["peer-refused"]
        right.close()

    play(test)


def test_link_ends_if_the_other_side_is_silent_or_stops_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_link, "SILENT_S", 0.4)
    monkeypatch.setattr(peer_link, "PING_S", 0.1)
    monkeypatch.setattr(peer_link, "UNSENT_BYTES_MAX", 4 << 20)

    async def test(reactor: Reactor) -> None:
        left, right = socket.socketpair()
        a, b = End(reactor, left, dials=True), End(reactor, right, dials=False)
        await until(lambda: a.link.user and b.link.user)
        await trio.sleep(0.6)
        assert not a.ended, "pings are signs of life"
        b.link._transport.want(0)
        b.link._alarm.cancel()
        for number in range(8):
            a.link.send(registry.message("PeerResponse")(id=number, frame=bytes(1 << 20)))
        assert a.user.reasons == ["the other proxy does not read what is sent"]
        b.link.close("over")
        left, right = socket.socketpair()
        c, d = End(reactor, left, dials=True), End(reactor, right, dials=False)
        await until(lambda: c.link.user and d.link.user)
        d.link._transport.want(0)
        d.link._alarm.cancel()
        await until(lambda: c.ended)
        assert "silent" in c.user.reasons[0]
        d.link.close("over")

    play(test)
