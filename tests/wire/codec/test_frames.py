"""Whole frames, and cutting a byte stream into them."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.codec import frames, layouts
from kafka_share_proxy.wire.codec.headers import RequestHeader
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import RemoteProtocolError

Request = registry.message("HeartbeatRequest")
Response = registry.message("HeartbeatResponse")


@pytest.mark.parametrize("version", range(5))
def test_encoded_frames_are_decoded_to_the_same_messages(version: int) -> None:
    """Size, header, body; construct sees the same frame."""
    request = frames.request(12, version, 3, "me", Request(group_id="g", member_id="m"))
    payload = layouts.FRAME.parse(request)
    assert layouts.FRAME.build(payload) == request
    header, message = frames.decode_request(memoryview(payload))
    assert header == RequestHeader(12, version, 3, "me")
    assert message == Request(group_id="g", member_id="m")
    response = frames.response(12, version, 3, Response(error_code=27))
    assert frames.decode_response(12, version, layouts.FRAME.parse(response)) == (3, Response(error_code=27))


def test_another_correlation_id_changes_nothing_else() -> None:
    request = registry.message("HeartbeatRequest")(group_id="g", member_id="m")
    for correlation_id in (0, 1, 2**31 - 1):
        frame = frames.request(12, 4, 7, "client", request)
        assert frames.with_correlation_id(frame, correlation_id) == frames.request(
            12, 4, correlation_id, "client", request
        )


@pytest.mark.parametrize("size", [0, 100, frames.PIECE_MIN - 1, frames.PIECE_MIN, 100_000])
def test_a_response_in_pieces_is_the_same_frame(size: int) -> None:
    """Large records stay where they are; what is small, or in small pieces, is copied together."""
    message = registry.message("FetchResponse")

    def response(records: object) -> object:
        data = [message.PartitionData(partition_index=number, high_watermark=9, records=records) for number in (0, 1)]
        return message(responses=[message.FetchableTopicResponse(topic="t", partitions=data)])

    records = bytes(range(256)) * (size // 256) + bytes(size % 256)
    whole = frames.response(1, 12, 3, response(records))
    for payload in (records, memoryview(records), frames.Pieces([records[:7], memoryview(records)[7:]])):
        frame = frames.response_frame(1, 12, 3, response(payload))
        assert bytes(frame) == whole
        assert len(frame) == len(whole)
        if size >= 2 * frames.PIECE_MIN:
            assert isinstance(frame, frames.Pieces)
            assert len(frame.parts) == 5
        elif size < frames.PIECE_MIN:
            assert isinstance(frame, bytes)


def test_frames_are_found_however_the_stream_is_cut() -> None:
    """However a stream is cut, the same frames come out; empty ones too."""
    contents = [b"", b"a", b"b" * 300, b""]
    stream = b"".join(layouts.FRAME.build(content) for content in contents)
    for step in (1, 2, 3, 7, 100, len(stream)):
        reader = frames.FrameReader()
        received = []
        for start in range(0, len(stream), step):
            received += reader.receive_data(stream[start : start + step])
        assert received == contents
        assert reader.is_empty


def test_a_part_of_a_frame_is_kept() -> None:
    """The reader says whether the stream ended within a frame."""
    reader = frames.FrameReader()
    assert list(reader.receive_data(b"\0\0\0\5abc")) == []
    assert not reader.is_empty


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\0\x01\x01", b"\x16\x03\x01\x02", b"GET "])
def test_sizes_that_cannot_be(size: bytes) -> None:
    """Negative, above the limit, a TLS hello, HTTP: refused at the fourth byte."""
    reader = frames.FrameReader(limit=256)
    assert list(reader.receive_data(size[:3])) == []
    with pytest.raises(RemoteProtocolError):
        list(reader.receive_data(size[3:]))


@pytest.mark.parametrize("begin", range(12))
def test_the_rest_of_pieces_is_the_end_of_their_bytes(begin: int) -> None:
    pieces = frames.Pieces([b"head", memoryview(b"records")[1:], b"", b"tl"])
    assert pieces.rest(begin) == bytes(pieces)[begin:]
