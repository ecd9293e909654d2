"""Survey of a share session's partitions: to be read, in the cache, without state, or not readable at this node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from kafka_share_proxy.brokers.connection_slots import ConnectionSlot
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.brokers.topic_leaders import JudgedTopics, judge, judge_partition, judge_topic
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.slices import AT_ONCE, Work
from kafka_share_proxy.reading.chunk_cache import ReadKey
from kafka_share_proxy.reading.far_records import RecordsSlice, holder_of
from kafka_share_proxy.reading.upstream_fetch import METADATA_IS_STALE
from kafka_share_proxy.sharegroups.apis.share_requests import follow_leader, refresh
from kafka_share_proxy.sharegroups.fetch.head_reads import ShareChunk
from kafka_share_proxy.sharegroups.model.acquiring import AcquiredRange
from kafka_share_proxy.sharegroups.model.coordinator import Share, ShareKey
from kafka_share_proxy.sharegroups.model.sessions import Session
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode
from kafka_share_proxy.wire.values import UNKNOWN_NODE, TopicIdPartition

SURVEYED_AT_ONCE = 500
"""Number of partitions up to which a survey runs in one step."""

RETRIES_MAX = 3
"""Maximum number of times one ShareFetch retries a partition after an outdated view or a moved offset range."""

_REPORTED_LEADERS = ConnectionSlot[dict[tuple[int, bytes, int], float]](dict)
"""Time at which the connection was last sent to another leader, by (hash of the group id, topic id, partition)."""
REPORTED_MAX = 10_000
"""Maximum number of partitions in `_REPORTED_LEADERS` per connection. Beyond it, all entries are removed."""

NO_BROKER_THERE = (
    "the broker of the bootstrap listener is not known: let the client connect to the address that Metadata returns "
    "for each broker, or list brokers in upstream.bootstrap as they advertise themselves"
)

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

    error: ErrorCode = NO_ERROR
    records: RecordsSlice = b""
    acquired: Sequence[AcquiredRange] = ()


NO_RECORDS = Result()
"""Entry of a partition without records and without an error."""

Results = dict[TopicIdPartition, Result]


@dataclass(slots=True, eq=False)
class Ready:
    """Partition whose next offset is in the cache."""

    partition: TopicIdPartition
    share: Share
    offset: int
    chunk: ShareChunk


class MissingHead(NamedTuple):
    """Partition that must be read from this offset on."""

    partition: TopicIdPartition
    share: Share
    offset: int


@dataclass(slots=True)
class Survey:
    """Partitions by state, each list in the order of the request."""

    ready: list[Ready] = field(default_factory=list)
    missing: list[MissingHead] = field(default_factory=list)
    unstarted: list[TopicIdPartition] = field(default_factory=list)
    is_outdated: bool = False
    """True if a partition changed during a survey that let other tasks run."""
    records: int = 0
    """Number of offsets that the ready partitions have in the cache and in their windows. Not all may be free."""
    is_partial: bool = False
    """True if it ended with enough records, so that there may be further partitions."""

    def bytes_ready(self) -> int:
        """Return the bytes in the cache from the partitions' next offsets on."""
        return sum(
            ready_partition.chunk.bytes_from(ready_partition.chunk.index_of(ready_partition.offset))
            for ready_partition in self.ready
        )

    def has(self, min_bytes: int) -> bool:
        return bool(self.ready) and (min_bytes <= 1 or self.bytes_ready() >= min_bytes)

    def may_have_missed_records(self) -> bool:
        """Return True if another survey may find records immediately, although none could be acquired after this one.

        They are in further partitions, or after batches of aborted transactions, which moved the next offset.
        """
        return self.is_partial or (not self.is_outdated and self._is_passed())

    def _is_passed(self) -> bool:
        return any(
            ready_partition.share.partition.next_fetch_offset() != ready_partition.offset
            for ready_partition in self.ready
        )


