"""The report about librdkafka in conformance/RESULTS.md has the bytes that it describes."""

from __future__ import annotations

import re
from pathlib import Path

import kafka_share_proxy
from kafka_share_proxy.conformance.suite.building import build
from kafka_share_proxy.wire.codec import frames

RESULTS = Path(kafka_share_proxy.__file__).parent / "conformance/RESULTS.md"


def test_the_reported_frame_has_three_bytes_after_its_last_field() -> None:
    (shown,) = re.findall(r"^    ((?:[0-9a-f]{2} ?){20,})$", RESULTS.read_text(), re.MULTILINE)
    reported = bytes.fromhex(shown)
    right = frames.request(3, 13, 3, "rdkafka", build("Metadata", topics=None, allow_auto_topic_creation=False))
    assert int.from_bytes(reported[:4], "big") == len(reported) - 4
    assert reported[4:] == right[4:] + b"\x01\x00\x00"
