"""Requests from keyword arguments."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.suite.building import build


def test_nested_structures_are_built_from_dicts() -> None:
    message = build("ListOffsets", topics=[{"name": "t", "partitions": [{"partition_index": 3, "timestamp": -1}]}])
    assert message.topics[0].partitions[0].partition_index == 3
    assert message.replica_id == 0


def test_null_stays_null() -> None:
    assert build("Metadata", topics=None).topics is None


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="no_such_field"):
        build("Metadata", no_such_field=1)
