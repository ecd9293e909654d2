"""The server side of SASL, against the client side of the proxy."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.conformance.target.authentication import MECHANISMS, Authentication
from kafka_share_proxy.wire import sasl
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

USERS = {"alice": "secret"}


def log_in(authentication: Authentication, mechanism: str, user: str = "alice", password: str = "secret") -> None:
    """Run a whole login. Raises LoginFailed."""
    client = sasl.authentication(mechanism, user, lambda: password)
    _, _, request = next(client)
    try:
        for _ in range(10):
            response: Any
            if isinstance(request, messages.SaslHandshakeRequest):
                response = authentication.handshake(request)
            else:
                response = authentication.authenticate(request)
            _, _, request = client.send(response)
    except StopIteration:
        return
    raise AssertionError("the login does not end")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_with_the_right_password_succeeds(mechanism: str) -> None:
    authentication = Authentication(USERS)
    assert authentication.is_required
    log_in(authentication, mechanism)
    assert (authentication.user, authentication.is_required) == ("alice", False)
    log_in(authentication, mechanism)  # again (KIP-368)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("bob", "secret")])
def test_a_login_with_wrong_credentials_is_refused(mechanism: str, user: str, password: str) -> None:
    authentication = Authentication(USERS)
    with pytest.raises(sasl.LoginFailed, match="uthentication failed"):
        log_in(authentication, mechanism, user, password)
    assert authentication.is_required


def test_an_unknown_mechanism_is_refused_with_the_known_ones() -> None:
    response = Authentication(USERS).handshake(messages.SaslHandshakeRequest(mechanism="GSSAPI"))
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == list(MECHANISMS)


def test_a_token_without_handshake_is_refused() -> None:
    response = Authentication(USERS).authenticate(messages.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"))
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_without_users_nothing_is_required() -> None:
    authentication = Authentication({})
    assert not authentication.is_required
    response = authentication.handshake(messages.SaslHandshakeRequest(mechanism="PLAIN"))
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("token", [b"", b"\0a", b"\0\0\0\0", b"\xff\xfe\0x\0y"])
def test_a_malformed_plain_token_is_refused(token: bytes) -> None:
    authentication = Authentication(USERS)
    authentication.handshake(messages.SaslHandshakeRequest(mechanism="PLAIN"))
    assert authentication.token_response(token) is None


@pytest.mark.parametrize("token", [b"", b"n,,n=alice", b"\xff", b"n,,n=alice,r=x\0"])
def test_a_malformed_scram_token_is_refused(token: bytes) -> None:
    authentication = Authentication(USERS)
    authentication.handshake(messages.SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
    if authentication.token_response(token) is not None:
        assert authentication.token_response(token) is None
    assert authentication.is_required