@dataclass(slots=True, eq=False, kw_only=True)
class ShareFetching:
    """Fetch of one request: its partitions, and its results so far."""

    request: messages.ShareFetchRequest
    version: int
    connection: Connection
    work: Work
    services: ShareServices
    session: Session
    group_id: str
    order: tuple[TopicIdPartition, ...]
    """Partitions in the session's rotation."""
    judged: JudgedTopics
    """Rights and leaders of the topics, for the first survey if the request does not wait before."""
    holder: int
    """Id of the proxy that keeps the records (`far_records`). 0 for this one."""
    started_at: float
    deadline: float
    """End of the client's wait."""
    results: Results = field(default_factory=dict)
    """Partitions with records, with an error, or that were read and had no records."""
    throttle_time_ms: int = 0
    has_read: bool = False
    retries: dict[TopicIdPartition, int] = field(default_factory=dict)
    reports_leader: bool = False
    """True if the client must learn of another leader now instead of after its wait."""
    was_refused_memory: bool = False

    @property
    def is_ordered(self) -> bool:
        """True if the group has key order."""
        return self.group_id in self.services.coordinator.ordered

    def keys(self) -> list[ShareKey]:
        return [ShareKey(self.group_id, *partition) for partition in self.order]

    def response_bytes(self) -> int:
        return sum(len(result.records) for result in self.results.values())

    def has_only_errors(self) -> bool:
        return all(partition in self.results and self.results[partition].error for partition in self.order)

    def may_retry(self, partition: TopicIdPartition) -> bool:
        self.retries[partition] = self.retries.get(partition, 0) + 1
        return self.retries[partition] <= RETRIES_MAX


def begin(
    call: Call[messages.ShareFetchRequest], services: ShareServices, session: Session, judged: JudgedTopics
) -> ShareFetching:
    return ShareFetching(
        request=call.message,
        version=call.version,
        connection=call.connection,
        work=call.work,
        services=services,
        session=session,
        group_id=session.key.group_id,
        order=session.rotated(),
        judged=judged,
        holder=holder_of(call.connection),
        started_at=services.timers.now(),
        deadline=services.timers.now() + max(call.message.max_wait_ms, 0) / 1000,
    )


async def survey_session(fetching: ShareFetching, *, is_whole: bool = False) -> Survey:
    """Return the state of each partition. One that cannot be fetched here gets an error in `results`.

    Unless it must be whole, it may end with the first partitions that have enough records (sharegroups/README.md rule
    25). A member acquires nothing from partitions that it is about to give up (sharegroups/README.md rule 62).
    """
    partitions: Sequence[TopicIdPartition] = fetching.order
    services = fetching.services
    judged, fetching.judged = fetching.judged, {}
    group = services.coordinator.group(fetching.group_id)
    if group is not None:
        withdrawn = group.withdrawn_from(fetching.session.key.member_id, services.timers.now())
        if withdrawn:
            partitions = [partition for partition in partitions if partition not in withdrawn]
    if len(partitions) <= SURVEYED_AT_ONCE:
        return await survey(
            fetching.connection,
            services,
            fetching.group_id,
            partitions,
            fetching.results,
            judged=judged,
            enough=_enough(fetching, is_whole=is_whole),
        )
    keys = [ShareKey(fetching.group_id, *partition) for partition in partitions]
    waiter = services.reads.wait(keys)
    surveyed = Survey()
    try:
        surveyed = await survey(
            fetching.connection, services, fetching.group_id, partitions, fetching.results, fetching.work
        )
    finally:
        services.reads.stop_waiting(waiter)
        surveyed.is_outdated = waiter.woken.done
        if surveyed.is_outdated:
            services.reads.wake_all(keys)  # this request may have passed over records that others can use
    return surveyed


def _enough(fetching: ShareFetching, *, is_whole: bool) -> float:
    """Return the number of records with which a survey may end. Infinite if it is to have every partition.

    One survey in `idle_read_s` has all of them: to read missing heads, and to start or refuse partitions.
    """
    session, now = fetching.session, fetching.services.timers.now()
    is_due = now - session.surveyed_at >= fetching.services.options.idle_read_s
    if is_whole or is_due or fetching.request.min_bytes > 1 or fetching.is_ordered:
        session.surveyed_at = now
        return inf
    return fetching.request.max_records


