"""ShareFetch (KIP-932, KIP-1206, KIP-1222), by the rules of sharegroups/README.md."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.partition_access import endpoints_of
from kafka_share_proxy.conformance.target.share_fetching import AcquiredPartition, ShareFetcher
from kafka_share_proxy.conformance.target.share_requests import (
    acknowledge,
    leader_of,
    member_id_mistake,
    partitions_in,
)
from kafka_share_proxy.sharegroups.model.acknowledging import RELEASE
from kafka_share_proxy.sharegroups.model.coordinator import Change
from kafka_share_proxy.sharegroups.model.sessions import FINAL_EPOCH, Session, SessionKey
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

RENEW_SINCE = 2

_Request = messages.ShareFetchRequest
_Response = messages.ShareFetchResponse
Outcome = dict[TopicIdPartition, ErrorCode]


async def handle(call: TargetCall[_Request]) -> _Response:
    """Acknowledge, then acquire records."""
    request, share = call.request, call.cluster.share
    mistake = _mistake(call)
    if mistake is not None:
        return _Response(error_code=ErrorCode.INVALID_REQUEST, error_message=mistake)
    key = SessionKey(request.group_id or "", request.member_id or "", call.peer.node_id)
    partitions, batches = partitions_in(request.topics)
    forgotten = [TopicIdPartition(bytes(t.topic_id), p) for t in request.forgotten_topics_data for p in t.partitions]
    sessions, epoch = share.coordinator.sessions, request.share_session_epoch
    session = sessions.fetch(key, epoch, call.peer.number, partitions, forgotten, bool(batches))
    if isinstance(session, ErrorCode):
        if session == ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            await call.cluster.clock.sleep(max(request.max_wait_ms, 0) / 1000)
        return _Response(error_code=session)
    share.end_with(call.peer.number, call.peer.on_close)
    outcome, changes = acknowledge(call.cluster, key, batches, renew_allowed=_renews(call))
    fetcher = ShareFetcher(call.cluster, session, request)
    await _fetch(call, session, fetcher, changes)
    if not sessions.is_open(session):
        return _Response(error_code=ErrorCode.SHARE_SESSION_NOT_FOUND)
    if epoch == FINAL_EPOCH:
        share.end_session(key)
    return _response(call, session, fetcher, outcome)


def _renews(call: TargetCall[_Request]) -> bool:
    return call.version >= RENEW_SINCE and call.request.is_renew_ack


def _mistake(call: TargetCall[_Request]) -> str | None:
    request = call.request
    if request.group_id is None:
        return "Group id must not be null."
    mistake = member_id_mistake(request.member_id)
    if mistake is not None or not _renews(call):
        return mistake
    limits = ("max_wait_ms", "min_bytes", "max_bytes", "max_records")
    nonzero_limits = [name.title().replace("_", "") for name in limits if getattr(request, name) != 0]
    return f"{', '.join(nonzero_limits)} must be 0 when IsRenewAck is set." if nonzero_limits else None


async def _fetch(call: TargetCall[_Request], session: Session, fetcher: ShareFetcher, changes: list[Change]) -> None:
    """Fetch, unless the request does not. Records that it releases are delivered after all others."""
    request, share = call.request, call.cluster.share
    is_final = request.share_session_epoch == FINAL_EPOCH
    is_without = _renews(call) or request.max_records <= 0 or request.max_bytes <= 0 or not len(session)
    if is_final or is_without:
        share.settle(changes)
        if not is_final:
            fetcher.survey()
        return
    if any(RELEASE in transition.acknowledge_types for _, transition in changes):
        is_taken = fetcher.acquire_now()
        share.settle(changes)
        if is_taken:
            return
    else:
        share.settle(changes)
    await fetcher.run()


def _response(call: TargetCall[_Request], session: Session, fetcher: ShareFetcher, outcome: Outcome) -> _Response:
    included = {
        partition: result
        for partition, result in fetcher.results.items()
        if session.include(partition, records=bool(result.ranges), error=result.error != ErrorCode.NONE)
    }
    topics: dict[bytes, list[_Response.PartitionData]] = {}
    leaders = []
    for partition in dict.fromkeys((*included, *outcome)):
        result = included.get(partition, AcquiredPartition())
        code = outcome.get(partition, ErrorCode.NONE)
        leader = leader_of(call.cluster, partition, result.error or code)
        leaders.append(leader[0])
        topics.setdefault(partition.topic_id, []).append(_entry(partition.partition, result, code, leader))
    nodes = endpoints_of(call.cluster, leaders)
    lock_s = call.cluster.share.coordinator.settings(session.key.group_id).lock_duration_s
    return _Response(
        acquisition_lock_timeout_ms=round(lock_s * 1000),
        responses=[
            _Response.ShareFetchableTopicResponse(topic_id=key, partitions=each) for key, each in topics.items()
        ],
        node_endpoints=[_Response.NodeEndpoint(node_id=node, host=host, port=port) for node, host, port in nodes],
    )


def _entry(
    partition: int, result: AcquiredPartition, code: ErrorCode, leader: tuple[int, int]
) -> _Response.PartitionData:
    return _Response.PartitionData(
        partition_index=partition,
        error_code=result.error,
        acknowledge_error_code=code,
        current_leader=_Response.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
        records=result.records,
        acquired_records=[
            _Response.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in result.ranges
        ],
    )
