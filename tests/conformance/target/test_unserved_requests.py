"""Requests that the cluster does not offer."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.unserved_requests import refusal
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode


def test_a_response_with_a_code_for_the_request_has_unsupported_version() -> None:
    data = refusal(ApiKey.DESCRIBE_CLUSTER, 1, 7)
    assert data is not None
    correlation_id, response = frames.decode_response(ApiKey.DESCRIBE_CLUSTER, 1, data[4:])
    assert (correlation_id, response.error_code) == (7, ErrorCode.UNSUPPORTED_VERSION)


def test_without_a_field_for_the_code_there_is_no_response() -> None:
    assert refusal(ApiKey.PRODUCE, 9, 7) is None


def test_an_unknown_api_or_version_has_no_response() -> None:
    assert refusal(999, 0, 7) is None
    assert refusal(ApiKey.METADATA, 99, 7) is None
