"""Captures printed for people."""

from __future__ import annotations

import io
import struct

import pytest
from kafka_share_proxy.wire.codec import frames, tree
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.registry import UnknownVersion
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import compression, records
from kafka_share_proxy.wire.records.records import Record
from rich.console import Console

from tests.wire.samples import Samples, every_codec

FETCH = registry.message("ShareFetchResponse")
HEARTBEAT = frames.request(12, 4, 5, "me", registry.message("HeartbeatRequest")(group_id="group", member_id="m"))


def shown(data: bytes, **options: object) -> str:
    """The whole tree as text."""
    nodes = tree.capture(data, **options)  # type: ignore[arg-type]
    return "\n".join(line for node in nodes for line in node.lines())


def fetch_response(data: bytes, correlation_id: int = 5) -> bytes:
    """A response with these records."""
    partition = FETCH.PartitionData(error_code=6, records=data)
    topic = FETCH.ShareFetchableTopicResponse(topic_id=b"\1" * 16, partitions=[partition])
    return frames.response(78, 2, correlation_id, FETCH(responses=[topic]))


def test_requests_name_themselves() -> None:
    """Key and version stand in the header; every field is shown under Kafka's name."""
    text = shown(HEARTBEAT)
    assert "HeartbeatRequest v4" in text
    assert "RequestHeader v2" in text
    assert "client_id: 'me'" in text
    assert "GroupId: 'group'" in text


def test_responses_are_read_as_requested() -> None:
    """The caller names the requests; errors are shown by name."""
    text = shown(frames.response(12, 4, 5, registry.message("HeartbeatResponse")(error_code=27)), response_to=(12, 4))
    assert "ResponseHeader v1" in text
    assert "ErrorCode: 27 (REBALANCE_IN_PROGRESS)" in text
    with pytest.raises(UnknownVersion):
        shown(HEARTBEAT, response_to=(12, 99))


def test_responses_find_their_request() -> None:
    """By correlation id: in the same capture, or in another one."""
    response = frames.response(12, 4, 5, registry.message("HeartbeatResponse")(error_code=25))
    assert "25 (UNKNOWN_MEMBER_ID)" in shown(HEARTBEAT + response)
    assert "25 (UNKNOWN_MEMBER_ID)" in shown(response, requests=HEARTBEAT)
    assert "cannot be read" in shown(response)


def test_a_correlation_id_is_not_enough() -> None:
    """A request whose first bytes look like a pending correlation id is still a request."""
    again = frames.request(12, 4, 9, None, registry.message("HeartbeatRequest")())
    pending = frames.request(12, 4, int.from_bytes(again[4:8], "big"), None, registry.message("HeartbeatRequest")())
    assert shown(pending + again).count("HeartbeatRequest v4") == 2


def test_record_batches_are_shown_with_their_records() -> None:
    """Header, checksum, records with their headers, control records, a batch that is cut off."""
    data = records.build_batch(7, [Record(b"key", b"value", (("h", None),), 123)], is_transactional=True)
    marker = [Record(struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 8))]
    data += records.build_batch(8, marker, is_control=True) + data[:30]
    text = shown(fetch_response(data), response_to=(78, 2))
    assert "transactional batch 7-7" in text
    assert "crc: right" in text
    assert "7: key 'key', value 'value', timestamp 123" in text
    assert "header 'h': null" in text
    assert "8: commit by coordinator epoch 8" in text
    assert "cut off: 30 bytes" in text


def test_spoilt_batches_are_reported_as_such() -> None:
    """A wrong checksum, or bytes that are no batch, do not hide the rest of the message."""
    batch = bytearray(records.build_batch(0, [Record(b"k", b"v")]))
    batch[-1] ^= 1
    assert "crc: WRONG" in shown(fetch_response(bytes(batch)), response_to=(78, 2))
    assert "unreadable from byte 0" in shown(fetch_response(b"\xff" * 80), response_to=(78, 2))


