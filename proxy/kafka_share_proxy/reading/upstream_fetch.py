"""One Fetch on a client's own upstream connection: its request, and the processing of its response.

The response is processed by a separate callback: the client request that caused it may have got its response from the
cache meanwhile, or its client has disconnected. All partitions go to the feature (`_received`), then the waiters here
continue (`done`), and only then are other readers notified. If the connection ends first, one of them reads again.
Fetch sessions are not used (id 0, epoch -1), because partitions change with every request. Every partition has a leader
epoch, so that a broker that is no longer the leader, or not yet, returns an error. From v11 on a follower would serve a
consumer, so only the leader may be queried (`brokers.topic_leaders`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

from kafka_share_proxy.brokers.connection_slots import OptionalSlot
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.brokers.rights import Right, rights_of
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.reading.chunk_cache import ReadKey
from kafka_share_proxy.reading.far_records import ELSEWHERE, Records, copied_if_small
from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.records.batches import BatchTable, split_complete

FETCH_VERSION_MAX = 17
"""Highest version used. v18 adds nothing for a consumer."""
FETCH_VERSION_WITH_IDS = 13
"""First version that names topics by id (KIP-516)."""
LAST_FETCHED_EPOCH_SINCE = 12
"""First version with LastFetchedEpoch (KIP-595)."""

SMALL_PART = 2
"""A chunk smaller than 1/SMALL_PART of its response is copied (reading/README.md rule 8)."""

PartitionResponse: TypeAlias = "messages.FetchResponse.PartitionData"

METADATA_IS_STALE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors of a broker with newer data than `brokers.cluster_metadata`."""


class PartitionRead(NamedTuple):
    """Partition to be read."""

    key: ReadKey
    name: str
    """Empty if the topic name is not known."""
    offset: int
    leader_epoch: int
    max_bytes: int
    last_fetched_epoch: int = -1
    """Leader epoch of the record before `offset`, or -1 (KIP-595)."""


class ReadPartition(NamedTuple):
    """A partition in the response."""

    read: PartitionRead
    response: PartitionResponse
    is_refused: bool
    """True if the response has an error or a diverging epoch."""
    batches: BatchTable
    """Whole batches, possibly none."""
    records: Records
    """Bytes of the batches."""


class RequestedPartition(NamedTuple):
    """Partition as a Fetch request lists it."""

    topic: bytes | str
    """Topic id, or name if the version uses names."""
    entry: messages.FetchRequest.FetchPartition


def fetch_version(versions: EffectiveVersions) -> int:
    """Return the highest version of Fetch for the brokers."""
    return min(FETCH_VERSION_MAX, versions.upstream.get(ApiKey.FETCH, (0, FETCH_VERSION_WITH_IDS))[1])


def whole_batches(
    connection: Connection, data: Buffer, fetch_offset: int, copied_below: int
) -> tuple[BatchTable, Records]:
    """Return the whole batches in the records field of a response, and their bytes. Raises RemoteProtocolError.

    `fetch_offset`: offset of the request (`batches.split_complete`). Fewer bytes than `copied_below` are copied, so
    that they do not keep the whole response in memory.
    """
    elsewhere = ELSEWHERE.of(connection)
    if elsewhere is not None and len(data):
        return elsewhere.batches(data, fetch_offset)
    batches, size = split_complete(memoryview(data), fetch_offset)
    return batches, copied_if_small(memoryview(data)[:size], copied_below)


