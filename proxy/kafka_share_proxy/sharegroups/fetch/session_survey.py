"""Survey of a share session's partitions: to be read, in the cache, without state, or not readable at this node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kafka_share_proxy.brokers.cluster_metadata import Topic
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.brokers.topic_leaders import judge_partition, judge_topic
from kafka_share_proxy.loop.slices import AT_ONCE, Work
from kafka_share_proxy.reading.chunk_cache import ReadKey
from kafka_share_proxy.reading.far_records import RecordsSlice, holder_of
from kafka_share_proxy.sharegroups.apis.share_requests import follow_leader
from kafka_share_proxy.sharegroups.fetch.share_chunk import ShareChunk
from kafka_share_proxy.sharegroups.model.coordinator import Share, ShareKey
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

_FETCH_CODES = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Partition errors that clients can handle. The Java client throws on others (sharegroups/README.md rule 17)."""

_MOVED = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors sent to clients as NOT_LEADER_OR_FOLLOWER (6), which makes them refresh the leader."""


def client_code(code: ErrorCode) -> ErrorCode:
    """Return the partition error that ShareFetch sends to the client for this one."""
    if code in _MOVED:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code if code in _FETCH_CODES else ErrorCode.UNKNOWN_SERVER_ERROR


@dataclass(slots=True)
class Result:
    """Contents of one partition's entry in the response."""

    error: ErrorCode = ErrorCode.NONE
    records: RecordsSlice = b""
    acquired: Sequence[tuple[int, int, int]] = ()
    """(first offset, last offset, delivery count)"""


Results = dict[TopicIdPartition, Result]


@dataclass(slots=True, eq=False)
class Ready:
    """Partition whose next offset is in the cache."""

    partition: TopicIdPartition
    share: Share
    offset: int
    chunk: ShareChunk


@dataclass(slots=True)
class Survey:
    """Partitions by state, each list in the order of the request."""

    ready: list[Ready] = field(default_factory=list)
    missing: list[tuple[TopicIdPartition, Share, int]] = field(default_factory=list)
    """(partition, its state, the offset to read from)."""
    unstarted: list[TopicIdPartition] = field(default_factory=list)


async def survey(
    connection: Connection, services: ShareServices, keys: Iterable[ShareKey], results: Results, work: Work = AT_ONCE
) -> Survey:
    """Survey the partitions that have no error in `results` yet. A partition that cannot be fetched here gets one.

    Other tasks may run in between if there are many. Code that acquires or reads therefore checks `is_as_found` again.
    Locks that were granted at another node are released (sharegroups/README.md rule 23).
    """
    surveyed = Survey()
    judged: dict[bytes, tuple[Topic | None, ErrorCode]] = {}
    for key in keys:
        partition = TopicIdPartition(key.topic_id, key.partition)
        result = results.get(partition)
        if result is not None and result.error != ErrorCode.NONE:
            continue
        if key.topic_id not in judged:
            judged[key.topic_id] = judge_topic(connection, services, key.topic_id)
        topic, code = judged[key.topic_id]
        if topic is not None and code == ErrorCode.NONE:
            code = judge_partition(topic, key.partition, connection.node_id)
        if topic is None or code != ErrorCode.NONE:
            results[partition] = Result(error=client_code(code))
            follow_leader(services, key)
        else:
            _survey_one(surveyed, connection, services, key, topic.leaders[key.partition].epoch)
        if work is not AT_ONCE:
            await work.step()
    return surveyed


def is_as_found(services: ShareServices, group_id: str, partition: TopicIdPartition, share: Share, offset: int) -> bool:
    """Return True if a share partition is still in the state that the survey found."""
    held = services.coordinator.share(ShareKey(group_id, *partition))
    return held is share and share.partition.next_fetch_offset() == offset


def _survey_one(
    surveyed: Survey, connection: Connection, services: ShareServices, key: ShareKey, leader_epoch: int
) -> None:
    partition = TopicIdPartition(key.topic_id, key.partition)
    share = services.coordinator.share(key)
    if share is None:
        surveyed.unstarted.append(partition)
        return
    if share.node_id != connection.node_id:
        follow_leader(services, key)
    settings = services.coordinator.settings(key.group_id)
    if not share.partition.can_acquire(settings):
        return
    offset = share.partition.next_fetch_offset()
    cached = ReadKey(key.topic_id, key.partition, settings.read_committed, holder_of(connection))
    chunk = services.reads.cache.find(cached, offset, leader_epoch, services.timers.now())
    if chunk is not None:
        surveyed.ready.append(Ready(partition, share, offset, chunk))
    else:
        surveyed.missing.append((partition, share, offset))
