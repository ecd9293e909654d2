"""Requests of each API that change nothing on a shared cluster, with the expected values of their responses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_share_proxy.wire.errors import ErrorCode as E
from kafka_share_proxy.wire.records import records

NAME = "conformance-none"
"""Name of a topic, group and transactional id that do not exist."""
TOPIC_ID = b"\x05" * 16
ANY, GROUP, TRANSACTION = "any broker", "group coordinator", "transaction coordinator"


@dataclass(frozen=True)
class HarmlessRequest:
    """A request in a range of versions."""

    api: str
    first: int
    last: int
    fields: Mapping[str, Any]
    path: str
    """Path of the expected value in the response, such as results[0].error_code."""
    expected: tuple[Any, ...]
    """The values allowed there."""
    to: str = ANY

    def value(self, response: Any) -> Any:
        """Return the value at the path."""
        value = response
        for name, index in re.findall(r"(\w+)(?:\[(\d+)\])?", self.path):
            value = getattr(value, name)
            value = value[int(index)] if index else value
        return value


def _request(
    api: str, versions: tuple[int, int], path: str, expected: Any, to: str = ANY, **fields: Any
) -> HarmlessRequest:
    allowed = expected if isinstance(expected, tuple) else (expected,)
    return HarmlessRequest(api, *versions, fields, path, allowed, to)


def _topics(key: str = "name", **partition: Any) -> list[dict[str, Any]]:
    return [{key: TOPIC_ID if key == "topic_id" else NAME, "partitions": [partition]}]


_BATCH = records.build_batch(0, [records.Record(value=b"v", timestamp=0)])
_MEMBER: dict[str, Any] = {"group_id": NAME, "member_id": "nobody"}
_PRODUCER: dict[str, Any] = {"transactional_id": NAME, "producer_id": 7, "producer_epoch": 0}
_CONFIG = {"resource_type": 2, "resource_name": NAME}
_NO_TOKENS = (E.DELEGATION_TOKEN_AUTH_DISABLED, E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, E.NONE)
_UNKNOWN = E.UNKNOWN_TOPIC_OR_PARTITION
_DATA = [{"index": 0, "records": _BATCH}]
_FETCHED = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
_ANY_ACL: dict[str, Any] = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}

REQUESTS = (
    _request("Produce", (3, 12), "responses[0].partition_responses[0].error_code", _UNKNOWN,
             acks=-1, timeout_ms=1000, topic_data=[{"name": NAME, "partition_data": _DATA}]),
    _request("Produce", (13, 13), "responses[0].partition_responses[0].error_code", E.UNKNOWN_TOPIC_ID,
             acks=-1, timeout_ms=1000, topic_data=[{"topic_id": TOPIC_ID, "partition_data": _DATA}]),
    _request("Fetch", (4, 12), "responses[0].partitions[0].error_code", _UNKNOWN,
             max_wait_ms=0, min_bytes=0, topics=_topics("topic", **_FETCHED)),
    _request("Fetch", (13, 18), "responses[0].partitions[0].error_code", E.UNKNOWN_TOPIC_ID,
             max_wait_ms=0, min_bytes=0, topics=_topics("topic_id", **_FETCHED)),
    _request("ListOffsets", (1, 11), "topics[0].partitions[0].error_code", _UNKNOWN,
             replica_id=-1, topics=_topics(partition_index=0, timestamp=-1)),
    _request("Metadata", (0, 13), "topics[0].error_code", E.INVALID_TOPIC_EXCEPTION, topics=[{"name": "not a name"}]),
    _request("OffsetCommit", (2, 9), "topics[0].partitions[0].error_code", _UNKNOWN, GROUP, group_id=NAME,
             generation_id_or_member_epoch=-1, topics=_topics(partition_index=0, committed_offset=1)),
    _request("OffsetCommit", (10, 10), "topics[0].partitions[0].error_code", E.UNKNOWN_TOPIC_ID, GROUP, group_id=NAME,
             generation_id_or_member_epoch=-1, topics=_topics("topic_id", partition_index=0, committed_offset=1)),
    _request("OffsetFetch", (1, 7), "topics[0].partitions[0].committed_offset", -1, GROUP,
             group_id=NAME, topics=[{"name": NAME, "partition_indexes": [0]}]),
    _request("OffsetFetch", (8, 9), "groups[0].topics[0].partitions[0].committed_offset", -1, GROUP,
             groups=[{"group_id": NAME, "topics": [{"name": NAME, "partition_indexes": [0]}]}]),
    _request("OffsetFetch", (10, 10), "groups[0].topics[0].partitions[0].error_code", E.UNKNOWN_TOPIC_ID, GROUP,
             groups=[{"group_id": NAME, "topics": [{"topic_id": TOPIC_ID, "partition_indexes": [0]}]}]),
    _request("FindCoordinator", (0, 3), "error_code", E.NONE, GROUP, key=NAME),
    _request("FindCoordinator", (4, 6), "coordinators[0].error_code", E.NONE, GROUP, coordinator_keys=[NAME]),
    _request("JoinGroup", (0, 9), "error_code", E.UNKNOWN_MEMBER_ID, GROUP, **_MEMBER, session_timeout_ms=10_000,
             protocol_type="consumer", protocols=[{"name": "range", "metadata": b""}]),
    _request("Heartbeat", (0, 4), "error_code", E.UNKNOWN_MEMBER_ID, GROUP, **_MEMBER, generation_id=1),
    _request("LeaveGroup", (0, 2), "error_code", E.UNKNOWN_MEMBER_ID, GROUP, **_MEMBER),
    _request("LeaveGroup", (3, 5), "members[0].error_code", E.UNKNOWN_MEMBER_ID, GROUP,
             group_id=NAME, members=[{"member_id": "nobody"}]),
    _request("SyncGroup", (0, 4), "error_code", E.UNKNOWN_MEMBER_ID, GROUP, **_MEMBER, generation_id=1),
    _request("SyncGroup", (5, 5), "error_code", E.UNKNOWN_MEMBER_ID, GROUP, **_MEMBER, generation_id=1,
             protocol_type="consumer", protocol_name="range"),
    _request("DescribeGroups", (0, 5), "groups[0].group_state", "Dead", GROUP, groups=[NAME]),
    _request("DescribeGroups", (6, 6), "groups[0].error_code", E.GROUP_ID_NOT_FOUND, GROUP, groups=[NAME]),
    _request("ListGroups", (0, 5), "error_code", E.NONE),
    _request("SaslHandshake", (0, 1), "error_code", (E.ILLEGAL_SASL_STATE, E.UNSUPPORTED_SASL_MECHANISM),
             mechanism="NONE"),
    _request("CreateTopics", (2, 7), "topics[0].error_code", E.INVALID_TOPIC_EXCEPTION, validate_only=True,
             topics=[{"name": "not a name", "num_partitions": 1, "replication_factor": 1}], timeout_ms=5000),
    _request("DeleteTopics", (1, 5), "responses[0].error_code", _UNKNOWN, topic_names=[NAME], timeout_ms=5000),
    _request("DeleteTopics", (6, 6), "responses[0].error_code", _UNKNOWN, topics=[{"name": NAME}], timeout_ms=5000),
    _request("DeleteRecords", (0, 2), "topics[0].partitions[0].error_code", _UNKNOWN,
             topics=_topics(partition_index=0, offset=0), timeout_ms=1000),
    _request("InitProducerId", (0, 6), "error_code", (E.NONE, E.COORDINATOR_LOAD_IN_PROGRESS),
             transactional_id=None, transaction_timeout_ms=1000),
    _request("OffsetForLeaderEpoch", (2, 4), "topics[0].partitions[0].error_code", _UNKNOWN,
             topics=_topics("topic", partition=0, leader_epoch=0)),
    _request("AddPartitionsToTxn", (0, 3),
             "results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code", _UNKNOWN, TRANSACTION,
             v3_and_below_transactional_id=NAME, v3_and_below_producer_id=7,
             v3_and_below_producer_epoch=0, v3_and_below_topics=[{"name": NAME, "partitions": [0]}]),
    _request("AddOffsetsToTxn", (0, 4), "error_code", E.INVALID_PRODUCER_ID_MAPPING, TRANSACTION,
             **_PRODUCER, group_id=NAME),
    _request("EndTxn", (0, 5), "error_code", E.INVALID_PRODUCER_ID_MAPPING, TRANSACTION, **_PRODUCER, committed=True),
    _request("TxnOffsetCommit", (0, 5), "topics[0].partitions[0].error_code", _UNKNOWN, GROUP, **_PRODUCER,
             group_id=NAME, topics=_topics(partition_index=0, committed_offset=0)),
    _request("DescribeAcls", (1, 3), "error_code", (E.SECURITY_DISABLED, E.NONE), **_ANY_ACL),
    _request("CreateAcls", (1, 3), "results", [], creations=[]),
    _request("DeleteAcls", (1, 3), "filter_results", [], filters=[]),
    _request("DescribeConfigs", (1, 4), "results[0].error_code", _UNKNOWN, resources=[_CONFIG]),
    _request("AlterConfigs", (0, 2), "responses[0].error_code", _UNKNOWN, validate_only=True,
             resources=[_CONFIG | {"configs": []}]),
    _request("DescribeLogDirs", (1, 5), "results[0].error_code", E.NONE, topics=[]),
    _request("CreatePartitions", (0, 3), "results[0].error_code", _UNKNOWN, validate_only=True, timeout_ms=5000,
             topics=[{"name": NAME, "count": 3, "assignments": None}]),
    _request("RenewDelegationToken", (1, 2), "error_code", _NO_TOKENS[:2], hmac=b"none", renew_period_ms=1),
    _request("ExpireDelegationToken", (1, 2), "error_code", _NO_TOKENS[:2], hmac=b"none", expiry_time_period_ms=1),
    _request("DescribeDelegationToken", (1, 3), "error_code", _NO_TOKENS, owners=[]),
    _request("DeleteGroups", (0, 3), "results[0].error_code", E.GROUP_ID_NOT_FOUND, GROUP, groups_names=[NAME]),
    _request("ElectLeaders", (0, 2), "replica_election_results[0].partition_result[0].error_code", _UNKNOWN,
             topic_partitions=[{"topic": NAME, "partitions": [0]}], timeout_ms=5000),
    _request("IncrementalAlterConfigs", (0, 1), "responses[0].error_code", _UNKNOWN, validate_only=True,
             resources=[_CONFIG | {"configs": []}]),
    _request("AlterPartitionReassignments", (0, 1), "responses[0].partitions[0].error_code", _UNKNOWN,
             topics=[{"name": NAME, "partitions": [{"partition_index": 0, "replicas": None}]}], timeout_ms=5000),
    _request("ListPartitionReassignments", (0, 0), "error_code", E.NONE,
             topics=[{"name": NAME, "partition_indexes": [0]}], timeout_ms=5000),
    _request("OffsetDelete", (0, 0), "error_code", E.GROUP_ID_NOT_FOUND, GROUP,
             group_id=NAME, topics=_topics(partition_index=0)),
    _request("DescribeClientQuotas", (0, 1), "error_code", E.NONE, components=[], strict=True),
    _request("AlterClientQuotas", (0, 1), "entries", [], entries=[], validate_only=True),
    _request("DescribeUserScramCredentials", (0, 0), "results[0].error_code", E.RESOURCE_NOT_FOUND,
             users=[{"name": NAME}]),
    _request("AlterUserScramCredentials", (0, 0), "results[0].error_code", E.RESOURCE_NOT_FOUND,
             deletions=[{"name": NAME, "mechanism": 1}], upsertions=[]),
    _request("DescribeQuorum", (0, 2), "error_code", E.NONE,
             topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]),
    _request("DescribeCluster", (0, 2), "error_code", E.NONE),
    _request("DescribeProducers", (0, 0), "topics[0].partitions[0].error_code", _UNKNOWN,
             topics=[{"name": NAME, "partition_indexes": [0]}]),
    _request("DescribeTransactions", (0, 0), "transaction_states[0].error_code", E.TRANSACTIONAL_ID_NOT_FOUND,
             TRANSACTION, transactional_ids=[NAME]),
    _request("ListTransactions", (0, 2), "error_code", E.NONE),
    _request("ConsumerGroupHeartbeat", (0, 1), "error_code", (E.GROUP_ID_NOT_FOUND, E.UNSUPPORTED_VERSION), GROUP,
             **_MEMBER, member_epoch=5, topic_partitions=[]),
    _request("ConsumerGroupDescribe", (0, 1), "groups[0].error_code", (E.GROUP_ID_NOT_FOUND, E.UNSUPPORTED_VERSION),
             GROUP, group_ids=[NAME]),
    _request("GetTelemetrySubscriptions", (0, 0), "error_code", E.NONE),
    _request("PushTelemetry", (0, 0), "error_code", E.INVALID_REQUEST, terminating=False, metrics=b""),
    _request("ListConfigResources", (0, 1), "error_code", E.NONE),
    _request("DescribeTopicPartitions", (0, 0), "topics[0].error_code", _UNKNOWN, topics=[{"name": NAME}]),
    _request("ShareGroupHeartbeat", (1, 1), "error_code",
             (E.GROUP_ID_NOT_FOUND, E.UNKNOWN_MEMBER_ID, E.UNSUPPORTED_VERSION), GROUP, **_MEMBER, member_epoch=5),
    _request("ShareGroupDescribe", (1, 1), "groups[0].error_code", (E.GROUP_ID_NOT_FOUND, E.UNSUPPORTED_VERSION),
             GROUP, group_ids=[NAME]),
    _request("ShareFetch", (1, 2), "error_code", (E.SHARE_SESSION_NOT_FOUND, E.UNSUPPORTED_VERSION),
             **_MEMBER, share_session_epoch=5, max_wait_ms=0),
    _request("ShareAcknowledge", (1, 2), "error_code", (E.SHARE_SESSION_NOT_FOUND, E.UNSUPPORTED_VERSION),
             **_MEMBER, share_session_epoch=5),
    _request("StreamsGroupDescribe", (0, 1), "groups[0].error_code", (E.GROUP_ID_NOT_FOUND, E.UNSUPPORTED_VERSION),
             GROUP, group_ids=[NAME]),
    _request("DescribeShareGroupOffsets", (0, 1), "groups[0].error_code", (E.NONE, E.UNSUPPORTED_VERSION), GROUP,
             groups=[{"group_id": NAME, "topics": None}]),
    _request("AlterShareGroupOffsets", (0, 0), "error_code", (E.INVALID_GROUP_ID, E.UNSUPPORTED_VERSION), GROUP,
             group_id="", topics=[]),
    _request("DeleteShareGroupOffsets", (0, 0), "error_code", (E.GROUP_ID_NOT_FOUND, E.UNSUPPORTED_VERSION), GROUP,
             group_id=NAME, topics=[{"topic_name": NAME}]),
)  # fmt: skip
"""APIs between brokers are not in the list."""


def by_version() -> Iterator[tuple[HarmlessRequest, int]]:
    """Yield every request in every version."""
    for each in REQUESTS:
        for version in range(each.first, each.last + 1):
            yield each, version


def newest() -> dict[str, HarmlessRequest]:
    """Return the request of the highest version of each API."""
    return {each.api: each for each in REQUESTS}