class UpstreamFetch(ABC):
    """One Fetch in flight on a client's upstream connection."""

    _UNDER_WAY: ClassVar[OptionalSlot[Any]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._UNDER_WAY = OptionalSlot()

    def __init__(
        self, connection: Connection, services: Services, reads: Sequence[PartitionRead], version: int | None = None
    ) -> None:
        """`version`: version of the client's request if partitions are forwarded by name."""
        self.done: Promise[None] = Promise()
        """Settled when the response was processed or is lost."""
        self.failure: ProxyError | None = None
        self.error_code = 0
        self.throttle_time_ms = 0
        self._partitions: list[ReadPartition] = []
        self._connection = connection
        self._upstream = services
        uses_names = version is not None and version < FETCH_VERSION_WITH_IDS
        self._version = version if uses_names and version is not None else fetch_version(services.versions)
        self._by_partition = {(self._topic(read), read.key.partition): read for read in reads}

    @classmethod
    def of(cls, connection: Connection) -> Self | None:
        """Return the Fetch in flight on a connection."""
        return cls._UNDER_WAY.of(connection)

    def requested(self) -> list[RequestedPartition]:
        """Return the reads as entries of a request."""
        with_epoch = self._version >= LAST_FETCHED_EPOCH_SINCE
        entry = messages.FetchRequest.FetchPartition
        return [
            RequestedPartition(
                topic,
                entry(
                    partition=partition,
                    current_leader_epoch=read.leader_epoch,
                    fetch_offset=read.offset,
                    last_fetched_epoch=read.last_fetched_epoch if with_epoch else -1,
                    partition_max_bytes=read.max_bytes,
                ),
            )
            for (topic, partition), read in self._by_partition.items()
        ]

    def send(
        self,
        requested: Iterable[RequestedPartition],
        *,
        wait_s: float,
        min_bytes: int,
        max_bytes: int,
        read_committed: bool,
        session_id: int = 0,
        tags: tuple[tuple[int, bytes], ...] = (),
    ) -> None:
        """Send the Fetch. `session_id`: session of the client to close with it. `tags`: fields for another proxy."""
        message = messages.FetchRequest
        topics: dict[bytes | str, list[messages.FetchRequest.FetchPartition]] = {}
        for topic, entry in requested:
            topics.setdefault(topic, []).append(entry)
        request = message(
            max_wait_ms=max(round(wait_s * 1000), 0),
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(read_committed),
            session_id=session_id,
            session_epoch=-1,
            topics=[_topic_entry(topic, each) for topic, each in topics.items()],
            unknown_tags=tags,
        )
        self._UNDER_WAY.put(self._connection, self)
        try:
            body = registry.request(ApiKey.FETCH, self._version).encode(request)
            self._response = self._connection.send_request(ApiKey.FETCH, self._version, body)
        except Exception:
            self._finish()  # otherwise other readers would wait for a request that was never sent
            raise
        self._response.on_settled(self._on_response)

    @property
    def _by_id(self) -> bool:
        return self._version >= FETCH_VERSION_WITH_IDS

    def _topic(self, read: PartitionRead) -> bytes | str:
        return read.key.topic_id if self._by_id else read.name

    def _on_response(self) -> None:
        try:
            self._take_in(self._response.result())
        except ProxyError as failure:
            self.failure = failure
        finally:
            self._finish()

    def _take_in(self, body: memoryview) -> None:
        response = registry.codec_of(messages.FetchResponse, self._version).decode(body)
        self.throttle_time_ms = response.throttle_time_ms
        self.error_code = response.error_code
        for topic in response.responses:
            name = bytes(topic.topic_id) if self._by_id else topic.topic
            for partition in topic.partitions:
                self._take_in_partition((name, partition.partition_index), partition, len(body))

    def _take_in_partition(
        self, partition_key: tuple[bytes | str, int], partition: PartitionResponse, response_bytes: int
    ) -> None:
        read = self._by_partition.get(partition_key)
        if read is None:
            return
        code, now = partition.error_code, self._upstream.timers.now()
        rights = rights_of(self._connection)
        if code in METADATA_IS_STALE:
            self._upstream.topology.set_stale(read.name)
        if read.name and code in (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
            rights.remember(Right.READ_TOPIC, read.name, code == ErrorCode.NONE, now)
        is_refused = code != ErrorCode.NONE or partition.diverging_epoch.end_offset >= 0
        data = b"" if is_refused or partition.records is None else partition.records
        batches, records = whole_batches(self._connection, data, read.offset, response_bytes // SMALL_PART)
        self._partitions.append(ReadPartition(read, partition, is_refused, batches, records))

    def _finish(self) -> None:
        """End the Fetch, even after an error."""
        if self._UNDER_WAY.of(self._connection) is self:
            self._UNDER_WAY.forget(self._connection)
        partitions, self._partitions = self._partitions, []
        try:
            self._received(partitions)
        except ProxyError as failure:
            self.failure = failure
        finally:
            self.done.set(None)  # the request that caused the Fetch continues first
            self._ended()

    # To be implemented by the feature

    @abstractmethod
    def _received(self, partitions: Sequence[ReadPartition]) -> None:
        """Handle the partitions that were received, none after a failure or an error of the whole response.

        A ProxyError raised here is the failure of the Fetch.
        """

    @abstractmethod
    def _ended(self) -> None:
        """Notify other readers, after the waiters of `done` have continued."""


def _topic_entry(
    topic: bytes | str, partitions: list[messages.FetchRequest.FetchPartition]
) -> messages.FetchRequest.FetchTopic:
    if isinstance(topic, bytes):
        return messages.FetchRequest.FetchTopic(topic_id=topic, partitions=partitions)
    return messages.FetchRequest.FetchTopic(topic=topic, partitions=partitions)
