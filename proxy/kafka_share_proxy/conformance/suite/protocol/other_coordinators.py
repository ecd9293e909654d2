"""Cases of requests at nodes that are not the coordinator (conformance/README.md rule 43)."""

from __future__ import annotations

import re
from typing import Any

from kafka_share_proxy.conformance.suite.capabilities import PROXY
from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case_for_each
from kafka_share_proxy.conformance.suite.expectations import equal
from kafka_share_proxy.conformance.suite.placed_topics import NEEDS, not_coordinator
from kafka_share_proxy.wire.errors import ErrorCode

KEY, TOPIC = "{key}", "{topic}"
"""Replaced by the group or transactional id, and by the name of an existing topic."""
GROUP, TRANSACTION = 0, 1
TOP = "error_code"
MEMBER: dict[str, Any] = {"group_id": KEY, "member_id": "member"}
PRODUCER: dict[str, Any] = {"transactional_id": KEY, "producer_id": 7, "producer_epoch": 0}
JOINS = {"session_timeout_ms": 10_000, "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
COMMITS = [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
READS = [{"group_id": KEY, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}]
COMMITTED = "topics[0].partitions[0].error_code"
IN_GROUP = "groups[0].error_code"

CLASSIC = {
    "join": ("JoinGroup", TOP, MEMBER | JOINS),
    "sync": ("SyncGroup", TOP, MEMBER | {"generation_id": 1, "protocol_type": "consumer", "protocol_name": "range"}),
    "heartbeat": ("Heartbeat", TOP, MEMBER | {"generation_id": 1}),
    "leave": ("LeaveGroup", TOP, {"group_id": KEY, "members": [{"member_id": "member"}]}),
    "describe": ("DescribeGroups", IN_GROUP, {"groups": [KEY]}),
    "delete": ("DeleteGroups", "results[0].error_code", {"groups_names": [KEY]}),
}
OFFSETS = {
    "commit": ("OffsetCommit", COMMITTED, MEMBER | {"generation_id_or_member_epoch": 1, "topics": COMMITS}),
    "fetch": ("OffsetFetch", IN_GROUP, {"groups": READS}),
    "delete": (
        "OffsetDelete",
        TOP,
        {"group_id": KEY, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]},
    ),
    "transactional-commit": (
        "TxnOffsetCommit",
        COMMITTED,
        PRODUCER | {"transactional_id": "txn", "group_id": KEY, "topics": COMMITS},
    ),
}
CONSUMER = {
    "heartbeat": ("ConsumerGroupHeartbeat", TOP, MEMBER | {"member_epoch": 5, "topic_partitions": []}),
    "describe": ("ConsumerGroupDescribe", IN_GROUP, {"group_ids": [KEY]}),
}
SHARE = {
    "heartbeat": ("ShareGroupHeartbeat", TOP, MEMBER | {"member_epoch": 5}),
    "describe": ("ShareGroupDescribe", IN_GROUP, {"group_ids": [KEY]}),
    "describe-offsets": (
        "DescribeShareGroupOffsets",
        IN_GROUP,
        {"groups": [{"group_id": KEY, "topics": None}]},
    ),
    "alter-offsets": (
        "AlterShareGroupOffsets",
        TOP,
        {
            "group_id": KEY,
            "topics": [{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 0}]}],
        },
    ),
    "delete-offsets": ("DeleteShareGroupOffsets", TOP, {"group_id": KEY, "topics": [{"topic_name": TOPIC}]}),
}
ADDED = {"v3_and_below_" + name: value for name, value in PRODUCER.items()}
TRANSACTIONS = {
    "init": ("InitProducerId", TOP, {"transactional_id": KEY, "transaction_timeout_ms": 10_000}),
    "add-partitions": (
        "AddPartitionsToTxn",
        "results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code",
        ADDED | {"v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}]},
    ),
    "add-offsets": ("AddOffsetsToTxn", TOP, PRODUCER | {"group_id": "group"}),
    "end": ("EndTxn", TOP, PRODUCER | {"committed": True}),
    "describe": ("DescribeTransactions", "transaction_states[0].error_code", {"transactional_ids": [KEY]}),
}
ANY_LISTENER = {PROXY: "every listener serves share groups (conformance/README.md rule 45)"}


@case_for_each(
    CLASSIC,
    "groups.nodes.classic-{name}",
    "GroupCoordinatorService; CoordinatorRuntime.scheduleWriteOperation",
    needs=(NEEDS,),
)
@case_for_each(
    CONSUMER,
    "groups.nodes.consumer-{name}",
    "KIP-848; CoordinatorRuntime.scheduleWriteOperation",
    needs=(NEEDS, "consumer-groups"),
)
@case_for_each(
    OFFSETS,
    "offsets.nodes.{name}",
    "GroupCoordinatorService; CoordinatorRuntime.scheduleWriteOperation",
    needs=(NEEDS,),
)
@case_for_each(
    SHARE,
    "share-groups.nodes.{name}",
    "KIP-932; CoordinatorRuntime.scheduleWriteOperation",
    needs=(NEEDS, "share"),
    differs=dict.fromkeys(SHARE, ANY_LISTENER),
)
async def wrong_group_coordinator(run: CaseRun, api: str, path: str, fields: dict[str, Any]) -> None:
    """{0} at a node that does not coordinate the group gets NOT_COORDINATOR."""
    await _is_refused(run, GROUP, api, path, fields)


@case_for_each(
    TRANSACTIONS, "transactions.nodes.{name}", "KIP-98; TransactionStateManager.getTransactionState", needs=(NEEDS,)
)
async def wrong_transaction_coordinator(run: CaseRun, api: str, path: str, fields: dict[str, Any]) -> None:
    """{0} at a node that does not coordinate the transaction gets NOT_COORDINATOR."""
    await _is_refused(run, TRANSACTION, api, path, fields)


async def _is_refused(run: CaseRun, kind: int, api: str, path: str, fields: dict[str, Any]) -> None:
    """Send the request to a node that is not the coordinator, and compare the code at the path."""
    topic, key = await run.topic(), run.name("key")
    other = await not_coordinator(run, key, kind)
    await run.cluster.await_topic(other, topic.name, 1)
    response = await run.request(api, other, **_with_names(fields, {KEY: key, TOPIC: topic.name}))
    equal("ErrorCode", _at(response, path), ErrorCode.NOT_COORDINATOR)


def _with_names(value: Any, names: dict[str, str]) -> Any:
    """Return the fields with the names in place of their placeholders."""
    if isinstance(value, dict):
        return {name: _with_names(inner, names) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_names(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


def _at(response: Any, path: str) -> Any:
    for name, index in re.findall(r"(\w+)(?:\[(\d+)\])?", path):
        response = getattr(response, name)
        response = response[int(index)] if index else response
    return response
