"""Topic ids as text (org.apache.kafka.common.Uuid)."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.topic_ids import parse_topic_id, topic_id_text


def test_a_topic_id_is_the_text_that_kafka_prints() -> None:
    topic_id = bytes([1, *range(14), 255])
    assert topic_id_text(topic_id) == "AQABAgMEBQYHCAkKCwwN_w"
    assert parse_topic_id("AQABAgMEBQYHCAkKCwwN_w") == topic_id


@pytest.mark.parametrize(
    "text", ["", "AQABAgMEBQYHCAkKCwwN", "AQABAgMEBQYHCAkKCwwN/w", "no id", "AQABAgMEBQYHCAkKCwwN_w_w"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a topic id"):
        parse_topic_id(text)
