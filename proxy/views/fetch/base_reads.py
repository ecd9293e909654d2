"""One Fetch on a client's own upstream connection for the base partitions of views, and who else waits for its answer.

Theory of operation. The answer is taken in by a callback of its own: the request that asked may have been answered
from the cache meanwhile, or its client may be gone. Whole batches become chunks of the cache; then everybody who waits
for this read goes on (`done`). If the connection ends first, they are told the same way and one of them reads anew.
Sessions of the Fetch protocol are not used (id 0, epoch -1). Base partitions are asked for by topic id, so that a base
made anew is never read for an old view; where plain partitions of the same request are known by name only, in the
client's own version by name.

A read names the client's CurrentLeaderEpoch, or else that of the view of the cluster: from v11 on a follower would
answer a consumer, so only a connection to the leader may be asked (`brokers.topic_leaders`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from proxy.brokers.interfaces import Connection
from proxy.brokers.rights import Right, rights_of
from proxy.forwarding.services import Services
from proxy.loop.promise import Promise
from proxy.reading.upstream_fetch import FETCH, FETCH_VERSION_WITH_IDS, SMALL_PART, VIEW_IS_OLD, fetch_version
from proxy.views.fetch.shared_reads import Head, ViewReads
from proxy.views.fetch.view_chunks import Chunk, ReadKey, fates
from proxy.views.model.scanning import Facts
from proxy.wire import registry
from proxy.wire.batches import split_complete
from proxy.wire.errors import ErrorCode, ProxyError

READ_BYTES_MIN = 64 << 10
"""Asked for of one base partition at least, however little the client takes at a time."""


class Plain(NamedTuple):
    """A partition that the client wants as it is."""

    topic: bytes | str
    """Topic id, or name where the client's version has names."""
    entry: Any
    """FetchRequest.FetchPartition."""


