"""Client side of the ApiVersions exchange that begins a connection, without I/O (KIP-35, KIP-511)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError, error_name
from kafka_share_proxy.wire.sasl import Query
from kafka_share_proxy.wire.values import Address

FIRST_VERSION = 3
"""First version that names the client."""
END_OF_HEAD_TAG, END_OF_HEAD = 27502, b"\r\n\r\n"
"""Tagged field of the first request, which brokers ignore (KIP-482). An HTTP server takes it for the end of a request's
head and responds immediately. Otherwise both sides would wait.
"""


def negotiation(broker: Address, client: str) -> Generator[Query, Any, messages.ApiVersionsResponse]:
    """Yield ApiVersions requests until the broker responds with its versions, which are returned.

    The caller sends each response into the generator. Raises RemoteProtocolError if there is no common version, or for
    any other error code.
    """
    request = messages.ApiVersionsRequest(client_software_name=client, client_software_version="1")
    request.unknown_tags = ((END_OF_HEAD_TAG, END_OF_HEAD),)
    response = yield ApiKey.API_VERSIONS, FIRST_VERSION, request
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        request = messages.ApiVersionsRequest(client_software_name=client, client_software_version="1")
        response = yield ApiKey.API_VERSIONS, _best_version(broker, response), request
    if response.error_code != ErrorCode.NONE:
        raise RemoteProtocolError(f"{broker} responds to ApiVersions v3 with {error_name(response.error_code)}")
    versions: messages.ApiVersionsResponse = response
    return versions


def version_ranges(response: messages.ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    """Return API key -> (lowest, highest) version."""
    return {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys or ()}


def is_unsupported_version(frame: Buffer) -> bool:
    """True for an ApiVersions response UNSUPPORTED_VERSION, which has version 0 (KIP-511)."""
    return len(frame) >= 6 and int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION


def _best_version(broker: Address, refusal: messages.ApiVersionsResponse) -> int:
    theirs = version_ranges(refusal).get(ApiKey.API_VERSIONS, (0, 0))
    ours = registry.versions(ApiKey.API_VERSIONS)
    version = min(theirs[1], ours[1])
    if version < max(theirs[0], ours[0]):
        raise RemoteProtocolError(f"{broker} has ApiVersions {theirs[0]} to {theirs[1]}, none is known here")
    return version
