"""One Fetch on a client's own upstream connection: what it asks for, and how its answer is taken apart.

Theory of operation. The answer is taken in by a callback of its own, not by the request that asked: that one may have
been answered from the cache meanwhile, or its client may be gone. What each partition brought goes to the feature, then
whoever waits here goes on (`done`), and only then are others told. If the connection ends first, they are told the same
way and one of them reads anew. Sessions of the Fetch protocol are not used (id 0, epoch -1): partitions come and go
with every request. Every partition names a leader epoch, so that a broker that is no longer the leader, or not yet,
does not answer; from v11 on a follower would answer a consumer, so only the leader may be asked
(`brokers.topic_leaders`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

from proxy.brokers.connection_slots import OptionalSlot
from proxy.brokers.interfaces import Connection
from proxy.brokers.rights import Right, rights_of
from proxy.forwarding.offered_versions import EffectiveVersions
from proxy.forwarding.services import Services
from proxy.loop.promise import Promise
from proxy.reading.chunk_cache import ReadKey
from proxy.reading.far_records import Records, taken_in
from proxy.wire import messages, registry
from proxy.wire.api_key import ApiKey
from proxy.wire.batches import BatchTable
from proxy.wire.errors import ErrorCode, ProxyError

FETCH_VERSION_MAX = 17
"""v18 adds nothing for a consumer."""
FETCH_VERSION_WITH_IDS = 13
"""Topics go by id from here on (KIP-516)."""
LAST_FETCHED_EPOCH_SINCE = 12

SMALL_PART = 2
"""A chunk less than 1/SMALL_PART of the answer it came in is copied, so that it does not keep the rest in memory."""

PartitionAnswer: TypeAlias = "messages.FetchResponse.PartitionData"
"""What a Fetch answer says of one partition."""

VIEW_IS_OLD = frozenset(
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
"""Answers that say the broker knows a topic better than `brokers.cluster_view` does."""


class PartitionRead(NamedTuple):
    """One partition to be read."""

    key: ReadKey
    name: str
    """Of the topic; empty where it is not known."""
    offset: int
    leader_epoch: int
    """CurrentLeaderEpoch of the question."""
    max_bytes: int
    last_fetched_epoch: int = -1


class AskedPartition(NamedTuple):
    """One partition as a Fetch names it."""

    topic: bytes | str
    """Topic id, or name where the version has names."""
    entry: messages.FetchRequest.FetchPartition


def fetch_version(versions: EffectiveVersions) -> int:
    """The highest version of Fetch that every broker has and that is of use here."""
    return min(FETCH_VERSION_MAX, versions.upstream.get(ApiKey.FETCH, (0, FETCH_VERSION_WITH_IDS))[1])


class UpstreamFetch(ABC):
    """A Fetch under way. One of each subclass per connection at a time: `of(connection)`."""

    _UNDER_WAY: ClassVar[OptionalSlot[Any]]
    """Where a connection remembers it: a slot for each subclass."""

    def __init_subclass__(cls) -> None:
        """Give the subclass its slot."""
        super().__init_subclass__()
        cls._UNDER_WAY = OptionalSlot()

    def __init__(
        self, connection: Connection, services: Services, reads: Sequence[PartitionRead], version: int | None = None
    ) -> None:
        """`version`: of the client's request, where its partitions are passed on in names; `send` is still to come."""
        self.done: Promise[None] = Promise()
        """Settled when the answer was taken in, or will not come."""
        self.failure: ProxyError | None = None
        """The connection ended, or the broker's answer is no Fetch answer."""
        self.error_code = 0
        """Of the answer as a whole."""
        self.throttle_time_ms = 0
        self._connection = connection
        self._upstream = services
        named = version is not None and version < FETCH_VERSION_WITH_IDS
        self._version = version if named and version is not None else fetch_version(services.versions)
        self._by_place = {(self._topic(read), read.key.partition): read for read in reads}

    @classmethod
    def of(cls, connection: Connection) -> Self | None:
        """The one that this connection's broker has not answered yet."""
        return cls._UNDER_WAY.of(connection)

    def asked(self) -> list[AskedPartition]:
        """The partitions to be read, as the request names them."""
        with_epoch = self._version >= LAST_FETCHED_EPOCH_SINCE
        entry = messages.FetchRequest.FetchPartition
        return [
            AskedPartition(
                topic,
                entry(
                    partition=partition,
                    current_leader_epoch=read.leader_epoch,
                    fetch_offset=read.offset,
                    last_fetched_epoch=read.last_fetched_epoch if with_epoch else -1,
                    partition_max_bytes=read.max_bytes,
                ),
            )
            for (topic, partition), read in self._by_place.items()
        ]

    def send(
        self,
        asked: Iterable[AskedPartition],
        *,
        wait_s: float,
        min_bytes: int,
        max_bytes: int,
        read_committed: bool,
        session_id: int = 0,
    ) -> None:
        """Ask, in this order. `session_id`: one of the client's that is closed by it."""
        message = messages.FetchRequest
        topics: dict[bytes | str, list[messages.FetchRequest.FetchPartition]] = {}
        for topic, entry in asked:
            topics.setdefault(topic, []).append(entry)
        request = message(
            max_wait_ms=max(round(wait_s * 1000), 0),
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(read_committed),
            session_id=session_id,
            session_epoch=-1,
            topics=[_topic_entry(topic, each) for topic, each in topics.items()],
        )
        self._UNDER_WAY.put(self._connection, self)
        try:
            body = registry.request(ApiKey.FETCH, self._version).encode(request)
            self._answer = self._connection.ask(ApiKey.FETCH, self._version, body)
        except Exception:
            self._over()  # else others would wait for what nobody has asked
            raise
        self._answer.on_settled(self._arrived)

    @property
    def _by_id(self) -> bool:
        return self._version >= FETCH_VERSION_WITH_IDS

    def _topic(self, read: PartitionRead) -> bytes | str:
        return read.key.topic_id if self._by_id else read.name

    def _arrived(self) -> None:
        try:
            self._take_in(self._answer.result())
        except ProxyError as failure:
            self.failure = failure
        finally:
            self._over()

    def _over(self) -> None:
        """Nothing more comes of it; who waits is told, whatever failed."""
        if self._UNDER_WAY.of(self._connection) is self:
            self._UNDER_WAY.forget(self._connection)
        try:
            self._taken_in()
        finally:
            self.done.set(None)  # the request that asked goes first
            self._ended()

    def _take_in(self, answer: memoryview) -> None:
        response = registry.codec_of(messages.FetchResponse, self._version).decode(answer)
        self.throttle_time_ms = response.throttle_time_ms
        self.error_code = response.error_code
        for topic in response.responses:
            name = bytes(topic.topic_id) if self._by_id else topic.topic
            for partition in topic.partitions:
                self._take_in_partition((name, partition.partition_index), partition, len(answer))

    def _take_in_partition(self, place: tuple[bytes | str, int], partition: PartitionAnswer, answer_bytes: int) -> None:
        read = self._by_place.get(place)
        if read is None:
            return
        code, now = partition.error_code, self._upstream.timers.now()
        rights = rights_of(self._connection)
        if code != ErrorCode.NONE or partition.diverging_epoch.end_offset >= 0:
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and read.name:
                rights.remember(Right.READ_TOPIC, read.name, False, now)
            if code in VIEW_IS_OLD:
                self._upstream.topology.mark_stale(read.name)
            self._refused(read, partition)
            return
        if read.name:
            rights.remember(Right.READ_TOPIC, read.name, True, now)
        data = partition.records if partition.records is not None else b""
        batches, records = taken_in(self._connection, data, read.offset, answer_bytes // SMALL_PART)
        self._brought(read, partition, batches, records)

    # What is the feature's

    @abstractmethod
    def _refused(self, read: PartitionRead, partition: PartitionAnswer) -> None:
        """FetchResponse.PartitionData has an error, or a diverging epoch."""

    @abstractmethod
    def _brought(
        self,
        read: PartitionRead,
        partition: PartitionAnswer,
        batches: BatchTable,
        records: Records,
    ) -> None:
        """What the broker says of a partition, and its whole batches, which may be none."""

    @abstractmethod
    def _taken_in(self) -> None:
        """All is taken in, or will not come (`failure`): the places are free for the next read."""

    @abstractmethod
    def _ended(self) -> None:
        """Whoever waited for `done` has gone on."""


def _topic_entry(
    topic: bytes | str, partitions: list[messages.FetchRequest.FetchPartition]
) -> messages.FetchRequest.FetchTopic:
    """By id or by name."""
    if isinstance(topic, bytes):
        return messages.FetchRequest.FetchTopic(topic_id=topic, partitions=partitions)
    return messages.FetchRequest.FetchTopic(topic=topic, partitions=partitions)
