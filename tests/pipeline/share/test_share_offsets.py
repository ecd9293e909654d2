"""Checkpoint of a batch of a share group (pipeline/README.md rule 44)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.pipeline.share.share_offsets import (
    START,
    ShareOffset,
    decode_share_offset,
    encode_share_offset,
    merge_tokens,
)
from kafka_share_proxy.pipeline.source.stream_offsets import BadStreamOffset
from kafka_share_proxy.wire.values import TopicPartition

PLACE = TopicPartition("eu-orders", 3)


def test_neighbours_are_one_token() -> None:
    other = PLACE._replace(partition=0)
    tokens = merge_tokens([(PLACE, OffsetSpan(10, 20)), (other, OffsetSpan(5, 6)), (PLACE, OffsetSpan(20, 25))])
    assert tokens == [(other, OffsetSpan(5, 6)), (PLACE, OffsetSpan(10, 25))]


def test_a_batch_is_read_as_it_was_written() -> None:
    offset = ShareOffset(7, [(PLACE, OffsetSpan(10, 25))], {"eu-orders": bytes(range(16))})
    stored = encode_share_offset(offset)
    assert stored["seq"] == 7
    assert stored["tokens"] == [["eu-orders-3", 10, 24]]
    assert decode_share_offset(json.loads(json.dumps(stored))) == offset
    assert decode_share_offset(encode_share_offset(START)) == START


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ({"v": 2}, "version 2, only 1 is known"),
        ({"v": 1, "t": {"orders": {"0": 1}}}, "no offsets of a share group"),
        ({"v": 1, "seq": 1, "tokens": [["orders-0", 5, 4]], "ids": {"orders": "00"}}, "a token is none"),
        ({"v": 1, "seq": 1, "tokens": [["orders-0", 1, 4]], "ids": {}}, "a token is none"),
    ],
)
def test_a_stored_value_that_is_no_batch_is_an_error(stored: dict[str, Any], text: str) -> None:
    with pytest.raises(BadStreamOffset, match=text):
        decode_share_offset(stored)
