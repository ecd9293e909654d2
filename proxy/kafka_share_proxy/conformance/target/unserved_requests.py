"""Responses to requests that the cluster does not offer: UNSUPPORTED_VERSION where the protocol has a field for it."""

from __future__ import annotations

from kafka_share_proxy.conformance.target import error_responses
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode


def refusal(key: int, version: int, correlation_id: int) -> bytes | None:
    """Return the frame of a response with UNSUPPORTED_VERSION.

    None if this package does not know the version, or its response has no code for the whole request.
    """
    try:
        response = error_responses.empty_response(key, version)
        if not error_responses.overwrite(response, version, ErrorCode.UNSUPPORTED_VERSION, "top"):
            return None
        return frames.response(key, version, correlation_id, response)
    except registry.UnknownVersion:
        return None
