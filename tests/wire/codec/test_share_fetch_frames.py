"""Tests for responses without errors, encoded in one pass: byte for byte those of the generated codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.codec.frames import PIECE_MIN, Pieces
from kafka_share_proxy.wire.codec.share_fetch_frames import FetchedPartition, frame_without_errors
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
RECORDS = st.one_of(
    st.binary(max_size=300),
    st.sampled_from([PIECE_MIN - 1, PIECE_MIN, PIECE_MIN + 1]).map(lambda size: memoryview(bytes(size))),
)
RANGES = st.lists(st.tuples(INT64, INT64, st.integers(-(2**15), 2**15 - 1)), max_size=130)
TOPICS = st.dictionaries(
    st.binary(min_size=16, max_size=16), st.lists(st.tuples(INT32, RECORDS, RANGES), min_size=1, max_size=4), max_size=3
)


def generated(
    version: int, correlation_id: int, throttle_ms: int, lock_ms: int, topics: dict[bytes, list[FetchedPartition]]
) -> frames.ResponseFrame:
    message = messages.ShareFetchResponse
    responses = [
        message.ShareFetchableTopicResponse(
            topic_id=topic_id,
            partitions=[
                message.PartitionData(
                    partition_index=index,
                    current_leader=message.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
                    records=records,
                    acquired_records=[
                        message.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                        for first, last, count in acquired
                    ],
                )
                for index, records, acquired in partitions
            ],
        )
        for topic_id, partitions in topics.items()
    ]
    response = message(throttle_time_ms=throttle_ms, acquisition_lock_timeout_ms=lock_ms, responses=responses)
    return frames.response_frame(ApiKey.SHARE_FETCH, version, correlation_id, response)


@pytest.mark.parametrize("version", [1, 2])
@given(correlation_id=INT32, throttle_ms=INT32, lock_ms=INT32, topics=TOPICS)
def test_a_response_equals_that_of_the_generated_codec(
    version: int, correlation_id: int, throttle_ms: int, lock_ms: int, topics: dict[bytes, list[FetchedPartition]]
) -> None:
    frame = frame_without_errors(correlation_id, throttle_ms, lock_ms, topics)
    expected = generated(version, correlation_id, throttle_ms, lock_ms, topics)
    assert bytes(frame) == bytes(expected)
    assert len(frame) == len(expected)


def test_large_records_are_not_copied() -> None:
    records = memoryview(bytes(PIECE_MIN))
    frame = frame_without_errors(1, 0, 30_000, {bytes(16): [(0, records, [(0, 9, 1)]), (1, b"", ())]})
    assert isinstance(frame, Pieces)
    assert frame.parts[1] is records
    assert len(frame.parts) == 3


def test_small_responses_are_one_piece() -> None:
    assert isinstance(frame_without_errors(1, 0, 30_000, {bytes(16): [(0, b"records", [(0, 9, 1)])]}), bytes)
