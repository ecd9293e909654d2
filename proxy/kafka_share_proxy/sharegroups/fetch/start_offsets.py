"""Start offsets of share partitions by ListOffsets on the client's connection (sharegroups/README.md rules 50, 51).

The first ShareFetch of a share partition without state sets its start offset by the group's `share.auto.offset.reset`
and writes it immediately. Otherwise a restart would resolve `latest` again and skip records. One member does it, and
the others park. All lookups are read_uncommitted, regardless of the group's isolation level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from kafka_share_proxy.brokers.cluster_metadata import Topic
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.waiting import settled_by
from kafka_share_proxy.reading.upstream_fetch import METADATA_IS_STALE
from kafka_share_proxy.sharegroups.fetch.session_survey import ShareFetching, refuse
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.model.sessions import Session
from kafka_share_proxy.sharegroups.model.settings import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NOTHING_ACQUIRED
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.state_writes import Outcome
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

FIRST_OFFSET_WAIT_S = 1.0
"""Minimum seconds that a ShareFetch waits until a first offset is stored. After that the response omits that share
partition, as a broker does that is still initialising it (sharegroups/README.md rule 17).
"""

LIST_OFFSETS_VERSION_MAX = 9
"""Maximum ListOffsets version. v10 and v11 add a timeout for tiered storage and special timestamps for it."""

Offsets = dict[TopicIdPartition, tuple[ErrorCode, int]]
"""(error, offset) by partition. Offset -1 if no record has such a timestamp."""


def request_offsets(
    connection: Connection, services: ShareServices, partitions: Sequence[tuple[Topic, int]], timestamp: int
) -> Promise[memoryview]:
    """Send ListOffsets for these partitions at their present leader epoch. `on_offsets` decodes the response."""
    version = _version(services)
    request = offsets_request(partitions, timestamp)
    return connection.send_request(
        ApiKey.LIST_OFFSETS, version, registry.request(ApiKey.LIST_OFFSETS, version).encode(request)
    )


def offsets_request(partitions: Sequence[tuple[Topic, int]], timestamp: int) -> messages.ListOffsetsRequest:
    """Build a ListOffsets request for these partitions at their present leader epoch, read_uncommitted."""
    message = messages.ListOffsetsRequest
    topics: dict[str, messages.ListOffsetsRequest.ListOffsetsTopic] = {}
    for topic, partition in partitions:
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


def on_offsets(services: ShareServices, topics: Mapping[str, Topic], response: memoryview) -> Offsets:
    """Decode the response to `request_offsets`. A topic whose error shows that the view is outdated is marked stale."""
    return offsets_from_response(
        services, topics, registry.codec_of(messages.ListOffsetsResponse, _version(services)).decode(response)
    )


def offsets_from_response(
    services: ShareServices, topics: Mapping[str, Topic], response: messages.ListOffsetsResponse
) -> Offsets:
    """Return the offsets in a decoded response, as `on_offsets`."""
    offsets: Offsets = {}
    for topic in response.topics:
        if topic.name not in topics:
            continue
        for partition in topic.partitions:
            code = ErrorCode.of(partition.error_code)
            if code in METADATA_IS_STALE:
                services.topology.set_stale(topic.name)
            topic_partition = TopicIdPartition(topics[topic.name].topic_id, partition.partition_index)
            offsets[topic_partition] = (code, partition.offset)
    return offsets


def _version(services: ShareServices) -> int:
    upstream = services.versions.upstream.get(ApiKey.LIST_OFFSETS, (0, LIST_OFFSETS_VERSION_MAX))
    return min(LIST_OFFSETS_VERSION_MAX, upstream[1])


async def start(fetching: ShareFetching, partitions: Sequence[TopicIdPartition]) -> bool:
    """Start share partitions without state. Return False if other requests are already starting all of them.

    They are loaded when this returns, unless the first offset could not be stored by the deadline: then the write
    continues. Nothing is started for a session that ended during the lookup: its group may have been deleted.
    """
    services, reads, group_id = fetching.services, fetching.services.reads, fetching.group_id
    keys = [key for partition in partitions if (key := ShareKey(group_id, *partition)) not in reads.starting]
    if not keys:
        return False
    group = services.coordinator.group(group_id)
    is_held_back = services.coordinator.settings(group_id).max_record_locks == NOTHING_ACQUIRED
    if is_held_back or (group is not None and group.deleting):
        await refuse(fetching, {TopicIdPartition(*key[1:]): ErrorCode.COORDINATOR_NOT_AVAILABLE for key in keys})
        return True
    unwritten = set(keys)
    """Share partitions for which nothing was written. They are free again when this function ends, even by an error."""
    reads.starting.update(keys)
    started_at = services.timers.now()
    try:
        errors, writes = await _begin(fetching.connection, services, fetching.session, keys)
        for key, write in writes.items():
            unwritten.discard(key)
            write.on_settled(partial(reads.started, key))
            write.on_settled(lambda: services.figures.load_s.observe(services.timers.now() - started_at))
    finally:
        for key in unwritten:
            reads.started(key)
    deadline = max(fetching.deadline, services.timers.now() + FIRST_OFFSET_WAIT_S)
    for key, write in writes.items():
        if await settled_by(services.timers, deadline, write) and (code := write.result()[key]) != ErrorCode.NONE:
            errors[TopicIdPartition(key.topic_id, key.partition)] = code
    if errors:
        await refuse(fetching, errors)
    return True


async def _begin(
    connection: Connection, services: ShareServices, session: Session, keys: Sequence[ShareKey]
) -> tuple[dict[TopicIdPartition, ErrorCode], dict[ShareKey, Promise[Outcome]]]:
    """Return the errors of share partitions that cannot be started, and the writes of the others."""
    reset = services.coordinator.settings(session.key.group_id).offset_reset
    partitions = [TopicIdPartition(key.topic_id, key.partition) for key in keys]
    timestamp = reset.timestamp_ms(services.timers.wall_ms())
    offsets = await _query_offsets(connection, services, partitions, timestamp)
    too_new = [partition for partition, (code, offset) in offsets.items() if code == ErrorCode.NONE and offset < 0]
    if too_new:  # no record is that new: use the end of the log
        offsets |= await _query_offsets(connection, services, too_new, LATEST_TIMESTAMP)
    errors: dict[TopicIdPartition, ErrorCode] = {}
    writes: dict[ShareKey, Promise[Outcome]] = {}
    if not services.coordinator.sessions.is_open(session):
        return errors, writes
    for key, partition in zip(keys, partitions, strict=True):
        code, offset = offsets.get(partition, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1))
        if code == ErrorCode.NONE and offset < 0:
            code = ErrorCode.OFFSET_NOT_AVAILABLE
        if code != ErrorCode.NONE:
            errors[partition] = code
            continue
        created = services.coordinator.new_partition(key, offset)
        created.reports_offsets = False
        writes[key] = services.writes.create(key, created, connection.node_id)
    return errors, writes


async def _query_offsets(
    connection: Connection, services: ShareServices, partitions: Sequence[TopicIdPartition], timestamp: int
) -> Offsets:
    known_partitions = _known_topics(services, partitions)
    if not known_partitions:
        return {}
    response = await request_offsets(connection, services, known_partitions, timestamp)
    return on_offsets(services, {topic.name: topic for topic, _ in known_partitions}, response)


def _known_topics(services: ShareServices, partitions: Sequence[TopicIdPartition]) -> list[tuple[Topic, int]]:
    known_partitions = []
    for partition in partitions:
        topic = services.topology.topic_by_id(partition.topic_id)
        if topic is not None and partition.partition < topic.partitions:
            known_partitions.append((topic, partition.partition))
    return known_partitions


async def confirm_range(
    connection: Connection, services: ShareServices, group_id: str, partitions: Sequence[TopicIdPartition]
) -> dict[TopicIdPartition, ErrorCode]:
    """After OFFSET_OUT_OF_RANGE, move share partitions to the log bounds that ListOffsets reports
    (sharegroups/README.md rule 51). Return its errors.
    """
    known_partitions = _known_topics(services, partitions)
    if not known_partitions:
        return dict.fromkeys(partitions, ErrorCode.UNKNOWN_TOPIC_ID)
    topics = {topic.name: topic for topic, _ in known_partitions}
    requests = [
        request_offsets(connection, services, known_partitions, timestamp)
        for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    ]
    earliest = on_offsets(services, topics, await requests[0])
    latest = on_offsets(services, topics, await requests[1])
    errors: dict[TopicIdPartition, ErrorCode] = {}
    for partition in partitions:
        start_code, log_start = earliest.get(partition, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1))
        end_code, log_end = latest.get(partition, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1))
        share = services.coordinator.share(ShareKey(group_id, *partition))
        if start_code != ErrorCode.NONE or end_code != ErrorCode.NONE:
            errors[partition] = start_code or end_code
        elif share is not None and 0 <= log_start <= log_end:
            services.reads.cache.drop_partition(*partition)
            share.partition.move_log_start(log_start)
            share.partition.move_log_end(log_end)
    return errors
