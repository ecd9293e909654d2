"""Error codes are found at every depth of a response."""

from __future__ import annotations

from kafka_share_proxy.conformance.judge.response_codes import error_codes
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.judged import produced, share_fetched


def test_codes_of_the_top_and_of_entries_are_found() -> None:
    response = share_fetched(0, 9)
    assert list(error_codes(response)) == []
    response.error_code = ErrorCode.SHARE_SESSION_NOT_FOUND
    response.responses[0].partitions[0].acknowledge_error_code = ErrorCode.INVALID_RECORD_STATE
    assert list(error_codes(response)) == [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_RECORD_STATE]


def test_codes_of_partitions_are_found() -> None:
    assert list(error_codes(produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_response_without_error_fields_has_none() -> None:
    assert list(error_codes(messages.SaslHandshakeResponse(mechanisms=["PLAIN"]))) == []
