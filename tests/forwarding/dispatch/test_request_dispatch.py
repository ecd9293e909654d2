"""SASL passes through: raw tokens after handshake v0, SaslAuthenticate after v1, what the proxy may ask meanwhile."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from kafka_share_proxy.brokers import rights
from kafka_share_proxy.forwarding.served import injected_requests
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry

from tests.forwarding.plane_world import (
    FETCH,
    HEARTBEAT,
    LOCAL,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Peer,
    World,
    request,
    response,
    some_routes,
    world,
)


def token(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def handshake(version: int, correlation_id: int, mechanism: str = "PLAIN") -> bytes:
    message = registry.message("SaslHandshakeRequest")(mechanism=mechanism)
    return frames.request(SASL_HANDSHAKE, version, correlation_id, "client", message)


def handshake_response(version: int, correlation_id: int, error_code: int = 0) -> bytes:
    message = registry.message("SaslHandshakeResponse")(error_code=error_code, mechanisms=["PLAIN"])
    return frames.response(SASL_HANDSHAKE, version, correlation_id, message)


def authenticate(version: int, correlation_id: int, data: bytes = b"\0user\0pass") -> bytes:
    message = registry.message("SaslAuthenticateRequest")(auth_bytes=data)
    return frames.request(SASL_AUTHENTICATE, version, correlation_id, "client", message)


def authenticate_response(version: int, correlation_id: int, error_code: int = 0, lifetime_ms: int = 0) -> bytes:
    message = registry.message("SaslAuthenticateResponse")(error_code=error_code, auth_bytes=b"")
    if version >= 1:
        message.session_lifetime_ms = lifetime_ms
    return frames.response(SASL_AUTHENTICATE, version, correlation_id, message)


def exchange(client: Peer, broker: Peer, sent: bytes, responded: bytes) -> None:
    client.send(sent)
    broker.expect(sent)
    broker.send(responded)
    client.expect(responded)


CONVERSATIONS = {
    "PLAIN": [(b"\0user\0pass", b"")],
    "SCRAM-SHA-256": [(b"n,,n=user,r=abc", b"r=abcdef,s=QSXCR+Q6sek8bf92,i=4096"), (b"c=biws,r=abcdef,p=x", b"v=y")],
    "OAUTHBEARER": [(b"n,,\x01auth=Bearer x\x01\x01", b"")],
}


@pytest.mark.parametrize("mechanism", CONVERSATIONS)
def test_raw_tokens_pass_after_handshake_v0_and_requests_after_them(mechanism: str) -> None:
    with world() as w:
        client, broker = w.pair()
        exchange(client, broker, handshake(0, 1, mechanism), handshake_response(0, 1))
        for sent, responded in CONVERSATIONS[mechanism]:
            exchange(client, broker, token(sent), token(responded))
        exchange(client, broker, request(FETCH, 11, 5), response(5, b"fetched"))
        client.send(request(METADATA, 9, 6))
        broker.expect(request(METADATA, 9, 6))
        broker.send(response(6, b"rewritten"))
        client.expect(response(6, b"REWRITTEN"))


def test_a_token_without_a_response_does_not_shift_the_responses_after_it() -> None:
    """GSSAPI ends with a token of the client."""
    with world() as w:
        client, broker = w.pair()
        exchange(client, broker, handshake(0, 1, "GSSAPI"), handshake_response(0, 1))
        exchange(client, broker, token(b"\x60\x82" + bytes(300)), token(b"\x60\x33" + bytes(50)))
        exchange(client, broker, token(b""), token(b"\x05\x04\x05\xff" + bytes(28)))
        client.send(token(b"\x05\x04\x04\xff" + bytes(28)))
        broker.expect(token(b"\x05\x04\x04\xff" + bytes(28)))
        exchange(client, broker, request(FETCH, 11, 5), response(5))
        client.send(request(METADATA, 9, 6))
        broker.expect(request(METADATA, 9, 6))
        broker.send(response(6, b"x"))
        client.expect(response(6, b"X"))


def test_tokens_sent_without_waiting_for_the_handshake_wait_here() -> None:
    with world() as w:
        client, broker = w.pair()
        client.send(handshake(0, 1) + token(b"\0user\0pass"))
        broker.expect(handshake(0, 1))
        broker.expect_silence()
        broker.send(handshake_response(0, 1))
        client.expect(handshake_response(0, 1))
        broker.expect(token(b"\0user\0pass"))
        broker.send(token(b""))
        client.expect(token(b""))


def test_tokens_and_handshake_cut_into_bytes_pass() -> None:
    with world() as w:
        client, broker = w.pair()
        for byte in handshake(0, 1):
            client.send(bytes([byte]))
            w.iterate()
        broker.expect(handshake(0, 1))
        broker.send(handshake_response(0, 1))
        client.expect(handshake_response(0, 1))
        for byte in token(b"\0user\0pass") + request(FETCH, 11, 2, b"body"):
            client.send(bytes([byte]))
            w.iterate()
        broker.expect(token(b"\0user\0pass") + request(FETCH, 11, 2, b"body"))


def test_a_mechanism_that_is_refused_is_not_followed_by_tokens() -> None:
    with world() as w:
        client, broker = w.pair()
        exchange(client, broker, handshake(0, 1, "NONE"), handshake_response(0, 1, error_code=33))
        exchange(client, broker, handshake(0, 2), handshake_response(0, 2))
        exchange(client, broker, token(b"\0user\0pass"), token(b""))


def test_a_wrong_password_ends_as_the_broker_ends_it() -> None:
    with world() as w:
        client, broker = w.pair()
        exchange(client, broker, handshake(1, 1), handshake_response(1, 1))
        client.send(authenticate(2, 2))
        broker.expect(authenticate(2, 2))
        broker.send(authenticate_response(2, 2, error_code=58))
        broker.close()
        client.expect(authenticate_response(2, 2, error_code=58))
        client.expect_end()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_authentication_and_re_authentication_pass_in_the_middle_of_traffic(version: int) -> None:
    with world() as w:
        client, broker = w.pair()
        for correlation_id in (10, 20):
            exchange(client, broker, handshake(1, correlation_id), handshake_response(1, correlation_id))
            exchange(
                client,
                broker,
                authenticate(version, correlation_id + 1),
                authenticate_response(version, correlation_id + 1, lifetime_ms=60_000),
            )
            exchange(client, broker, request(FETCH, 11, correlation_id + 2), response(correlation_id + 2))


# the requests of the proxy itself


@pytest.fixture
def asking_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(injected_requests, "KEEP_ALIVE_S", 0.3)

    async def handle(call: Call) -> bytes:
        body = await call.connection.send_request(HEARTBEAT, 0, b"rights")
        return response(call.correlation_id, bytes(body))

    with world(some_routes(local=handle), keep_alive=lambda _c: (HEARTBEAT, 0, b"alive")) as w:
        yield w


def local(client: Peer, broker: Peer, number: int) -> None:
    """Local request that sends one request to the broker."""
    client.send(request(LOCAL, 1, 100 + number))
    broker.receive(len(request(HEARTBEAT, 0, number, b"\xff\xffrights")))
    broker.send(response(number, b"ok"))
    client.expect(response(100 + number, b"ok"))


def wait(w: World, seconds: float) -> None:
    start = w.reactor.now()
    w.iterate_until(lambda: w.reactor.now() > start + seconds)


def test_nothing_is_sent_between_handshake_and_the_next_ordinary_request(asking_world: World) -> None:
    w = asking_world
    client, broker = w.pair()
    local(client, broker, 1)
    exchange(client, broker, handshake(1, 1), handshake_response(1, 1))
    exchange(client, broker, authenticate(2, 2), authenticate_response(2, 2))
    wait(w, 2.2)
    assert bytes(broker.take()) == b""
    local(client, broker, 2)
    broker.expect(request(HEARTBEAT, 0, 3, b"\xff\xffalive"))


def test_nothing_is_sent_after_the_session_lifetime(asking_world: World) -> None:
    w = asking_world
    client, broker = w.pair()
    exchange(client, broker, handshake(1, 1), handshake_response(1, 1))
    exchange(client, broker, authenticate(2, 2), authenticate_response(2, 2, lifetime_ms=200))
    local(client, broker, 1)
    wait(w, 2.2)
    assert bytes(broker.take()) == b""


# requests that are served here without a request upstream, because the rights are cached


class Remembering:
    """Handler that sends nothing, and caches a right of the connection."""

    def __init__(self) -> None:
        self.known: list[bool] = []

    async def __call__(self, call: Call) -> bytes:
        remembered = rights.rights_of(call.connection)
        self.known.append(bool(remembered.verdicts))
        remembered.remember(rights.Right.READ_GROUP, "g", True, 0.0)
        return response(call.correlation_id, b"ok")


def authenticated(w: World, lifetime_ms: int) -> tuple[Peer, Peer]:
    client, broker = w.pair()
    exchange(client, broker, handshake(1, 1), handshake_response(1, 1))
    exchange(client, broker, authenticate(2, 2), authenticate_response(2, 2, lifetime_ms=lifetime_ms))
    return client, broker


def served(client: Peer, number: int) -> None:
    client.send(request(LOCAL, 1, number))
    client.expect(response(number, b"ok"))


def test_nothing_is_served_after_the_session_lifetime() -> None:
    """The connection ends as a broker ends it, whatever is cached; unserved requests are not forwarded."""
    handler = Remembering()
    with world(some_routes(local=handler)) as w:
        client, broker = authenticated(w, lifetime_ms=300)
        served(client, 10)
        served(client, 11)
        wait(w, 0.4)
        client.send(request(LOCAL, 1, 12))
        client.expect_end()
        assert bytes(broker.take()) == b""
        assert handler.known == [False, True]
        assert (w.notes[-1][0], "lifetime" in w.reason()) == ("request-refused", True)


def test_after_authentication_anew_rights_are_requested_anew() -> None:
    handler = Remembering()
    with world(some_routes(local=handler)) as w:
        client, broker = authenticated(w, lifetime_ms=300)
        served(client, 10)
        exchange(client, broker, handshake(1, 3), handshake_response(1, 3))
        exchange(client, broker, authenticate(2, 4), authenticate_response(2, 4, lifetime_ms=60_000))
        wait(w, 0.4)
        served(client, 11)
        assert handler.known == [False, False]


def test_nothing_is_served_in_the_middle_of_an_authentication() -> None:
    handler = Remembering()
    with world(some_routes(local=handler)) as w:
        client, broker = authenticated(w, lifetime_ms=0)
        served(client, 10)
        exchange(client, broker, handshake(1, 3), handshake_response(1, 3))
        client.send(request(LOCAL, 1, 12))
        client.expect_end()
        assert handler.known == [False]


def test_a_request_sent_with_the_authentication_is_served_once_that_is_over() -> None:
    """No caller waits for the response: brokers read on after it."""
    with world(some_routes(local=Remembering())) as w:
        client, broker = w.pair()
        exchange(client, broker, handshake(1, 1), handshake_response(1, 1))
        client.send(authenticate(2, 2) + request(LOCAL, 1, 3))
        broker.expect(authenticate(2, 2))
        broker.send(authenticate_response(2, 2))
        client.expect(authenticate_response(2, 2) + response(3, b"ok"))
