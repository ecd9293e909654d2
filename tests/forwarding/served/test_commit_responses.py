"""Responses to commits that are made here: every partition of the request, in its order, by name and by id."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka_share_proxy.forwarding.served.commit_responses import commit_response, refused
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID

REQUESTS = [(8, messages.OffsetCommitRequest), (28, messages.TxnOffsetCommitRequest)]


def call_of(key: int, request: Any) -> Call[Any]:
    topic, partition = (getattr(request, f"{request.__name__}{part}") for part in ("Topic", "Partition"))
    first = topic(name="t", partitions=[partition(partition_index=index) for index in (3, 1)])
    second = topic(topic_id=b"x" * 16, partitions=[partition(partition_index=0)])
    return cast(Call[Any], SimpleNamespace(key=key, message=request(topics=[first, second])))


@pytest.mark.parametrize(("key", "request_class"), REQUESTS)
def test_every_partition_is_refused_in_the_order_of_the_request(key: int, request_class: Any) -> None:
    call = call_of(key, request_class)
    response: Any = refused(call, call.message.topics, ErrorCode.NOT_COORDINATOR)
    assert type(response) is registry.response(key, 9 if key == 8 else 4).message_class
    codes = [(t.name, t.topic_id, p.partition_index, p.error_code) for t in response.topics for p in t.partitions]
    assert codes == [("t", ZERO_UUID, 3, 16), ("t", ZERO_UUID, 1, 16), ("", b"x" * 16, 0, 16)]


@pytest.mark.parametrize(("key", "request_class"), REQUESTS)
def test_each_partition_has_its_code(key: int, request_class: Any) -> None:
    call = call_of(key, request_class)
    response: Any = commit_response(call, call.message.topics, lambda entry: entry.partition_index, 7)
    assert [p.error_code for t in response.topics for p in t.partitions] == [3, 1, 0]
    assert response.throttle_time_ms == 7
