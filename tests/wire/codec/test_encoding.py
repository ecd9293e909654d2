"""The bytes the generated encoders write, at the borders of their short cuts."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import LocalProtocolError

GROUPS = "DeleteGroupsRequest"
FETCH = registry.message("FetchRequest")


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 16_382, 16_383, 32_767])
def test_compact_lengths_of_one_and_more_bytes_are_encoded(length: int) -> None:
    """A compact length of 127 is the last that is fused with the fields before it."""
    codec = registry.codec(GROUPS, 2)
    message = registry.message(GROUPS)(groups_names=["g" * length])
    assert codec.decode(codec.encode(message)) == message


@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 256, 257, 1000])
@pytest.mark.parametrize("version", [0, 12])
def test_arrays_of_numbers_are_packed_with_their_count(count: int, version: int) -> None:
    """Numbers are packed with their count and the fields before it."""
    response = registry.message("MetadataResponse")
    partition = response.MetadataResponsePartition(replica_nodes=list(range(count)), isr_nodes=[1] * count)
    message = response(topics=[response.MetadataResponseTopic(name="t", partitions=[partition])])
    codec = registry.response(3, version)
    again = codec.decode(codec.encode(message)).topics[0].partitions[0]
    assert (again.replica_nodes, again.isr_nodes) == (list(range(count)), [1] * count)


@pytest.mark.parametrize("value", [[], [1, 2], None])
def test_null_empty_and_filled_arrays_of_numbers_differ(value: list[int] | None) -> None:
    """Null, empty and filled are three things."""
    request = registry.message("AlterPartitionReassignmentsRequest")
    partition = request.ReassignablePartition(partition_index=4, replicas=value)
    message = request(topics=[request.ReassignableTopic(name="t", partitions=[partition])])
    codec = registry.request(45, 0)
    assert codec.decode(codec.encode(message)).topics[0].partitions[0].replicas == value


def test_tagged_fields_at_their_default_are_not_written() -> None:
    """Kafka leaves them out; a structure counts as default when all in it does."""
    codec = registry.request(1, 17)
    plain = codec.encode(FETCH())
    assert plain == codec.encode(FETCH(cluster_id=None, replica_state=FETCH.ReplicaState()))
    assert len(codec.encode(FETCH(replica_state=FETCH.ReplicaState(replica_epoch=0)))) > len(plain)
    assert len(codec.encode(FETCH(replica_state=FETCH.ReplicaState(unknown_tags=((3, b""),))))) > len(plain)
    assert len(codec.encode(FETCH(cluster_id=""))) > len(plain)


NOT_IN_VERSION: list[tuple[str, int, dict[str, Any]]] = [
    ("FetchRequest", 12, {"replica_state": FETCH.ReplicaState(replica_id=5)}),
    ("OffsetFetchRequest", 8, {"group_id": "g"}),
    ("OffsetFetchRequest", 7, {"groups": [registry.message("OffsetFetchRequest").OffsetFetchRequestGroup()]}),
    ("OffsetFetchRequest", 6, {"require_stable": True}),
    ("FindCoordinatorRequest", 3, {"coordinator_keys": None}),
    ("ApiVersionsResponse", 2, {"finalized_features_epoch": 0}),
]


@pytest.mark.parametrize(("name", "version", "values"), NOT_IN_VERSION)
def test_a_set_value_without_a_field_in_the_version_is_refused(name: str, version: int, values: dict[str, Any]) -> None:
    """With any type, a value that is set needs a field, unless the definition allows dropping it."""
    codec = registry.codec(name, version)
    field = next(field for field in codec.spec.root.fields if field.attribute in values)
    message = registry.message(name)(**values)
    if field.ignorable:
        assert codec.encode(message) == codec.encode(registry.message(name)())
    else:
        with pytest.raises(LocalProtocolError, match=field.name):
            codec.encode(message)


def test_byte_fields_take_any_bytes() -> None:
    """bytes, bytearray and memoryview alike."""
    request = registry.message("SaslAuthenticateRequest")
    codec = registry.request(36, 2)
    written = {codec.encode(request(auth_bytes=kind(b"secret"))) for kind in (bytes, bytearray, memoryview)}
    assert len(written) == 1
