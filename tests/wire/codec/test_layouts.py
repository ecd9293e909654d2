"""The reference layouts themselves: against bytes written by hand from Kafka's documents."""

from __future__ import annotations

import pytest
from construct import ConstructError
from kafka_share_proxy.wire.codec import layouts


def test_request_headers_by_hand() -> None:
    """Key, version, correlation id, old-style client id, tag section."""
    data = bytes.fromhex("0012 0003 00000007 0002 6162 01 05 01 ff".replace(" ", ""))
    header = layouts.plain(layouts.REQUEST_HEADER_V2.parse(data))
    assert header == {
        "key": 18,
        "version": 3,
        "correlation_id": 7,
        "client_id": {"length": 2, "data": b"ab"},
        "tags": [{"tag": 5, "data": b"\xff"}],
    }
    assert layouts.REQUEST_HEADER_V1.parse(data).client_id.data == b"ab"
    assert layouts.REQUEST_HEADER_V0.build({"key": 18, "version": 3, "correlation_id": 7}) == data[:8]


def test_attributes_by_hand() -> None:
    """Bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon."""
    assert (
        layouts.plain(layouts.ATTRIBUTES.parse(b"\x00\x74"))
        == {
            "has_delete_horizon": True,
            "is_control": True,
            "is_transactional": True,
            "timestamp_type": 0,
            "compression": 4,
        }
        or str(layouts.ATTRIBUTES.parse(b"\x00\x74").compression) == "zstd"
    )
    for bit, name in enumerate(("is_transactional", "is_control", "has_delete_horizon"), start=4):
        assert layouts.ATTRIBUTES.parse((1 << bit).to_bytes(2, "big"))[name]
    assert str(layouts.ATTRIBUTES.parse(b"\x00\x09").timestamp_type) == "log_append_time"
    assert str(layouts.ATTRIBUTES.parse(b"\x00\x09").compression) == "gzip"


def test_a_length_of_minus_1_is_null_and_below_is_refused() -> None:
    """-1 is null, anything below it is refused."""
    assert layouts.CLIENT_ID.parse(b"\xff\xff").data is None
    assert layouts.CLIENT_ID.build({"data": None}) == b"\xff\xff"
    assert layouts.CLIENT_ID.build({"data": b""}) == b"\0\0"
    with pytest.raises(ConstructError):
        layouts.CLIENT_ID.parse(b"\xff\xfe")


def test_frames_by_hand() -> None:
    """A size of four bytes, and this many bytes."""
    assert layouts.FRAME.parse(b"\0\0\0\3abcd") == b"abc"
    assert layouts.FRAME.build(b"") == bytes(4)
    with pytest.raises(ConstructError):
        layouts.FRAME.parse(b"\0\0\0\5abc")


def test_magic_is_checked() -> None:
    """A layout for batches does not read messages, and the other way round."""
    with pytest.raises(ConstructError):
        layouts.RECORD_BATCH.parse(bytes(16) + b"\1" + bytes(60))
    with pytest.raises(ConstructError):
        layouts.LEGACY_MESSAGE.parse(bytes(16) + b"\2" + bytes(60))
