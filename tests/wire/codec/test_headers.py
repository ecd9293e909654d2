"""Request and response headers, and their exceptions."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.codec import headers, layouts
from kafka_share_proxy.wire.codec.headers import RequestHeader
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.registry import UnknownVersion
from kafka_share_proxy.wire.errors import LocalProtocolError, RemoteProtocolError

VERSIONS = [
    (key, v) for key in registry.API_KEYS for v in range(registry.versions(key)[0], registry.versions(key)[1] + 1)
]
CLIENT_IDS = (None, "", "me", "Grüße", "x" * 300)


def test_header_versions_follow_flexible_versions() -> None:
    """Request 2 and response 1 where the message is flexible, else 1 and 0."""
    for key, version in VERSIONS:
        flexible = version in registry.request_spec(key).flexible
        assert headers.request_header_version(key, version) == (2 if flexible else 1)
        if key != ApiKey.API_VERSIONS:
            assert headers.response_header_version(key, version) == int(flexible)


@pytest.mark.parametrize("version", [0, 3, 4, 5, 6, 99])
def test_api_versions_response_has_no_tags(version: int) -> None:
    """In any version: the client does not know yet which versions the broker supports (KIP-511)."""
    assert headers.response_header_version(18, version) == 0


def test_controlled_shutdown_has_no_client_id() -> None:
    """Version 0 of it, gone since Kafka 4.0, used header version 0."""
    assert headers.request_header_version(7, 0) == 0
    frame = headers.encode_request_header(RequestHeader(7, 0, 5, None)) + b"body"
    assert headers.decode_request_header(frame) == (RequestHeader(7, 0, 5, None), 8)
    assert layouts.REQUEST_HEADER_V0.parse(frame).correlation_id == 5


def test_unknown_requests_have_no_header_version() -> None:
    """It cannot be guessed whether they are flexible."""
    with pytest.raises(UnknownVersion):
        headers.request_header_version(78, 99)
    with pytest.raises(UnknownVersion):
        headers.response_header_version(4711, 0)


@pytest.mark.parametrize("client_id", CLIENT_IDS)
@pytest.mark.parametrize(("key", "version"), [(18, 0), (18, 3), (0, 3), (78, 2)])
@pytest.mark.parametrize("tags", [(), ((3, b"abc"), (200, b""))])
def test_request_headers_as_construct_has_them(
    key: int, version: int, client_id: str | None, tags: tuple[tuple[int, bytes], ...]
) -> None:
    """Written and read as the reference layout says, in both header versions."""
    header_version = headers.request_header_version(key, version)
    header = RequestHeader(key, version, -77, client_id, tags if header_version == 2 else ())
    data = headers.encode_request_header(header)
    built = layouts.REQUEST_HEADERS[header_version].build(
        {
            "key": key,
            "version": version,
            "correlation_id": -77,
            "client_id": {"data": None if client_id is None else client_id.encode()},
            "tags": [{"tag": tag, "data": content} for tag, content in tags],
        }
    )
    assert data == built
    for frame in (data + b"body", memoryview(data + b"body")):
        assert headers.decode_request_header(frame) == (header, len(data))
        assert headers.peek(frame) == (key, version, -77)


@pytest.mark.parametrize("tags", [(), ((3, b"abc"),)])
def test_response_headers_as_construct_has_them(tags: tuple[tuple[int, bytes], ...]) -> None:
    """The body begins after the tag section where there is one."""
    data = headers.encode_response_header(78, 2, 99, tags)
    reference = {"correlation_id": 99, "tags": [{"tag": tag, "data": content} for tag, content in tags]}
    assert data == layouts.RESPONSE_HEADER_V1.build(reference)
    assert headers.response_body_offset(78, 2, memoryview(data + b"body")) == len(data)
    assert headers.correlation_id(data) == 99
    assert headers.encode_response_header(18, 4, 99) == layouts.RESPONSE_HEADER_V0.build({"correlation_id": 99})
    assert headers.response_body_offset(18, 4, data) == 4


def test_client_ids_that_are_not_utf8_are_taken() -> None:
    """A client with an old encoding is served by brokers too; the bytes that continue are its own anyway."""
    frame = bytes.fromhex("0012 0000 00000001 0003 ff6162".replace(" ", ""))
    assert headers.decode_request_header(frame)[0].client_id == "\ufffdab"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00120003000001",
        "0012000000000001",
        "00120000000000010005",
        "0012000000000001fffe",
        "00120000000000017fff61",
        "00120003000000010000",
        "0012000300000001000001",
        "00120003000000010000ffffffff0f",
    ],
)
def test_broken_request_headers(text: str) -> None:
    """Cut off, or with lengths that cannot be."""
    with pytest.raises(RemoteProtocolError):
        headers.decode_request_header(bytes.fromhex(text))


@pytest.mark.parametrize("text", ["", "000000", "00000001", "0000000101", "00000001010105aa"])
def test_broken_response_headers(text: str) -> None:
    """Cut off, or with lengths that cannot be."""
    with pytest.raises(RemoteProtocolError):
        headers.response_body_offset(78, 2, bytes.fromhex(text))


def test_a_client_id_that_is_too_long_raises_local_protocol_error() -> None:
    """The length is an int16."""
    with pytest.raises(LocalProtocolError):
        headers.encode_request_header(RequestHeader(18, 0, 1, "x" * 40_000))