class ViewRead:
    """A Fetch under way. One per connection at a time: `ViewRead.of(connection)`."""

    def __init__(
        self,
        connection: Connection,
        services: Services,
        reads: ViewReads,
        heads: Sequence[Head],
        plains: Sequence[Plain],
        *,
        wait_s: float,
        max_bytes: int,
        read_committed: bool,
        version: int | None = None,
        session_id: int = 0,
        heads_first: bool = False,
    ) -> None:
        """`version`: of the client's request, where plain partitions are named; `session_id`: one to be closed;
        `heads_first`: they get their share of the answer before the plain partitions do."""
        self.done: Promise[None] = Promise()
        """Settled when the answer was taken in, or will not come."""
        self.failure: ProxyError | None = None
        """The connection ended, or the broker's answer is no Fetch answer."""
        self.error_code = 0
        """Of the answer as a whole."""
        self.throttle_time_ms = 0
        self.heads: Mapping[ReadKey, Head] = {head.key: head for head in heads}
        self.chunks: dict[ReadKey, Chunk] = {}
        self.facts: dict[ReadKey, Facts] = {}
        """Of partitions that were not refused."""
        self.refusals: dict[ReadKey, Any] = {}
        """FetchResponse.PartitionData with an error or a diverging epoch."""
        self.plains: dict[tuple[bytes | str, int], Any] = {}
        """FetchResponse.PartitionData of the plain partitions."""
        self.wait_s = wait_s
        self._connection, self._services, self._reads = connection, services, reads
        named = version is not None and version < FETCH_VERSION_WITH_IDS
        self._version = version if named and version is not None else fetch_version(services.versions)
        self._asked_plains = plains
        reads.figures.reads += 1
        self._promised = sum(head.max_bytes for head in heads if head.max_bytes > READ_BYTES_MIN)
        """Bytes that are known to come; the budget of answers counts them until they are here."""
        services.answers.hold(self._promised)
        for key in self.heads:
            reads.flights.setdefault(key, []).append(self)
        connection.memory["view-read"] = self
        request = self._request(max_bytes, read_committed, session_id, heads_first=heads_first)
        self._answer = connection.ask(FETCH, self._version, registry.request(FETCH, self._version).encode(request))
        self._answer.on_settled(self._arrived)

    @staticmethod
    def of(connection: Connection) -> ViewRead | None:
        """The one that this connection's broker has not answered yet."""
        return connection.memory.get("view-read")

    @property
    def _by_id(self) -> bool:
        return self._version >= FETCH_VERSION_WITH_IDS

    def _request(self, max_bytes: int, read_committed: bool, session_id: int, *, heads_first: bool) -> Any:
        message = registry.message("FetchRequest")
        plains = [(plain.topic, plain.entry) for plain in self._asked_plains]
        asked = {(name, entry.partition) for name, entry in plains}
        heads = [
            (name, self._entry(message, head))
            for head in self.heads.values()
            if ((name := head.key.base_id if self._by_id else head.name), head.key.partition) not in asked
        ]  # from the same offset where it is: one answer serves both (views/README.md rule 21)
        topics: dict[bytes | str, list[Any]] = {}
        for name, entry in heads + plains if heads_first else plains + heads:
            topics.setdefault(name, []).append(entry)
        field_name = "topic_id" if self._by_id else "topic"
        return message(
            max_wait_ms=max(round(self.wait_s * 1000), 0),
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=int(read_committed),
            session_id=session_id,
            session_epoch=-1,
            topics=[
                message.FetchTopic(**{field_name: name, "partitions": entries}) for name, entries in topics.items()
            ],
        )

    def _entry(self, message: Any, head: Head) -> Any:
        return message.FetchPartition(
            partition=head.key.partition,
            current_leader_epoch=head.leader_epoch,
            fetch_offset=head.offset,
            last_fetched_epoch=head.last_fetched_epoch if self._version >= LAST_FETCHED_EPOCH_SINCE else -1,
            partition_max_bytes=head.max_bytes,
        )

    def _arrived(self) -> None:
        self._services.answers.release(self._promised)
        if self._connection.memory.get("view-read") is self:
            del self._connection.memory["view-read"]
        for key in self.heads:
            flights = self._reads.flights[key]
            flights.remove(self)
            if not flights:
                del self._reads.flights[key]
        try:
            self._take_in(self._answer.result())
        except ProxyError as failure:
            self.failure = failure
        self.done.set(None)

    def _take_in(self, answer: memoryview) -> None:
        response = registry.response(FETCH, self._version).decode(answer)
        self.throttle_time_ms = response.throttle_time_ms
        self.error_code = response.error_code
        by_name = {
            (head.key.base_id if self._by_id else head.name, head.key.partition): head for head in self.heads.values()
        }
        wanted = {(plain.topic, plain.entry.partition) for plain in self._asked_plains}
        for topic in response.responses:
            name = bytes(topic.topic_id) if self._by_id else topic.topic
            for partition in topic.partitions:
                place = (name, partition.partition_index)
                if place in wanted:
                    self.plains[place] = partition
                if place in by_name:
                    self._take_in_partition(by_name[place], partition, len(answer))

    def _take_in_partition(self, head: Head, partition: Any, answer_bytes: int) -> None:
        services, key = self._services, head.key
        code = partition.error_code
        if code != ErrorCode.NONE or partition.diverging_epoch.end_offset >= 0:
            self.refusals[key] = partition
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and head.name:
                rights_of(self._connection).remember(Right.READ_TOPIC, head.name, False, services.timers.now())
            if code in _KNOWN_OLD:
                services.topology.mark_stale(head.name)
                self._reads.cache.drop_partition(key.base_id, key.partition)
            return
        now = services.timers.now()
        if head.name:
            rights_of(self._connection).remember(Right.READ_TOPIC, head.name, True, now)
        facts = Facts(partition.high_watermark, partition.last_stable_offset, partition.log_start_offset)
        self.facts[key] = facts
        self._reads.note_end(key, facts)
        data = memoryview(partition.records if partition.records is not None else b"")
        batches, size = split_complete(data, head.offset)
        if not batches:
            return
        data = data[:size]
        self._reads.figures.read_bytes += size
        if size * SMALL_PART < answer_bytes:
            data = memoryview(bytes(data))
        leader = services.topology.leader(key.base_id, key.partition)
        chunk = self.chunks[key] = Chunk(
            key=key,
            fetch_offset=head.offset,
            batches=batches,
            records=data,
            fates=fates(batches, partition.aborted_transactions, key.read_committed),
            leader_epoch=head.leader_epoch if leader is None or head.leader_epoch >= 0 else leader.epoch,
            asked_epoch=head.last_fetched_epoch,
            read_at=now,
            facts=facts,
        )
        self._reads.cache.add(chunk, now)
        self._reads.mind_age(services.timers)


LAST_FETCHED_EPOCH_SINCE = 12

_KNOWN_OLD = VIEW_IS_OLD | {ErrorCode.OFFSET_OUT_OF_RANGE}


def in_turn(items: Iterable[Any], turn: int) -> list[Any]:
    """The same, beginning elsewhere each time: the first partition of a Fetch gets a batch of whatever size."""
    found = list(items)
    at = turn % len(found) if found else 0
    return found[at:] + found[:at]
