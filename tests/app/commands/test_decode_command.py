"""The decode command: frames in, trees out."""

import pytest
from kafka_share_proxy.app.commands import decode_command
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import RemoteProtocolError

REQUEST = frames.request(18, 3, 7, "me", registry.message("ApiVersionsRequest")(client_software_name="x"))
RESPONSE = frames.response(18, 3, 7, registry.message("ApiVersionsResponse")(error_code=35, api_keys=[]))


@pytest.mark.parametrize("captured", [REQUEST, REQUEST.hex().encode(), REQUEST.hex(" ").encode() + b"\n"])
def test_requests_are_printed_from_binary_and_hex(captured: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """Fields by their Kafka names."""
    decode_command.show(captured, None, b"")
    printed = capsys.readouterr().out
    assert "ApiVersionsRequest v3" in printed
    assert "ClientSoftwareName: 'x'" in printed
    assert "client_id: 'me'" in printed


def test_responses_are_printed_by_api_or_by_their_request(capsys: pytest.CaptureFixture[str]) -> None:
    """A response does not contain its API."""
    decode_command.show(RESPONSE, (18, 3), b"")
    output = capsys.readouterr().out
    decode_command.show(RESPONSE, None, REQUEST)
    assert capsys.readouterr().out == output
    assert "ErrorCode: 35 (UNSUPPORTED_VERSION)" in output


def test_an_empty_capture_is_a_mistake() -> None:
    """Printing nothing would look like success."""
    with pytest.raises(ConfigError, match="empty"):
        decode_command.show(b"", None, b"")


@pytest.mark.parametrize(("text", "expected"), [("Metadata:12", (3, 12)), ("3:12", (3, 12)), (None, None)])
def test_apis_are_named_or_numbered(text: str | None, expected: tuple[int, int] | None) -> None:
    """Names without regard to case."""
    assert decode_command.api_version(text) == expected
    assert text is None or decode_command.api_version(text.lower()) == expected


@pytest.mark.parametrize("wrong", ["Metadata", "Nonsense:1", "3:x", ":", "3:-1"])
def test_unknown_api_is_refused(wrong: str) -> None:
    """With an example of how to write it."""
    with pytest.raises(ConfigError, match="API:VERSION"):
        decode_command.api_version(wrong)


def test_a_response_alone_gets_an_error_that_names_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """A response does not contain its API; the person who captured it knows."""
    with pytest.raises(RemoteProtocolError, match="--response-to API:VERSION, or --requests FILE"):
        decode_command.show(RESPONSE, None, b"")
    assert "cannot be read" in capsys.readouterr().out


@pytest.mark.parametrize("garbage", [b"garbage of some length", REQUEST + b"\x00\x00", REQUEST[:-1]])
def test_garbage_is_printed_and_is_a_failure(garbage: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """A script must not take it for a capture that was read."""
    with pytest.raises(RemoteProtocolError, match=r"1 of [12] frames could not be read"):
        decode_command.show(garbage, None, b"")
    assert capsys.readouterr().out
