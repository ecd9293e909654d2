"""Advice for a broker that cannot be reached."""

from __future__ import annotations

import re

import pytest
from kafka_share_proxy.client.connection_advice import connection_advice
from kafka_share_proxy.consumer.requests import ANY_NODE


@pytest.mark.parametrize(
    ("text", "node_id", "words"),
    [
        ("b:1: Connection refused", ANY_NODE, "bootstrap="),
        ("b:1: Connection refused", 1, "advertised.listeners"),
        ("b:1: the certificate is not accepted: Hostname mismatch", 1, "host name of the broker's certificate"),
        ("b:1 refuses 'alice': Authentication failed", 1, "^$"),
    ],
)
def test_the_advice_depends_on_the_cause(text: str, node_id: int, words: str) -> None:
    assert re.search(words, connection_advice(text, node_id))
