"""Topic ids as text, in the form that Kafka's own tools print (org.apache.kafka.common.Uuid.toString)."""

from __future__ import annotations

import base64
import binascii

from kafka_share_proxy.wire.values import ZERO_UUID


def topic_id_text(topic_id: bytes) -> str:
    """Encode as URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def parse_topic_id(text: str) -> bytes:
    """Raises ValueError."""
    try:
        topic_id = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        topic_id = b""
    if len(topic_id) != len(ZERO_UUID) or topic_id_text(topic_id) != text:
        raise ValueError(f"{text!r} is not a topic id: 22 characters, as kafka-topics.sh --describe prints them")
    return topic_id
