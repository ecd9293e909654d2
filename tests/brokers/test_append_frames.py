"""Frames of plain appends: the same bytes as from the general codec, and the same results of any response."""

from __future__ import annotations

import random
from typing import Any

import pytest
from kafka_share_proxy.brokers import producer_messages
from kafka_share_proxy.brokers.append_frames import AppendFrames
from kafka_share_proxy.brokers.cluster_connection import CLIENT_ID
from kafka_share_proxy.brokers.producer_messages import PRODUCE_VERSION_MAX
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError

TOPIC = "__proxy_share_state"
TOPICS = (TOPIC, "t", "n" * 249)
VERSIONS = range(3, PRODUCE_VERSION_MAX + 1)
INT64 = (-1, 0, 1, 127, 1 << 40, (1 << 63) - 1, -(1 << 63))

Response = messages.ProduceResponse
Partition = Response.PartitionProduceResponse
RecordError = Response.BatchIndexAndErrorMessage


def general_request(topic: str, version: int, batches: dict[int, bytes]) -> bytes:
    return frames.request(ApiKey.PRODUCE, version, 0, CLIENT_ID, producer_messages.produce(topic, batches))


def response_frame(version: int, response: messages.ProduceResponse, number: int = 5) -> bytes:
    return frames.response(ApiKey.PRODUCE, version, number, response)[4:]


def response_of(*entries: Any, topic: str = TOPIC, throttle_ms: int = 0) -> messages.ProduceResponse:
    of_topic = Response.TopicProduceResponse(name=topic, partition_responses=list(entries))
    return Response(responses=[of_topic], throttle_time_ms=throttle_ms)


def general_outcome(version: int, frame: bytes) -> object:
    """Return the decoded results of the general codec, or the type of its error."""
    try:
        number, response = frames.decode_response(ApiKey.PRODUCE, version, frame)
    except RemoteProtocolError as error:
        return type(error)
    entries = producer_messages.by_partition(response)
    return number, {index: (entry.error_code, entry.base_offset) for index, entry in entries.items()}


def outcome(topic_frames: AppendFrames, version: int, frame: bytes) -> object:
    try:
        return topic_frames.response(version, frame)
    except RemoteProtocolError as error:
        return type(error)


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_those_of_the_general_codec(topic: str, version: int) -> None:
    topic_frames = AppendFrames(topic)
    for size in (0, 1, 61, 126, 127, 128, 16_382, 16_383, 16_384, 1 << 21):
        for partition in (0, 49, 255, (1 << 31) - 1):
            batches = {partition: bytes(size)}
            assert topic_frames.request(version, batches) == general_request(topic, version, batches)
    several = {3: b"three", 1: b"one"}
    assert topic_frames.request(version, several) == general_request(topic, version, several)


def test_batch_with_the_bytes_of_the_samples_is_copied_unchanged() -> None:
    batches = {-559038737: b"\xde\xad\xbe\xef" * 4}
    assert AppendFrames(TOPIC).request(PRODUCE_VERSION_MAX, batches) == general_request(
        TOPIC, PRODUCE_VERSION_MAX, batches
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_accepted_append_has_its_partition_and_base_offset(version: int) -> None:
    topic_frames = AppendFrames(TOPIC)
    for offset in INT64:
        entry = Partition(index=7, base_offset=offset)
        frame = response_frame(version, response_of(entry, throttle_ms=9), number=offset & 0x7FFFFFFF)
        assert topic_frames.response(version, frame) == (offset & 0x7FFFFFFF, {7: (ErrorCode.NONE, offset)})


@pytest.mark.parametrize(
    "response",
    [
        response_of(Partition(index=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1)),
        response_of(Partition(index=1, error_code=999, base_offset=-1)),
        response_of(Partition(index=1, base_offset=4, error_message="odd")),
        response_of(
            Partition(index=1, base_offset=4, record_errors=[Response.BatchIndexAndErrorMessage(batch_index=1)])
        ),
        response_of(Partition(index=1, base_offset=4, current_leader=Response.LeaderIdAndEpoch(leader_id=3))),
        response_of(Partition(index=1, base_offset=4, unknown_tags=((7, b"x"),))),
        response_of(Partition(index=1, base_offset=4), Partition(index=2, base_offset=5)),
        response_of(Partition(index=1, base_offset=4), topic="t"),
        response_of(Partition(index=1, base_offset=4), topic=TOPIC[::-1]),
        response_of(),
        Response(responses=[]),
        Response(node_endpoints=[Response.NodeEndpoint(node_id=1, host="h", port=9)]),
    ],
)
def test_other_responses_are_those_of_the_general_codec(response: messages.ProduceResponse) -> None:
    frame = response_frame(PRODUCE_VERSION_MAX, response)
    result = outcome(AppendFrames(TOPIC), PRODUCE_VERSION_MAX, frame)
    assert result == general_outcome(PRODUCE_VERSION_MAX, frame)
    assert isinstance(result, tuple)


@pytest.mark.parametrize("version", [8, PRODUCE_VERSION_MAX])
def test_changed_bytes_have_the_outcome_of_the_general_codec(version: int) -> None:
    chosen, topic_frames = random.Random(version), AppendFrames(TOPIC)
    refused = 0
    for _ in range(20_000):
        entry = Partition(
            index=chosen.choice((0, 49, 1 << 20)),
            base_offset=chosen.choice(INT64),
            log_append_time_ms=chosen.choice(INT64),
            log_start_offset=chosen.choice(INT64),
        )
        frame = bytearray(response_frame(version, response_of(entry), number=chosen.randrange(1 << 31)))
        for _ in range(chosen.choice((0, 1, 1, 2, 5))):
            frame[chosen.randrange(len(frame))] = chosen.choice((0, 1, 2, 127, 128, 255, chosen.randrange(256)))
        if not chosen.randrange(4):
            cut = chosen.randrange(len(frame) + 1)
            frame[cut : cut + chosen.choice((0, 1, 4))] = chosen.randbytes(chosen.choice((0, 1, 4)))
        expected = general_outcome(version, bytes(frame))
        assert outcome(topic_frames, version, bytes(frame)) == expected
        refused += expected is RemoteProtocolError
    assert refused > 100
