"""Requests that change nothing."""

from __future__ import annotations

from kafka_share_proxy.conformance.suite.building import KEYS, build
from kafka_share_proxy.conformance.suite.harmless_requests import REQUESTS, by_version, newest
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry

BETWEEN_BROKERS = {
    "AddRaftVoter", "RemoveRaftVoter", "UnregisterBroker", "UnregisterController", "UpdateFeatures", "WriteTxnMarkers",
    "InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState",
    "ReadShareGroupStateSummary",
}  # fmt: skip
NOT_HARMLESS = {"CreateDelegationToken", "SaslAuthenticate", "AlterReplicaLogDirs"}
OWN_CASES = {"ApiVersions"}
NOT_COVERED = {"StreamsGroupHeartbeat", "StreamsGroupTopologyDescriptionUpdate"}


def test_every_request_can_be_encoded_in_each_of_its_versions() -> None:
    for request, version in by_version():
        frame = frames.request(KEYS[request.api], version, 1, "c", build(request.api, **request.fields))
        assert frames.decode_request(frame[4:])[0].version == version


def test_versions_of_an_api_neither_overlap_nor_exceed_the_definitions() -> None:
    pairs = [(request.api, version) for request, version in by_version()]
    assert len(pairs) == len(set(pairs))
    for request in REQUESTS:
        first, last = registry.versions(KEYS[request.api])
        assert first <= request.first <= request.last <= last


def test_every_api_of_clients_is_covered() -> None:
    offered = {name for key, name in registry.API_KEYS.items() if "broker" in registry.listeners(key)}
    assert offered - set(newest()) - BETWEEN_BROKERS - NOT_HARMLESS - OWN_CASES == NOT_COVERED


def test_the_value_at_a_path_is_found() -> None:
    response = registry.message("MetadataResponse")
    metadata = response(topics=[response.MetadataResponseTopic(error_code=17)])
    assert newest()["Metadata"].value(metadata) == 17
