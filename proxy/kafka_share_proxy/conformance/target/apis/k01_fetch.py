"""Fetch: sessions, waiting, isolation and epochs (KIP-74, KIP-98, KIP-227, KIP-320, KIP-516, KIP-951)."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.conformance.target.fetch_sessions import CachedPartition, FetchedKey, FetchSession
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.partition_access import endpoints_of, find_topic, moved_leader
from kafka_share_proxy.conformance.target.timers import Signal, wait_for_change
from kafka_share_proxy.conformance.target.topics import HostedPartition, HostedTopic
from kafka_share_proxy.conformance.target.view_reading import read_slot
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

FOLLOWERS_SINCE, TOPIC_IDS_SINCE, LEADERS_SINCE = 11, 13, 16
READ_COMMITTED = 1

_Request = messages.FetchRequest
_Data = messages.FetchResponse.PartitionData
Results = list[tuple[CachedPartition, _Data]]


async def handle(call: TargetCall[_Request]) -> messages.FetchResponse:
    """Read all partitions of the session, and wait until there is enough."""
    request, cluster = call.request, call.cluster
    by_id = call.version >= TOPIC_IDS_SINCE
    requested, forgotten = _requested(request, by_id), _forgotten(request, by_id)
    sessions = cluster.fetch_sessions[call.peer.node_id]
    session = sessions.open(request, requested, forgotten, by_id, cluster.clock.now())
    if isinstance(session, ErrorCode):
        return messages.FetchResponse(error_code=session)
    deadline = cluster.clock.now() + max(request.max_wait_ms, 0) / 1000
    results = _read_all(call, session)
    while not _is_enough(call, results) and cluster.clock.now() < deadline:
        await wait_for_change(_signals(call, session), cluster.timers, deadline)
        results = _read_all(call, session)
    return _response(call, session, results)


def _requested(request: _Request, by_id: bool) -> list[CachedPartition]:
    return [
        CachedPartition(_key(topic.topic, topic.topic_id, partition.partition, by_id), partition)
        for topic in request.topics
        for partition in topic.partitions
    ]


def _forgotten(request: _Request, by_id: bool) -> list[FetchedKey]:
    topics = request.forgotten_topics_data
    return [_key(topic.topic, topic.topic_id, partition, by_id) for topic in topics for partition in topic.partitions]


def _key(name: str, topic_id: bytes, partition: int, by_id: bool) -> FetchedKey:
    return FetchedKey("", bytes(topic_id), partition) if by_id else FetchedKey(name, b"", partition)


def _signals(call: TargetCall[_Request], session: FetchSession) -> list[Signal]:
    partitions = [_find(call, key) for key in session.partitions]
    return [call.cluster.topics.changed, *(each.changed for _, each in partitions if isinstance(each, HostedPartition))]


def _find(
    call: TargetCall[_Request], key: FetchedKey, epoch: int = -1
) -> tuple[HostedTopic | ErrorCode, HostedPartition | ErrorCode]:
    """Return a partition that this node may read: as its leader, or as a replica for a consumer (KIP-392)."""
    topic = find_topic(call.cluster, key.topic, key.topic_id, by_id=call.version >= TOPIC_IDS_SINCE)
    if isinstance(topic, ErrorCode):
        return topic, topic
    partition = topic.partition(key.partition)
    if partition is None:
        return topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    node_id = call.peer.node_id
    if partition.leader != node_id and node_id not in partition.replicas:
        return topic, ErrorCode.NOT_LEADER_OR_FOLLOWER
    error = partition.epoch_error(max(epoch, -1))  # every negative one means none: FetchRequest.optionalEpoch
    if error != ErrorCode.NONE:
        return topic, error
    serves = partition.leader == node_id or (call.version >= FOLLOWERS_SINCE and topic.base is None)
    return topic, partition if serves else ErrorCode.NOT_LEADER_OR_FOLLOWER


# Reading


def _read_all(call: TargetCall[_Request], session: FetchSession) -> Results:
    remaining = min(call.request.max_bytes, call.cluster.settings.fetch_max_bytes)
    results: Results = []
    has_records = False
    for cached in session.partitions.values():
        data = _read(call, cached, remaining, at_least_one=not has_records)
        size = len(data.records or b"")
        has_records = has_records or size > 0
        remaining = max(0, remaining - size)
        results.append((cached, data))
    return results


def _read(call: TargetCall[_Request], cached: CachedPartition, remaining: int, *, at_least_one: bool) -> _Data:
    requested = cached.request
    topic, partition = _find(call, cached.key, requested.current_leader_epoch)
    if isinstance(partition, ErrorCode) or isinstance(topic, ErrorCode):
        error = partition if isinstance(partition, ErrorCode) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _refusal(call, cached, topic, error)
    log = partition.log
    diverging = _diverging(partition, requested)
    is_outside = diverging is None and not log.start <= requested.fetch_offset <= log.end
    if isinstance(diverging, ErrorCode) or is_outside:
        return _refusal(call, cached, topic, ErrorCode.OFFSET_OUT_OF_RANGE)
    is_committed = call.request.isolation_level == READ_COMMITTED
    data = _Data(
        partition_index=requested.partition,
        high_watermark=log.end,
        last_stable_offset=log.stable_offset,
        log_start_offset=log.start,
        aborted_transactions=[] if is_committed else None,
        records=b"",
    )
    if diverging is not None:
        data.diverging_epoch = diverging
        return data
    upto = data.last_stable_offset if is_committed else log.end
    limit = min(requested.partition_max_bytes, remaining)
    if topic.cut is not None:
        slot = requested.partition % topic.cut.slots
        data.records = read_slot(
            log,
            topic.cut,
            slot,
            requested.fetch_offset,
            upto,
            limit,
            at_least_one=at_least_one,
            committed=is_committed,
        )
        return data
    data.records = log.read(requested.fetch_offset, upto, limit, at_least_one=at_least_one)
    if is_committed and data.records:
        aborted = messages.FetchResponse.AbortedTransaction
        data.aborted_transactions = [
            aborted(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in log.aborted_between(
                requested.fetch_offset, log.offset_after(requested.fetch_offset, limit, upto)
            )
        ]
    return data


def _diverging(
    partition: HostedPartition, requested: _Request.FetchPartition
) -> messages.FetchResponse.EpochEndOffset | ErrorCode | None:
    """Return where the client's log leaves the partition's (KIP-595, as Partition.readRecords does)."""
    if requested.last_fetched_epoch < 0:
        return None
    end = partition.log.end_of_epoch(requested.last_fetched_epoch)
    if end.offset < 0:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if end.epoch < requested.last_fetched_epoch or end.offset < requested.fetch_offset:
        return messages.FetchResponse.EpochEndOffset(epoch=end.epoch, end_offset=end.offset)
    return None


def _refusal(
    call: TargetCall[_Request], cached: CachedPartition, topic: HostedTopic | ErrorCode, error: ErrorCode
) -> _Data:
    data = _Data(partition_index=cached.key.partition, error_code=error, high_watermark=-1, records=b"")
    data.aborted_transactions = None
    if call.version >= LEADERS_SINCE:
        leader_id, leader_epoch = moved_leader(topic, cached.key.partition, error)
        data.current_leader = messages.FetchResponse.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    return data


def _is_enough(call: TargetCall[_Request], results: Results) -> bool:
    if not results or any(data.error_code or data.diverging_epoch.epoch >= 0 for _, data in results):
        return True
    return sum(len(data.records or b"") for _, data in results) >= call.request.min_bytes


# The response


def _response(call: TargetCall[_Request], session: FetchSession, results: Results) -> messages.FetchResponse:
    included = []
    for cached, data in results:
        is_changed = cached.must_respond(data)
        if is_changed or not session.is_incremental:
            included.append((cached, data))
        if session.session_id and data.records:
            session.move_to_end(cached.key)
    message = messages.FetchResponse
    leaders = [data.current_leader.leader_id for _, data in included]
    nodes = endpoints_of(call.cluster, leaders) if call.version >= LEADERS_SINCE else []
    return message(
        session_id=session.session_id,
        responses=_by_topic(included),
        node_endpoints=[message.NodeEndpoint(node_id=node, host=host, port=port) for node, host, port in nodes],
    )


def _by_topic(included: Sequence[tuple[CachedPartition, _Data]]) -> list[messages.FetchResponse.FetchableTopicResponse]:
    """Return the topics of the response. Adjacent partitions of one topic are in one entry."""
    topics: list[messages.FetchResponse.FetchableTopicResponse] = []
    for cached, data in included:
        key = (cached.key.topic, cached.key.topic_id or bytes(16))
        if not topics or (topics[-1].topic, topics[-1].topic_id) != key:
            topics.append(messages.FetchResponse.FetchableTopicResponse(topic=key[0], topic_id=key[1], partitions=[]))
        topics[-1].partitions.append(data)
    return topics
