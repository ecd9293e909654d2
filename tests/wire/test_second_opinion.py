"""The package `kafka-protocol` 0.1 as one more opinion, where it can decode: ApiVersions and Metadata.

It knows ApiVersions v0-v3 and Metadata v0-v12, reads flexible lengths only below 128 bytes and no null in flexible
versions (its varint for null is another one), so the messages here stay within that.
"""

from __future__ import annotations

from typing import Any

import kafkaprotocol
import pytest
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry

CASES = [(18, version) for version in range(4)] + [(3, version) for version in range(13)]


def request(key: int, version: int) -> Any:
    """One without null."""
    if key == 18:
        message_class = registry.message("ApiVersionsRequest")
        return (
            message_class(client_software_name="me", client_software_version="1") if version >= 3 else message_class()
        )
    message_class = registry.message("MetadataRequest")
    return message_class(
        topics=[message_class.MetadataRequestTopic(name="one"), message_class.MetadataRequestTopic(name="two")]
    )


def response(key: int, version: int) -> Any:
    """One with two entries of each kind."""
    if key == 18:
        message_class = registry.message("ApiVersionsResponse")
        return message_class(
            error_code=35, api_keys=[message_class.ApiVersion(api_key=k, min_version=1, max_version=4) for k in (3, 18)]
        )
    message_class = registry.message("MetadataResponse")
    partitions = [
        message_class.MetadataResponsePartition(partition_index=i, leader_id=2, replica_nodes=[2, 1]) for i in (0, 1)
    ]
    return message_class(
        brokers=[
            message_class.MetadataResponseBroker(node_id=i, host=f"host-{i}", port=9092, rack="r") for i in (1, 2)
        ],
        cluster_id="cluster",
        controller_id=1,
        topics=[message_class.MetadataResponseTopic(name="one", topic_id=bytes(range(9, 25)), partitions=partitions)],
    )


def plain(value: Any) -> Any:
    """Its structures as dictionaries, without tags."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if hasattr(value, "_fields"):
        return {name: plain(getattr(value, name)) for name, _ in value._fields if not name.startswith("_")}
    return value


def same(theirs: Any, ours: Any) -> bool:
    """True if all that it read is what we wrote."""
    if isinstance(theirs, dict):
        return all(same(value, getattr(ours, name)) for name, value in theirs.items())
    if isinstance(theirs, list):
        return len(theirs) == len(ours) and all(same(one, other) for one, other in zip(theirs, ours, strict=True))
    if isinstance(ours, bytes):  # of a uuid it gives the first byte
        return bool(theirs == ours[0])
    return bool(theirs == ours)


@pytest.mark.parametrize(("key", "version"), CASES)
def test_kafka_protocol_reads_our_requests(key: int, version: int) -> None:
    """The same header and the same values."""
    message = request(key, version)
    header, theirs = kafkaprotocol.read_network_request(frames.request(key, version, 7, "client", message))
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (key, version, 7)
    assert header.client_id == "client"
    assert same(plain(theirs), message)


@pytest.mark.parametrize(("key", "version"), CASES)
def test_kafka_protocol_reads_our_responses(key: int, version: int) -> None:
    """The same values; it found every byte used."""
    message = response(key, version)
    header, theirs = kafkaprotocol.read_network_response(key, version, frames.response(key, version, 7, message))
    assert header.correlation_id == 7
    assert plain(theirs)
    assert same(plain(theirs), message)
