"""User names in SaslAuthenticate requests."""

from __future__ import annotations

import pytest
from kafka_share_proxy.forwarding import client_software, sasl_user
from kafka_share_proxy.forwarding.sasl_user import SaslUser
from kafka_share_proxy.wire.codec.frames import request
from kafka_share_proxy.wire.definitions import messages


def frame(token: bytes, version: int = 2) -> memoryview:
    message = messages.SaslAuthenticateRequest(auth_bytes=token)
    return memoryview(request(36, version, 1, "client", message))[4:]


@pytest.mark.parametrize(
    ("token", "user"),
    [
        (b"\0alice\0alice-secret", SaslUser("alice", 1)),
        (b"admin\0alice\0alice-secret", SaslUser("alice", 1)),
        (b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL", SaslUser("alice", 2)),
        (b"n,a=admin,n=a=2Cb=3Dc,r=x", SaslUser("a,b=c", 2)),
        ("\0älice\0x".encode(), SaslUser("älice", 1)),
        (b"\0" + b"a" * 300 + b"\0x", SaslUser("a" * 255, 1)),
        (b"c=biws,r=fyko,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=", None),
        (b"n,,\x01auth=Bearer abc\x01\x01", None),
        (b"", None),
    ],
)
def test_plain_and_scram_name_their_user(token: bytes, user: SaslUser | None) -> None:
    """The password is not kept."""
    assert sasl_user.user_of(token) == user
    assert sasl_user.read(frame(token)) == user


def test_a_request_that_is_too_large_or_cannot_be_read_names_none() -> None:
    assert sasl_user.read(frame(b"\0alice\0" + b"x" * client_software.FRAME_BYTES_MAX)) is None
    assert sasl_user.read(frame(b"\0alice\0x")[:-3]) is None
