"""No secret and no content of a record is ever described, in any message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_share_proxy.forwarding.client_trace.described_messages import HIDDEN, described
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.specs import FieldSpec, StructSpec
from kafka_share_proxy.wire.records import records

SECRET = "correct-horse-battery"
TOPIC, BROKER = 2, 4


def filled(cls: Any, struct: StructSpec) -> Any:
    """A message whose fields of bytes and records all hold SECRET."""

    def one(field: FieldSpec) -> Any:
        if field.struct is not None:
            nested = root_of(cls, field.struct.name)
            return filled_struct(nested, field.struct)
        if field.type in ("bytes", "records"):
            return SECRET.encode()
        return field.default

    def filled_struct(kind: Any, spec: StructSpec) -> Any:
        values = {}
        for field in spec.fields:
            if field.struct is not None or field.type in ("bytes", "records"):
                values[field.attribute] = [one(field)] if field.is_array else one(field)
        return kind(**values)

    return filled_struct(cls, struct)


def root_of(cls: Any, name: str) -> Any:
    return getattr(cls, name)


def every_message() -> Iterator[tuple[str, Any]]:
    for key, name in registry.API_KEYS.items():
        yield f"{name}Request", registry.versioned_request_spec(key, registry.versions(key)[1])
        yield f"{name}Response", registry.versioned_response_spec(key, registry.versions(key)[1])


@pytest.mark.parametrize(("name", "spec"), list(every_message()))
def test_no_field_of_bytes_is_written(name: str, spec: Any) -> None:
    message = filled(registry.message(name), spec.root)
    for version in spec.valid:
        assert SECRET not in json.dumps(described(message, version))


def altered(resource_type: int, name: str) -> dict[str, Any]:
    request = messages.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name=name, config_operation=0, value=SECRET)
    resource = request.AlterConfigsResource(resource_type=resource_type, resource_name="x", configs=[config])
    message: dict[str, Any] = described(request(resources=[resource]), 1)
    shown: dict[str, Any] = message["Resources"][0]["Configs"][0]
    return shown


def test_settings_of_brokers_are_hidden_and_those_of_topics_shown() -> None:
    assert altered(BROKER, "ssl.keystore.password")["Value"] == HIDDEN
    assert altered(BROKER, "listener.name.x.plain.sasl.jaas.config")["Value"] == HIDDEN
    assert altered(BROKER, "log.retention.ms")["Value"] == HIDDEN
    assert altered(TOPIC, "retention.ms")["Value"] == SECRET
    assert altered(TOPIC, "my.password")["Value"] == HIDDEN


def test_a_refusal_that_may_quote_a_setting_of_a_broker_is_hidden() -> None:
    response = messages.AlterConfigsResponse
    result = response.AlterConfigsResourceResponse(
        error_code=40, error_message=f"bad value {SECRET}", resource_type=BROKER, resource_name="1"
    )
    assert SECRET not in json.dumps(described(response(responses=[result]), 2))


def test_records_are_described_by_the_headers_of_their_batches() -> None:
    batch = records.build_batch(7, [records.Record(b"k", SECRET.encode())])
    request = messages.ProduceRequest
    partition = request.PartitionProduceData(index=3, records=batch)
    topic = request.TopicProduceData(name="orders", partition_data=[partition])
    shown = described(request(acks=-1, timeout_ms=1, topic_data=[topic]), 9)
    described_records = shown["TopicData"][0]["PartitionData"][0]["Records"]
    assert SECRET not in json.dumps(shown)
    assert (
        described_records["bytes"],
        described_records["batches"][0]["offset"],
        described_records["batches"][0]["records"],
    ) == (len(batch), 7, 1)


def test_long_texts_are_cut() -> None:
    shown = described(messages.HeartbeatRequest(group_id="g" * 600, member_id="m"), 4)
    assert shown["GroupId"].endswith("... (600 characters)")


def test_a_topic_id_is_written_as_kafka_prints_it() -> None:
    topic = messages.MetadataRequest.MetadataRequestTopic(topic_id=bytes(range(16)), name=None)
    assert described(messages.MetadataRequest(topics=[topic]), 12)["Topics"][0]["TopicId"] == "AAECAwQFBgcICQoLDA0ODw"
