"""Logging in: the tokens of PLAIN and SCRAM, and what brokers say to a handshake."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire import sasl
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from scramp import ScramMechanism


def test_plain_is_one_token_without_an_authorization_id() -> None:
    assert list(sasl.login("PLAIN", "alice", "secret")) == [b"\0alice\0secret"]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_proves_the_password_on_both_sides(mechanism: str) -> None:
    hashing = ScramMechanism(mechanism)
    server = hashing.make_server(lambda user: hashing.make_auth_info({"alice": "secret"}[user], iteration_count=4096))
    login = sasl.login(mechanism, "alice", "secret")
    server.set_client_first(next(login).decode())
    server.set_client_final(login.send(server.get_server_first().encode()).decode())
    with pytest.raises(StopIteration):
        login.send(server.get_server_final().encode())


@pytest.mark.parametrize("reported", [b"v=AAAA", b"e=other-error", b"", b"\xff"])
def test_scram_fails_where_the_server_does_not_know_the_password(reported: bytes) -> None:
    hashing = ScramMechanism("SCRAM-SHA-256")
    server = hashing.make_server(lambda _: hashing.make_auth_info("secret", iteration_count=4096))
    login = sasl.login("SCRAM-SHA-256", "alice", "secret")
    server.set_client_first(next(login).decode())
    login.send(server.get_server_first().encode())
    with pytest.raises(sasl.LoginFailed):
        login.send(reported)


@pytest.mark.parametrize(("code", "refusal", "logs_in"), [
    (ErrorCode.NONE, None, True),
    (ErrorCode.ILLEGAL_SASL_STATE, None, False),
    (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "does not support PLAIN; it offers SCRAM-SHA-512", True),
    (ErrorCode.REQUEST_TIMED_OUT, "responded with REQUEST_TIMED_OUT (7)", True),
])  # fmt: skip
def test_a_handshake_says_whether_one_may_and_must_log_in(code: ErrorCode, refusal: str | None, logs_in: bool) -> None:
    response = messages.SaslHandshakeResponse(error_code=code, mechanisms=["SCRAM-SHA-512"])
    assert sasl.handshake_refusal(response, "PLAIN") == refusal
    assert sasl.wants_login(response) is logs_in