async def survey(
    connection: Connection,
    services: ShareServices,
    group_id: str,
    partitions: Iterable[TopicIdPartition],
    results: Results,
    work: Work = AT_ONCE,
    judged: JudgedTopics | None = None,
    enough: float = inf,
) -> Survey:
    """Survey partitions of a group that have no error in `results` yet. One that cannot be fetched here gets one.

    It ends once this number of records is `enough`. Other tasks may run in between if there are many. Locks that were
    granted at another node are released (sharegroups/README.md rule 23). Topics that are not in `judged` are added to
    it.
    """
    surveyed = Survey()
    judged = {} if judged is None else judged
    holder = holder_of(connection)
    for partition in partitions:
        result = results.get(partition)
        if result is not None and result.error:
            continue
        topic_id, number = partition
        if topic_id not in judged:
            judged[topic_id] = judge_topic(connection, services, topic_id)
        topic, code = judged[topic_id]
        if topic is not None and not code:
            code = judge_partition(topic, number, connection.node_id)
        if topic is None or code:
            results[partition] = Result(error=client_code(code))
            follow_leader(services, ShareKey(group_id, *partition))
        else:
            _survey_one(surveyed, connection, services, group_id, partition, topic.leaders[number].epoch, holder)
        if surveyed.records >= enough:
            surveyed.is_partial = True
            break
        if work is not AT_ONCE:
            await work.step()
    return surveyed


def _survey_one(
    surveyed: Survey,
    connection: Connection,
    services: ShareServices,
    group_id: str,
    partition: TopicIdPartition,
    leader_epoch: int,
    holder: int,
) -> None:
    share = services.coordinator.share_of(group_id, partition)
    if share is None:
        surveyed.unstarted.append(partition)
        return
    if share.node_id != connection.node_id:
        follow_leader(services, share.key)
    settings = services.coordinator.settings(group_id)
    offset = share.partition.acquirable_from(settings)
    if offset is None:
        return
    cached = ReadKey(*partition, settings.read_committed, holder)
    chunk = services.reads.cache.find(cached, offset, leader_epoch, services.timers.now())
    if chunk is not None:
        surveyed.ready.append(Ready(partition, share, offset, chunk))
        surveyed.records += min(chunk.next_offset - offset, share.partition.room(settings.max_record_locks))
    else:
        surveyed.missing.append(MissingHead(partition, share, offset))


def is_wait_over(fetching: ShareFetching) -> bool:
    """Return True if the wait of the client is over, or if it must learn of another leader."""
    return fetching.services.timers.now() >= fetching.deadline or (
        any(result.error == ErrorCode.NOT_LEADER_OR_FOLLOWER for result in fetching.results.values())
        and _must_report_leader(fetching)
    )


def _must_report_leader(fetching: ShareFetching) -> bool:
    """Return True if the client should look for another leader now instead of after its wait.

    Each connection is sent away at most once per `metadata_age_s` and partition. Otherwise a client that fetches again
    from the same node, because its own metadata is as old, would do it in a loop.
    """
    services, connection = fetching.services, fetching.connection
    led_elsewhere = [
        partition for partition, result in fetching.results.items() if result.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    ]
    reported = _REPORTED_LEADERS.of(connection)
    now, age_s = services.timers.now(), services.options.metadata_age_s
    group = hash(fetching.group_id)  # a group id may have 32 KiB
    newly_reported = [
        report_key for partition in led_elsewhere if now - reported.get(report_key := (group, *partition), -inf) > age_s
    ]
    if len(reported) > REPORTED_MAX:
        reported.clear()
    reported.update(dict.fromkeys(newly_reported, now))
    fetching.reports_leader = fetching.reports_leader or bool(newly_reported)
    if newly_reported and connection.node_id == UNKNOWN_NODE:
        services.notes(
            "share-fetch-at-bootstrap",
            group_id=fetching.group_id,
            client=connection.client_host,
            reason=NO_BROKER_THERE,
        )
    return fetching.reports_leader


async def refuse(fetching: ShareFetching, errors: Mapping[TopicIdPartition, ErrorCode]) -> None:
    """Refresh the metadata where the broker's error shows that it is outdated. Store all other errors in `results`."""
    connection, services = fetching.connection, fetching.services
    outdated = [partition for partition, code in errors.items() if code in METADATA_IS_STALE]
    if outdated:
        await refresh(connection, services, outdated)
    for partition, code in errors.items():
        judged = judge(connection, services, partition)
        if judged == NO_ERROR and code in METADATA_IS_STALE and fetching.may_retry(partition):
            continue
        fetching.results[partition] = Result(error=client_code(judged or code))
