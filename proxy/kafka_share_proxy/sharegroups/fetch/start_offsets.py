"""Start offsets of share partitions by ListOffsets on the client's connection (sharegroups/README.md rules 50, 51).

The first ShareFetch of a share partition without state sets its start offset by the group's `share.auto.offset.reset`
and writes it immediately. Otherwise a restart would resolve `latest` again and skip records. One member does it; the
others park, and are woken when it is done. All look-ups are read_uncommitted, for every isolation level of the group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from kafka_share_proxy.brokers.cluster_view import Topic
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.waiting import settled_by
from kafka_share_proxy.reading.upstream_fetch import VIEW_IS_OLD
from kafka_share_proxy.sharegroups.fetch.head_reads import ShareReads
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.model.sessions import Session
from kafka_share_proxy.sharegroups.model.settings import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.state_writes import Outcome
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

FIRST_OFFSET_WAIT_S = 1.0
"""Minimum time in seconds that a ShareFetch waits until a first offset is stored. Then, and after its own wait, the
response omits that share partition, like that of a broker still initialising it (sharegroups/README.md rule 17)."""

LIST_OFFSETS_VERSION_MAX = 9
"""Maximum ListOffsets version. v10 and v11 add a timeout for tiered storage and special timestamps for it."""

Found = dict[TopicIdPartition, tuple[ErrorCode, int]]
"""(error, offset) by partition; offset -1 if no record has such a timestamp."""


def request_offsets(
    connection: Connection, services: ShareServices, places: Sequence[tuple[Topic, int]], timestamp: int
) -> Promise[memoryview]:
    """Send ListOffsets for these partitions at their present leader epoch. `on_offsets` decodes the response."""
    version = _version(services)
    request = offsets_request(places, timestamp)
    return connection.send_request(
        ApiKey.LIST_OFFSETS, version, registry.request(ApiKey.LIST_OFFSETS, version).encode(request)
    )


def offsets_request(places: Sequence[tuple[Topic, int]], timestamp: int) -> messages.ListOffsetsRequest:
    """Build a ListOffsets request for these partitions at their present leader epoch, read_uncommitted."""
    message = messages.ListOffsetsRequest
    topics: dict[str, messages.ListOffsetsRequest.ListOffsetsTopic] = {}
    for topic, partition in places:
        if topic.name not in topics:
            topics[topic.name] = message.ListOffsetsTopic(name=topic.name, partitions=[])
        topics[topic.name].partitions.append(
            message.ListOffsetsPartition(
                partition_index=partition,
                current_leader_epoch=topic.leaders[partition].epoch,
                timestamp=timestamp,
            )
        )
    return message(replica_id=-1, isolation_level=0, topics=list(topics.values()))


def on_offsets(services: ShareServices, topics: Mapping[str, Topic], response: memoryview) -> Found:
    """Decode the response to `request_offsets`. A topic whose error shows that the view is outdated is marked stale."""
    return offsets_from_response(
        services, topics, registry.codec_of(messages.ListOffsetsResponse, _version(services)).decode(response)
    )


def offsets_from_response(
    services: ShareServices, topics: Mapping[str, Topic], response: messages.ListOffsetsResponse
) -> Found:
    """Return the offsets in a decoded response; otherwise as `on_offsets`."""
    found: Found = {}
    for topic in response.topics:
        if topic.name not in topics:
            continue
        for partition in topic.partitions:
            code = ErrorCode.of(partition.error_code)
            if code in VIEW_IS_OLD:
                services.topology.set_stale(topic.name)
            place = TopicIdPartition(topics[topic.name].topic_id, partition.partition_index)
            found[place] = (code, partition.offset)
    return found


def _version(services: ShareServices) -> int:
    upstream = services.versions.upstream.get(ApiKey.LIST_OFFSETS, (0, LIST_OFFSETS_VERSION_MAX))
    return min(LIST_OFFSETS_VERSION_MAX, upstream[1])


async def start(
    connection: Connection,
    services: ShareServices,
    session: Session,
    places: Sequence[TopicIdPartition],
    deadline: float,
) -> dict[TopicIdPartition, ErrorCode]:
    """Start share partitions that have no state and that no other request is starting; return the errors by partition.

    They are loaded when this returns, unless the first offset could not be stored by the deadline: then the write
    continues without a waiting request. Nothing is started for a session that ended during the look-up: its group may
    have been deleted, and must stay deleted.
    """
    group_id = session.key.group_id
    reads = services.reads
    keys = [key for place in places if (key := ShareKey(group_id, *place)) not in reads.starting]
    if not keys:
        return {}
    group = services.coordinator.group(group_id)
    if group is not None and group.deleting:
        return {TopicIdPartition(*key[1:]): ErrorCode.COORDINATOR_NOT_AVAILABLE for key in keys}
    looked_up = set(keys)
    """Share partitions for which nothing was written. They are free again when this function ends, even by an error."""
    reads.starting.update(keys)
    asked_at = services.timers.now()
    try:
        errors, writes = await _begin(connection, services, session, keys)
        for key, write in writes.items():
            looked_up.discard(key)
            write.on_settled(partial(_begun, reads, key))
            write.on_settled(partial(_count, services, asked_at))
    finally:
        for key in looked_up:
            _begun(reads, key)
    until = max(deadline, services.timers.now() + FIRST_OFFSET_WAIT_S)
    for key, write in writes.items():
        if await settled_by(services.timers, until, write) and (code := write.result()[key]) != ErrorCode.NONE:
            errors[TopicIdPartition(key.topic_id, key.partition)] = code
    return errors


def _begun(reads: ShareReads, key: ShareKey) -> None:
    reads.starting.discard(key)
    reads.wake(key)


def _count(services: ShareServices, asked_at: float) -> None:
    services.figures.load_s.observe(services.timers.now() - asked_at)


async def _begin(
    connection: Connection, services: ShareServices, session: Session, keys: Sequence[ShareKey]
) -> tuple[dict[TopicIdPartition, ErrorCode], dict[ShareKey, Promise[Outcome]]]:
    """Return the errors of share partitions that cannot be started, and the writes of the others."""
    reset = services.coordinator.settings(session.key.group_id).offset_reset
    wanted = [TopicIdPartition(key.topic_id, key.partition) for key in keys]
    timestamp = reset.timestamp_ms(services.timers.wall_ms())
    found = await _look_up(connection, services, wanted, timestamp)
    none = [place for place, (code, offset) in found.items() if code == ErrorCode.NONE and offset < 0]
    if none:  # no record is that new: use the end of the log
        found |= await _look_up(connection, services, none, LATEST_TIMESTAMP)
    errors: dict[TopicIdPartition, ErrorCode] = {}
    writes: dict[ShareKey, Promise[Outcome]] = {}
    if not services.coordinator.sessions.lives(session):
        return errors, writes
    for key, place in zip(keys, wanted, strict=True):
        code, offset = found.get(place, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1))
        if code == ErrorCode.NONE and offset < 0:
            code = ErrorCode.OFFSET_NOT_AVAILABLE
        if code != ErrorCode.NONE:
            errors[place] = code
            continue
        partition = services.coordinator.new_partition(key, offset)
        partition.reports_offsets = False
        writes[key] = services.writes.create(key, partition, connection.node_id)
    return errors, writes


async def _look_up(
    connection: Connection, services: ShareServices, places: Sequence[TopicIdPartition], timestamp: int
) -> Found:
    known = _known(services, places)
    if not known:
        return {}
    response = await request_offsets(connection, services, known, timestamp)
    return on_offsets(services, {topic.name: topic for topic, _ in known}, response)


def _known(services: ShareServices, places: Sequence[TopicIdPartition]) -> list[tuple[Topic, int]]:
    found = []
    for place in places:
        topic = services.topology.topic_by_id(place.topic_id)
        if topic is not None and place.partition < topic.partitions:
            found.append((topic, place.partition))
    return found


async def confirm_range(
    connection: Connection, services: ShareServices, group_id: str, places: Sequence[TopicIdPartition]
) -> dict[TopicIdPartition, ErrorCode]:
    """After OFFSET_OUT_OF_RANGE, move share partitions to the log bounds that ListOffsets reports; return its errors.

    Only a start offset outside the bounds of the log moves: a broker that lags must not cause records to be skipped.
    """
    known = _known(services, places)
    if not known:
        return dict.fromkeys(places, ErrorCode.UNKNOWN_TOPIC_ID)
    topics = {topic.name: topic for topic, _ in known}
    asked = [request_offsets(connection, services, known, t) for t in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)]
    earliest = on_offsets(services, topics, await asked[0])
    latest = on_offsets(services, topics, await asked[1])
    errors: dict[TopicIdPartition, ErrorCode] = {}
    for place in places:
        first_code, first = earliest.get(place, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1))
        last_code, last = latest.get(place, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1))
        share = services.coordinator.share(ShareKey(group_id, *place))
        if first_code != ErrorCode.NONE or last_code != ErrorCode.NONE:
            errors[place] = first_code or last_code
        elif share is not None and 0 <= first <= last:
            services.reads.cache.drop_partition(*place)
            share.partition.move_log_start(first)
            share.partition.move_log_end(last)
    return errors
