"""Error responses have the entries of their requests."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.conformance.target import error_responses
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.judged import TOPIC_ID, batch, produce, share_fetch

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_produce_gets_the_code_for_each_partition() -> None:
    response: Any = error_responses.build(ApiKey.PRODUCE, 9, produce(batch()), CODE)
    (topic,) = response.responses
    assert topic.name == "t"
    (partition,) = topic.partition_responses
    assert (partition.index, partition.error_code, partition.base_offset) == (0, CODE, -1)


def test_a_share_fetch_gets_the_code_by_topic_id() -> None:
    response: Any = error_responses.build(ApiKey.SHARE_FETCH, 2, share_fetch(1), CODE)
    assert response.error_code == 0
    (topic,) = response.responses
    assert topic.topic_id == TOPIC_ID
    assert [(each.partition_index, each.error_code, each.records) for each in topic.partitions] == [(0, CODE, b"")]


def test_the_level_selects_the_field() -> None:
    top: Any = error_responses.build(ApiKey.SHARE_FETCH, 2, share_fetch(1), CODE, "top")
    assert top.error_code == CODE
    assert top.responses[0].partitions[0].error_code == 0
    empty = messages.FetchRequest(max_wait_ms=0, min_bytes=0, session_id=1, session_epoch=1)
    assert error_responses.build(ApiKey.FETCH, 13, empty, CODE, "entries") is None


def test_plain_keys_and_partitions_become_entries() -> None:
    find = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"])
    built: Any = error_responses.build(ApiKey.FIND_COORDINATOR, 4, find, CODE)
    assert [(each.key, each.error_code) for each in built.coordinators] == [("a", CODE), ("b", CODE)]
    kinds = messages.OffsetFetchRequest
    topic = kinds.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 3])
    fetch = kinds(groups=[kinds.OffsetFetchRequestGroup(group_id="g", topics=[topic])])
    response: Any = error_responses.build(ApiKey.OFFSET_FETCH, 8, fetch, CODE)
    partitions = response.groups[0].topics[0].partitions
    assert response.groups[0].group_id == "g"
    assert [(each.partition_index, each.committed_offset) for each in partitions] == [(0, -1), (3, -1)]


def test_a_response_without_any_code_field_gets_none() -> None:
    response = messages.DescribeClusterResponse()
    assert error_responses.overwrite(response, 1, CODE)
    assert not error_responses.overwrite(messages.MetadataResponse(), 1, CODE)


@pytest.mark.parametrize("key", registry.API_KEYS)
def test_an_error_response_of_every_api_can_be_encoded(key: int) -> None:
    version = registry.versions(key)[1]
    request = registry.request(key, version).message_class()
    response = error_responses.build(key, version, request, CODE)
    if response is not None:
        assert registry.response(key, version).encode(response)
