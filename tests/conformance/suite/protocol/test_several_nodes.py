"""Seeded faults of a cluster with three nodes: leaders, followers and other nodes."""

from __future__ import annotations

import secrets
from typing import Any

from kafka_share_proxy.conformance.cluster_thread import running_cluster

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

METADATA, RECORDS, SHARES = "metadata.nodes", "produce-fetch.nodes", "share-groups.nodes"
APPENDED, FETCHED, LISTED = "responses[].partition_responses[]", "responses[].partitions[]", "topics[].partitions[]"


def first_only(values: Any) -> Any:
    return values[:1]


FAULTS = [
    Fault("cluster-id-of-each-node", f"{METADATA}.same-brokers", "Metadata",
          put("cluster_id", lambda _: secrets.token_hex(4))),
    Fault("replicas-missing", f"{METADATA}.replicas", "Metadata", put(f"{LISTED}.replica_nodes", first_only)),
    Fault("leader-epoch-one-too-high", f"{METADATA}.leaders", "Metadata", put(f"{LISTED}.leader_epoch", 1)),
    Fault("partition-of-another-node", f"{RECORDS}.own-partitions", "Fetch", put(f"{FETCHED}.records", b"")),
    Fault("produce-accepted", f"{RECORDS}.produce", "Produce", replace(f"{APPENDED}.error_code", 6, 0)),
    Fault("base-offset-of-an-error", f"{RECORDS}.produce", "Produce", replace(f"{APPENDED}.base_offset", -1, 0)),
    Fault("produce-without-leader", f"{RECORDS}.produce-leader", "Produce",
          put(f"{APPENDED}.current_leader.leader_id", -1)),
    Fault("produce-without-address", f"{RECORDS}.produce-leader", "Produce", put("node_endpoints", [])),
    Fault("fetch-unknown-topic", f"{RECORDS}.fetch-v12", "Fetch", replace(f"{FETCHED}.error_code", 6, 3)),
    Fault("fetch-without-address", f"{RECORDS}.fetch-leader", "Fetch", put("node_endpoints", [])),
    Fault("fetch-wrong-leader-epoch", f"{RECORDS}.fetch-leader", "Fetch",
          put(f"{FETCHED}.current_leader.leader_epoch", 1)),
    Fault("followers-serve-every-version", f"{RECORDS}.fetch-old-version-at-follower", "Fetch",
          replace(f"{FETCHED}.error_code", 6, 0)),
    Fault("followers-serve-no-version", f"{RECORDS}.fetch-at-follower", "Fetch",
          replace(f"{FETCHED}.error_code", 0, 6)),
    Fault("role-before-fenced-epoch", f"{RECORDS}.list-offsets-epoch-earlier", "ListOffsets",
          replace(f"{LISTED}.error_code", 74, 6)),
    Fault("role-before-unknown-epoch", f"{RECORDS}.end-of-epoch-later", "OffsetForLeaderEpoch",
          replace(f"{LISTED}.error_code", 75, 6)),
    Fault("end-offset-of-a-follower", f"{RECORDS}.end-of-epoch-current", "OffsetForLeaderEpoch",
          put(f"{LISTED}.end_offset", 3)),
    Fault("low-watermark-of-an-error", f"{RECORDS}.delete-records", "DeleteRecords", replace(
          f"{LISTED}.low_watermark", -1, 0)),
    Fault("share-fetch-error-at-the-top", f"{SHARES}.fetch", "ShareFetch", put("error_code", 6)),
    Fault("share-fetch-without-leader", f"{SHARES}.fetch", "ShareFetch",
          put(f"{FETCHED}.current_leader.leader_id", -1)),
    Fault("share-fetch-without-address", f"{SHARES}.fetch", "ShareFetch", put("node_endpoints", [])),
    Fault("error-of-one-is-the-others", f"{SHARES}.own-partition", "ShareFetch",
          replace(f"{FETCHED}.error_code", 0, 6)),
    Fault("acknowledgement-refused", f"{SHARES}.leaders", "ShareAcknowledge", put(f"{FETCHED}.error_code", 121)),
    Fault("groups-not-listed", "share-groups.list.at-the-coordinator", "ListGroups", put("groups", [])),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case() -> None:
    with running_cluster() as cluster:
        assert_caught(cluster.bootstrap, FAULTS)
        assert cluster.failures() == []
