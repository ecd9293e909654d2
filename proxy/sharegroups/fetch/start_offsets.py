"""Where a share partition begins: ListOffsets on the asking client's connection (sharegroups/README.md rules 50, 51).

The first ShareFetch of a share partition without state sets its start offset by the group's `share.auto.offset.reset`
and writes it at once, so that a restart does not read `latest` anew and skip records. One member does it; the others
are parked and woken when it is done. All look-ups are read_uncommitted, whatever the group's isolation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from proxy.brokers.cluster_view import Topic
from proxy.brokers.interfaces import Connection
from proxy.loop.promise import Promise
from proxy.loop.waiting import settled_by
from proxy.reading.upstream_fetch import VIEW_IS_OLD
from proxy.sharegroups.fetch.head_reads import ShareReads
from proxy.sharegroups.model.coordinator import ShareKey
from proxy.sharegroups.model.sessions import Session
from proxy.sharegroups.model.settings import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from proxy.sharegroups.services import ShareServices
from proxy.sharegroups.state_writes import Outcome
from proxy.wire import messages, registry
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode
from proxy.wire.values import TopicIdPartition

FIRST_OFFSET_WAIT_S = 1.0
"""A ShareFetch waits at least so long until a first offset is stored. Then, and after its own wait, it is answered
without that share partition, as from a broker that is still initialising it (sharegroups/README.md rule 17)."""

LIST_OFFSETS_VERSION_MAX = 9
"""v10 and v11 add a time-out for tiered storage and its own timestamps."""

Found = dict[TopicIdPartition, tuple[ErrorCode, int]]
"""(error, offset); offset -1 where no record has such a timestamp."""


def ask_offsets(
    connection: Connection, services: ShareServices, places: Sequence[tuple[Topic, int]], timestamp: int
) -> Promise[memoryview]:
    """Send ListOffsets for these partitions at their present leader epoch; `tell_offsets` understands the answer."""
    version = _version(services)
    request = offsets_request(places, timestamp)
    return connection.ask(ApiKey.LIST_OFFSETS, version, registry.request(ApiKey.LIST_OFFSETS, version).encode(request))


def offsets_request(places: Sequence[tuple[Topic, int]], timestamp: int) -> messages.ListOffsetsRequest:
    """ListOffsets for these partitions at their present leader epoch, read_uncommitted."""
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


def tell_offsets(services: ShareServices, topics: Mapping[str, Topic], answer: memoryview) -> Found:
    """What a broker answered to `ask_offsets`; marks the topics it knows otherwise than the view."""
    return told_offsets(
        services, topics, registry.codec_of(messages.ListOffsetsResponse, _version(services)).decode(answer)
    )


def told_offsets(services: ShareServices, topics: Mapping[str, Topic], answer: messages.ListOffsetsResponse) -> Found:
    """As `tell_offsets`, of a decoded answer."""
    found: Found = {}
    for topic in answer.topics:
        if topic.name not in topics:
            continue
        for partition in topic.partitions:
            code = ErrorCode.of(partition.error_code)
            if code in VIEW_IS_OLD:
                services.topology.mark_stale(topic.name)
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
    """Begin share partitions that have no state, those only that nobody else is beginning; the errors of the others.

    What was begun is loaded when this returns, unless it could not be stored by the deadline: then it is still being
    begun, whoever waits. Nothing is begun for a session that has ended meanwhile: its group may have been deleted, and
    that must stay so.
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
    """Those that nothing was written of: they are free when this ends, in whatever way."""
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
    """What cannot be begun, and the writes of the others."""
    reset = services.coordinator.settings(session.key.group_id).offset_reset
    wanted = [TopicIdPartition(key.topic_id, key.partition) for key in keys]
    timestamp = reset.timestamp_ms(services.timers.wall_ms())
    found = await _look_up(connection, services, wanted, timestamp)
    none = [place for place, (code, offset) in found.items() if code == ErrorCode.NONE and offset < 0]
    if none:  # no record is that young: the end of the log
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
        partition.tells_offsets = False
        writes[key] = services.writes.create(key, partition, connection.node_id)
    return errors, writes


async def _look_up(
    connection: Connection, services: ShareServices, places: Sequence[TopicIdPartition], timestamp: int
) -> Found:
    known = _known(services, places)
    if not known:
        return {}
    answer = await ask_offsets(connection, services, known, timestamp)
    return tell_offsets(services, {topic.name: topic for topic, _ in known}, answer)


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
    """A Fetch answered OFFSET_OUT_OF_RANGE: move to what ListOffsets says is there; the errors of those it refuses.

    Only a start offset outside the log's own bounds moves: a broker that lags behind must not take records away.
    """
    known = _known(services, places)
    if not known:
        return dict.fromkeys(places, ErrorCode.UNKNOWN_TOPIC_ID)
    topics = {topic.name: topic for topic, _ in known}
    asked = [ask_offsets(connection, services, known, t) for t in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)]
    earliest = tell_offsets(services, topics, await asked[0])
    latest = tell_offsets(services, topics, await asked[1])
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
