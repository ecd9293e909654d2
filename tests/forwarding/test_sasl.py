"""When a request of the proxy's own may be sent."""

from __future__ import annotations

import pytest
from kafka_share_proxy.forwarding.sasl import Sasl, SaslStage
from kafka_share_proxy.forwarding.sasl_user import SaslUser


def authenticated(lifetime_ms: int = 0) -> Sasl:
    sasl = Sasl()
    sasl.handshake_sent(1)
    sasl.handshake_responded(0)
    sasl.authenticate_responded(0, 0, sent_at=10.0)
    sasl.authenticate_responded(0, lifetime_ms, sent_at=10.0)
    sasl.ordinary_request()
    return sasl


def test_without_sasl_nothing_is_in_the_way() -> None:
    sasl = Sasl()
    sasl.ordinary_request()
    assert sasl.may_send_request(0.0)


def test_nothing_is_sent_from_the_handshake_until_an_ordinary_request_after_success() -> None:
    sasl = Sasl()
    requested = []
    sasl.handshake_sent(1)
    requested.append(sasl.may_send_request(1.0))
    sasl.handshake_responded(0)
    requested.append(sasl.may_send_request(2.0))
    sasl.authenticate_responded(0, 0, sent_at=3.0)
    requested.append(sasl.may_send_request(3.0))  # may be an intermediate round
    sasl.ordinary_request()
    assert requested == [False, False, False]
    assert sasl.may_send_request(4.0)


def test_a_request_before_any_response_proves_nothing() -> None:
    sasl = Sasl()
    sasl.handshake_sent(1)
    sasl.ordinary_request()
    assert not sasl.may_send_request(1.0)


def test_an_error_ends_it() -> None:
    refused, wrong = Sasl(), Sasl()
    refused.handshake_sent(1)
    refused.handshake_responded(33)
    wrong.handshake_sent(1)
    wrong.handshake_responded(0)
    wrong.authenticate_responded(58, 0, sent_at=1.0)
    wrong.ordinary_request()
    assert (refused.stage, wrong.stage) == (SaslStage.FAILED, SaslStage.FAILED)
    assert not refused.may_send_request(1.0)
    assert not wrong.may_send_request(1.0)


def test_nothing_is_sent_after_the_session_lifetime_until_authenticated_again() -> None:
    sasl = authenticated(lifetime_ms=5_000)
    assert sasl.may_send_request(14.9)
    assert not sasl.may_send_request(15.0)
    sasl.handshake_sent(1)
    assert not sasl.may_send_request(16.0)
    sasl.handshake_responded(0)
    sasl.authenticate_responded(0, 5_000, sent_at=16.0)
    sasl.ordinary_request()
    assert sasl.may_send_request(20.9)
    assert not sasl.may_send_request(21.0)


def test_a_lifetime_of_nought_has_no_end() -> None:
    assert authenticated(lifetime_ms=0).may_send_request(1e9)


def test_raw_tokens_end_with_an_ordinary_request() -> None:
    sasl = Sasl()
    sasl.handshake_sent(0)
    sasl.handshake_responded(0)
    assert sasl.stage is SaslStage.TOKENS
    assert not sasl.may_send_request(1.0)
    sasl.ordinary_request()
    assert sasl.may_send_request(1.0)


def test_an_intermediate_round_does_not_lengthen_a_session() -> None:
    """It needs no proof: an exchange that begins again and stops half way changes nothing."""
    sasl = authenticated(lifetime_ms=5_000)
    sasl.handshake_sent(1)
    sasl.handshake_responded(0)
    sasl.authenticate_responded(0, 0, sent_at=14.0)
    sasl.ordinary_request()
    assert not sasl.may_send_request(15.0)


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_user_is_known_once_the_broker_has_accepted_all_rounds(rounds: int) -> None:
    sasl = Sasl()
    sasl.handshake_sent(1)
    sasl.claims(SaslUser("alice", rounds))
    for number in range(rounds):
        assert sasl.user is None
        sasl.authenticate_responded(0, 0, sent_at=number)
        sasl.claims(None)
    assert sasl.user == "alice"


def test_a_refused_user_stays_unknown_and_another_exchange_begins_anew() -> None:
    sasl = Sasl()
    sasl.handshake_sent(1)
    sasl.claims(SaslUser("alice", 2))
    sasl.authenticate_responded(0, 0, sent_at=1.0)
    sasl.authenticate_responded(58, 0, sent_at=2.0)
    assert sasl.user is None
    accepted = Sasl()
    accepted.handshake_sent(1)
    accepted.claims(SaslUser("alice", 1))
    accepted.authenticate_responded(0, 0, sent_at=1.0)
    accepted.handshake_sent(1)
    assert accepted.user is None, "re-authentication (KIP-368)"


@pytest.mark.parametrize("user", ["alice", None])
def test_an_exchange_that_another_process_has_observed_counts_with_its_end(user: str | None) -> None:
    sasl = Sasl()
    sasl.resume(user, 20.0)
    assert (sasl.user, sasl.is_done) == (user, True)
    assert sasl.may_send_request(19.0)
    assert not sasl.may_send_request(20.0)
    sasl.handshake_sent(1)
    assert (sasl.user, sasl.is_done) == (None, False)
