"""ApiVersions at the beginning of a connection (KIP-511), without a connection."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire import broker_versions
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError
from kafka_share_proxy.wire.values import Address

BROKER = Address("a", 1)


def answered(code: int = 0, **ranges: tuple[int, int]) -> messages.ApiVersionsResponse:
    entry = messages.ApiVersionsResponse.ApiVersion
    keys = [entry(api_key=ApiKey[name], min_version=low, max_version=high) for name, (low, high) in ranges.items()]
    return messages.ApiVersionsResponse(error_code=code, api_keys=keys)


def negotiated(*responses: messages.ApiVersionsResponse) -> tuple[list[int | None], messages.ApiVersionsResponse]:
    """The versions of the requests, and the result."""
    requests = broker_versions.negotiation(BROKER, "test")
    versions = [next(requests)[1]]
    for response in responses:
        try:
            versions.append(requests.send(response)[1])
        except StopIteration as ended:
            return versions, ended.value
    raise AssertionError("one more request")


def test_the_first_response_has_the_versions() -> None:
    versions, response = negotiated(answered(METADATA=(0, 12)))
    assert versions == [3]
    assert broker_versions.version_ranges(response) == {ApiKey.METADATA: (0, 12)}


@pytest.mark.parametrize(("known", "repeated"), [({"API_VERSIONS": (0, 2)}, 2), ({}, 0), ({"API_VERSIONS": (4, 9)}, 5)])
def test_a_refused_version_is_replaced_by_the_best_one_listed(known: dict[str, tuple[int, int]], repeated: int) -> None:
    accepted = answered(METADATA=(0, 12))
    assert negotiated(answered(ErrorCode.UNSUPPORTED_VERSION, **known), accepted) == ([3, repeated], accepted)


def test_no_common_version_and_other_errors_are_raised() -> None:
    with pytest.raises(RemoteProtocolError, match="a:1 has ApiVersions 8 to 9, none is known here"):
        negotiated(answered(ErrorCode.UNSUPPORTED_VERSION, API_VERSIONS=(8, 9)))
    with pytest.raises(RemoteProtocolError, match=r"a:1 responds to ApiVersions v3 with INVALID_REQUEST \(42\)"):
        negotiated(answered(ErrorCode.INVALID_REQUEST))


def test_a_refusal_is_recognized_by_its_first_bytes() -> None:
    refusal = frames.response(ApiKey.API_VERSIONS, 0, 7, answered(ErrorCode.UNSUPPORTED_VERSION))[4:]
    assert broker_versions.is_unsupported_version(refusal)
    assert not broker_versions.is_unsupported_version(refusal[:5])
    assert not broker_versions.is_unsupported_version(frames.response(ApiKey.API_VERSIONS, 3, 7, answered())[4:])
