"""Two proxies verify that they belong to one fleet, and no intermediary can change their messages."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.fleet.peer_protocol import FRAME_BYTES_MAX, MESSAGES, NONCE_BYTES, NotOfTheFleet, PeerProtocol
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import LocalProtocolError, RemoteProtocolError

SECRET = b"sixteen bytes ok"


def ends(dialler: bytes | None = SECRET, dialled: bytes | None = SECRET) -> tuple[PeerProtocol, PeerProtocol]:
    a = PeerProtocol("a:1", dialler, b"a" * NONCE_BYTES, dials=True)
    b = PeerProtocol("b:1", dialled, b"b" * NONCE_BYTES, dials=False)
    return a, b


def shake(a: PeerProtocol, b: PeerProtocol) -> None:
    for _ in range(3):
        assert not list(a.receive_data(b.outgoing()))
        assert not list(b.receive_data(a.outgoing()))


def closed(number: int) -> Any:
    return registry.message("PeerClosed")(connection_id=number)


@pytest.mark.parametrize("secret", [SECRET, None])
def test_both_know_each_other_and_messages_pass_both_ways(secret):
    a, b = ends(secret, secret)
    shake(a, b)
    assert (a.is_established, b.is_established, a.peer, b.peer) == (True, True, "b:1", "a:1")
    data = a.send(closed(1)) + a.send(closed(2))
    got = [message.connection_id for n in range(len(data)) for message in b.receive_data(data[n : n + 1])]
    assert got == [1, 2], "however the bytes come"
    assert [m.connection_id for m in a.receive_data(b.send(closed(3)))] == [3]


def test_messages_may_arrive_together_with_the_end_of_the_handshake():
    a, b = ends()
    list(a.receive_data(b.outgoing()))
    list(b.receive_data(a.outgoing()))
    large = registry.message("PeerResponse")(id=1, frame=bytes(10_000))
    (got,) = a.receive_data(b.outgoing() + b.send(large))
    assert len(got.frame) == 10_000


@pytest.mark.parametrize(("mine", "theirs"), [(SECRET, b"another secret..."), (SECRET, None), (None, SECRET)])
def test_proxy_with_another_secret_or_none_is_refused(mine, theirs):
    a, b = ends(mine, theirs)
    with pytest.raises(NotOfTheFleet):
        shake(a, b)
    assert not (a.is_established and b.is_established)


def test_proof_of_another_link_proves_nothing():
    """An overheard proof cannot be replayed."""
    a, b = ends()
    list(a.receive_data(b.outgoing()))
    overheard = a.outgoing()
    list(b.receive_data(overheard))
    assert b.is_established
    later = PeerProtocol("b:1", SECRET, b"c" * NONCE_BYTES, dials=False)
    with pytest.raises(NotOfTheFleet):
        list(later.receive_data(overheard))


def test_proof_that_is_sent_back_proves_nothing():
    a, _ = ends()
    with pytest.raises(NotOfTheFleet):
        list(a.receive_data(PeerProtocol("x", SECRET, b"a" * NONCE_BYTES, dials=False).outgoing()))


@pytest.mark.parametrize("change", ["flip", "repeat", "leave out", "send back"])
def test_signed_messages_cannot_be_changed_repeated_or_left_out(change):
    a, b = ends()
    shake(a, b)
    one, two = a.send(closed(1)), a.send(closed(2))
    data = {
        "flip": one[:-20] + bytes([one[-20] ^ 1]) + one[-19:],
        "repeat": one + one,
        "leave out": two,
        "send back": one,
    }[change]
    with pytest.raises(NotOfTheFleet):
        list((a if change == "send back" else b).receive_data(data))


def test_messages_wait_for_the_handshake_and_strangers_may_not_send_much():
    a, b = ends()
    with pytest.raises(LocalProtocolError):
        a.send(closed(1))
    with pytest.raises(RemoteProtocolError):
        list(b.receive_data((5000).to_bytes(4, "big")))
    a, b = ends()
    shake(a, b)
    with pytest.raises(LocalProtocolError):
        a.send(registry.message("PeerResponse")(id=1, frame=bytes(FRAME_BYTES_MAX)))


@pytest.mark.parametrize(
    "data", [b"\0\0\0\0", b"\0\0\0\1\x7f", b"\0\0\0\2\0\0", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 8]
)
def test_what_is_no_message_is_refused(data):
    a, b = ends()
    for end in (a, b):
        with pytest.raises(RemoteProtocolError):
            list(end.receive_data(data))


def test_message_of_an_unknown_kind_is_skipped_and_responded_to():
    """Between two others; a later version has sent it, which gets its id back."""
    a, b = ends()
    shake(a, b)
    request = (77).to_bytes(8, "big") + b"what comes in a later version"
    data = a.send(closed(1)) + a._framed(100, request) + a._framed(101, b"") + a.send(closed(2))
    assert [message.connection_id for message in b.receive_data(data)] == [1, 2]
    assert b.unknown_kinds == {100, 101}
    responses = list(a.receive_data(b.outgoing()))
    assert [(response.kind, response.id) for response in responses] == [(100, 77), (101, 0)]


def test_response_to_a_skipped_message_is_sent_before_what_is_sent_next():
    """Signatures are numbered in the order in which they were made."""
    a, b = ends()
    shake(a, b)
    sent = b""
    for message in b.receive_data(a._framed(100, b"") + a.send(closed(1))):
        sent += b.send(message)
    assert [type(each).__name__ for each in a.receive_data(sent + b.outgoing())] == ["PeerUnknown", "PeerClosed"]


def test_message_of_an_unknown_kind_is_skipped_only_with_a_signature():
    a, b = ends()
    shake(a, b)
    data = a._framed(100, b"later")
    with pytest.raises(NotOfTheFleet):
        list(b.receive_data(data[:-1] + bytes([data[-1] ^ 1])))


def test_stranger_cannot_send_messages_of_unknown_kinds():
    _, b = ends()
    with pytest.raises(RemoteProtocolError):
        list(b.receive_data(b"\0\0\0\2\x64\0"))


def test_both_sides_send_the_number_of_kinds_they_know():
    a, b = ends()
    shake(a, b)
    assert a.peer_kinds == b.peer_kinds == len(MESSAGES)


def test_every_message_has_a_schema():
    for name in MESSAGES:
        codec = registry.codec(name, 0)
        assert codec.decode(codec.encode(registry.message(name)())) is not None
