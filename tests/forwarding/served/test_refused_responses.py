"""Refusals of whole requests: every API in every version, with a request that names one of everything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka_share_proxy.forwarding.dispatch.offered_versions import client_facing
from kafka_share_proxy.forwarding.served.refused_responses import refused_response
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.specs import StructSpec
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support import hostile

CODE, TEXT = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed here"
ALL = [
    (key, version)
    for key in sorted(client_facing())
    for version in range(registry.versions(key)[0], registry.versions(key)[1] + 1)
]


def codes(value: Any, spec: StructSpec, version: int) -> Iterator[int]:
    """Yield the error codes of a response in this version."""
    for field in (field for field in spec.fields if version in field.versions):
        value_of_field = getattr(value, field.attribute)
        if field.attribute.endswith("error_code"):
            yield value_of_field
        if field.struct is not None:
            for each in (
                (value_of_field or ()) if field.is_array else [value_of_field] if value_of_field is not None else []
            ):
                yield from codes(each, field.struct, version)


@pytest.mark.parametrize(("key", "version"), ALL, ids=str)
def test_every_error_code_of_the_response_is_set_and_it_can_be_sent(key: int, version: int) -> None:
    refused = refused_response(key, version, hostile.filled_request(key, version), CODE, TEXT)
    error_codes = list(codes(refused, registry.response_spec(key).root, version))
    assert error_codes, "a client would take the response for a success"
    assert set(error_codes) == {CODE}
    frames.response(key, version, 1, refused)


def test_topics_and_partitions_of_the_request_have_entries() -> None:
    request = messages.ProduceRequest
    partitions = [request.PartitionProduceData(index=index) for index in (3, 5)]
    requested = request(acks=-1, topic_data=[request.TopicProduceData(name="orders", partition_data=partitions)])
    (topic,) = refused_response(ApiKey.PRODUCE, 9, requested, CODE, TEXT).responses  # type: ignore[attr-defined]
    assert (topic.name, [each.index for each in topic.partition_responses]) == ("orders", [3, 5])
    assert {each.error_message for each in topic.partition_responses} == {TEXT}


def test_names_in_plain_arrays_have_entries() -> None:
    deleted = messages.DeleteTopicsRequest(topic_names=["a", "b"])
    responses = refused_response(ApiKey.DELETE_TOPICS, 5, deleted, CODE, TEXT).responses  # type: ignore[attr-defined]
    assert [(each.name, each.error_code) for each in responses] == [("a", CODE), ("b", CODE)]


def test_elements_within_elements_have_entries_if_the_response_is_flat() -> None:
    request = messages.AlterReplicaLogDirsRequest
    topics = [request.AlterReplicaLogDirTopic(name="orders", partitions=[7])]
    requested = request(dirs=[request.AlterReplicaLogDir(path="/data", topics=topics)])
    (topic,) = refused_response(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, requested, CODE, TEXT).results  # type: ignore[attr-defined]
    assert (topic.topic_name, topic.partitions[0].partition_index) == ("orders", 7)


def test_entries_without_names_are_as_many_as_in_the_request() -> None:
    requested = messages.CreateAclsRequest(creations=[messages.CreateAclsRequest.AclCreation()] * 3)
    results = refused_response(ApiKey.CREATE_ACLS, 3, requested, CODE, TEXT).results  # type: ignore[attr-defined]
    assert [each.error_code for each in results] == [CODE] * 3
