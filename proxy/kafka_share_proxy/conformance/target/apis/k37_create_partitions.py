"""CreatePartitions (KIP-195)."""

from __future__ import annotations

from collections import Counter

from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.topics import PARTITIONS_MAX, HostedTopic
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

_Request = messages.CreatePartitionsRequest
_Result = messages.CreatePartitionsResponse.CreatePartitionsTopicResult


async def handle(call: TargetCall[_Request]) -> messages.CreatePartitionsResponse:
    """Add partitions to topics, each for itself."""
    counts = Counter(each.name for each in call.request.topics)
    results = []
    for requested in {each.name: each for each in call.request.topics}.values():
        code, text = _refusal(call, requested)
        if counts[requested.name] > 1:
            code, text = ErrorCode.INVALID_REQUEST, "Duplicate topic name."
        if code == ErrorCode.NONE and not call.request.validate_only:
            _extend(call, requested)
        results.append(_Result(name=requested.name, error_code=code, error_message=text))
    return messages.CreatePartitionsResponse(results=results)


def _refusal(call: TargetCall[_Request], requested: _Request.CreatePartitionsTopic) -> tuple[ErrorCode, str | None]:
    if is_view(requested.name):
        return ErrorCode.POLICY_VIOLATION, "The number of partitions of a view is that of its base."
    topic = call.cluster.topics.with_name(requested.name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    present = len(topic.partitions)
    if requested.count <= present:
        text = f"Topic currently has {present} partitions, which is "
        text += "not higher than" if requested.count < present else "the same as"
        return ErrorCode.INVALID_PARTITIONS, f"{text} the requested {requested.count}."
    if requested.count > PARTITIONS_MAX:
        return ErrorCode.INVALID_PARTITIONS, f"A topic has at most {PARTITIONS_MAX} partitions here."
    return _assignment_refusal(call, topic, requested)


def _assignment_refusal(
    call: TargetCall[_Request], topic: HostedTopic, requested: _Request.CreatePartitionsTopic
) -> tuple[ErrorCode, str | None]:
    assignments, added = requested.assignments, requested.count - len(topic.partitions)
    if assignments is None:
        return ErrorCode.NONE, None
    if len(assignments) != added:
        text = f"Attempted to add {added} additional partition(s), but only {len(assignments)} were specified."
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, text
    nodes = [each.broker_ids for each in assignments]
    if any(not each or len(set(each)) < len(each) or not set(each) <= set(call.cluster.node_ids) for each in nodes):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {nodes} is invalid."
    return ErrorCode.NONE, None


def _extend(call: TargetCall[_Request], requested: _Request.CreatePartitionsTopic) -> None:
    topic = call.cluster.topics.with_name(requested.name)
    if topic is None:
        return
    added = requested.count - len(topic.partitions)
    if requested.assignments is None:
        replicas = call.cluster.place(added, len(topic.partitions[0].replicas))
    else:
        replicas = [list(each.broker_ids) for each in requested.assignments]
    call.cluster.add_partitions(topic, replicas)