def test_compressed_batches_are_shown_decompressed() -> None:
    """If the library is installed."""
    batch = records.build_batch(0, [Record(b"k", b"v")] * 3, codec=compression.GZIP)
    text = shown(fetch_response(batch), response_to=(78, 2))
    assert "compression: gzip" in text
    assert "2: key 'k', value 'v'" in text


def test_passwords_are_not_printed() -> None:
    """A capture of a login is still fit for a bug report."""
    request = registry.message("SaslAuthenticateRequest")(auth_bytes=b"\0user\0secret")
    text = shown(frames.request(36, 2, 1, None, request))
    assert "not shown" in text
    assert "secret" not in text


def test_unknown_tags_are_shown() -> None:
    """Tags of headers and structures."""
    request = registry.message("HeartbeatRequest")(unknown_tags=((77, b"\xff"),))
    assert "unknown tag 77: 0xff" in shown(frames.request(12, 4, 1, None, request))


@pytest.mark.parametrize(
    ("data", "reported"),
    [
        (b"GET / HTTP/1.1\r\n", "not a frame at byte 0"),
        (b"\xff\xff\xff\xff1234", "not a frame at byte 0"),
        (HEARTBEAT[:-3], "of which"),
        (b"\0\0\0\2ab", "cannot be read"),
        (
            frames.request(12, 4, 5, "me", registry.message("HeartbeatRequest")())[:4] + b"\x12\x67" * 20,
            "cannot be read",
        ),
        (b"\0\0", "not a frame"),
    ],
)
def test_bytes_that_are_no_frame_are_reported(data: bytes, reported: str) -> None:
    """At its place, without an exception, with the first bytes."""
    assert reported in shown(data)


def test_a_bad_frame_does_not_end_the_capture() -> None:
    """The frames after it are printed."""
    assert "HeartbeatRequest v4" in shown(b"\0\0\0\2ab" + HEARTBEAT)


@pytest.mark.parametrize(
    "text",
    [
        HEARTBEAT.hex(),
        HEARTBEAT.hex(" ").upper() + "\n",
        "\n".join(HEARTBEAT.hex()[i : i + 32] for i in range(0, len(HEARTBEAT.hex()), 32)),
        "\n".join(
            f"{i:08x}: {HEARTBEAT[i : i + 16].hex(' ', 2)}  {'.' * len(HEARTBEAT[i : i + 16])}"
            for i in range(0, len(HEARTBEAT), 16)
        ),
    ],
)
def test_hex_is_recognised(text: str) -> None:
    """Plain, spaced, broken into lines, as xxd prints it; binary stays as it is."""
    assert tree.raw_bytes(text.encode()) == HEARTBEAT
    assert tree.raw_bytes(HEARTBEAT) == HEARTBEAT
    assert tree.raw_bytes(b"") == b""


def test_an_odd_number_of_hex_digits_is_refused() -> None:
    """Something was lost when it was copied."""
    with pytest.raises(RemoteProtocolError, match="odd"):
        tree.raw_bytes(b"00 0")


def test_every_message_can_be_printed() -> None:
    """All requests and responses in their latest version, with generated values."""
    for name, version in every_codec():
        codec = registry.codec(name, version)
        if codec.spec.type not in {"request", "response"} or version < codec.spec.valid.last:
            continue
        message = Samples(f"tree-{name}-{version}", tags=True).message(codec.spec, version)
        key = codec.spec.api_key
        if codec.spec.type == "request":
            text = shown(frames.request(key, version, 1, None, message))
        else:
            text = shown(frames.response(key, version, 1, message), response_to=(key, version))
        assert f"{name} v{version}" in text.splitlines()[0]
        assert "cannot be read" not in text


def test_rich_prints_it() -> None:
    """Markup in a group id is text, not markup."""
    request = registry.message("HeartbeatRequest")(group_id="[bold]group")
    (node,) = tree.capture(frames.request(12, 4, 1, None, request))
    out = io.StringIO()
    Console(file=out, width=200).print(node.rich())
    assert "GroupId: '[bold]group'" in out.getvalue()
