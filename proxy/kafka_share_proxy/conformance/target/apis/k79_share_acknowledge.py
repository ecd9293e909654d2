"""ShareAcknowledge (KIP-932, KIP-1222), by the rules of sharegroups/README.md."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.partition_access import endpoints_of
from kafka_share_proxy.conformance.target.share_requests import (
    acknowledge,
    leader_of,
    member_id_mistake,
    partitions_in,
)
from kafka_share_proxy.sharegroups.model.sessions import FINAL_EPOCH, SessionKey
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

RENEW_SINCE = 2

_Request = messages.ShareAcknowledgeRequest
_Response = messages.ShareAcknowledgeResponse


async def handle(call: TargetCall[_Request]) -> _Response:
    """Acknowledge records."""
    request, share = call.request, call.cluster.share
    text = "Group id must not be null." if request.group_id is None else member_id_mistake(request.member_id)
    if text is not None:
        return _Response(error_code=ErrorCode.INVALID_REQUEST, error_message=text)
    key = SessionKey(request.group_id or "", request.member_id or "", call.peer.node_id)
    session = share.coordinator.sessions.acknowledge(key, request.share_session_epoch, call.peer.number)
    if isinstance(session, ErrorCode):
        return _Response(error_code=session)
    share.end_with(call.peer.number, call.peer.on_close)
    partitions, requested = partitions_in(request.topics)
    batches = {partition: requested.get(partition, []) for partition in partitions}
    renews = call.version >= RENEW_SINCE and request.is_renew_ack
    outcome, changes = acknowledge(call.cluster, key, batches, renew_allowed=renews)
    share.settle(changes)
    if request.share_session_epoch == FINAL_EPOCH:
        share.end_session(key)
    return _response(call, key.group_id, outcome)


def _response(call: TargetCall[_Request], group_id: str, outcome: dict[TopicIdPartition, ErrorCode]) -> _Response:
    topics: dict[bytes, list[_Response.PartitionData]] = {}
    leaders = []
    for partition, code in outcome.items():
        leader = leader_of(call.cluster, partition, code)
        leaders.append(leader[0])
        entry = _Response.PartitionData(
            partition_index=partition.partition,
            error_code=code,
            current_leader=_Response.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
        )
        topics.setdefault(partition.topic_id, []).append(entry)
    nodes = endpoints_of(call.cluster, leaders)
    lock_s = call.cluster.share.coordinator.settings(group_id).lock_duration_s
    topic = _Response.ShareAcknowledgeTopicResponse
    return _Response(
        acquisition_lock_timeout_ms=round(lock_s * 1000),
        responses=[topic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
        node_endpoints=[_Response.NodeEndpoint(node_id=node, host=host, port=port) for node, host, port in nodes],
    )
