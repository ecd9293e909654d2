"""A coordinator in memory, and individual commits in front of it: what clients send, and what the topic holds then."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from kafka_share_proxy.commits import commit_apis
from kafka_share_proxy.commits.held_state import HeldCommits
from kafka_share_proxy.commits.locked_partitions import text_of
from kafka_share_proxy.commits.partition_locks import PartitionLocks
from kafka_share_proxy.commits.services import CommitOptions, CommitServices, commit_gate
from kafka_share_proxy.commits.state_records import (
    BINDING,
    INDIVIDUAL_COMMITS,
    CommitKey,
    GroupKey,
    RangeKey,
    decode_range_value,
)
from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.forwarding.dispatch.declared_api import Served
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.synchronous_fast_path import SynchronousFastPath
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.commit_topic import without_ranges
from tests.support.ports import SlowJournal, World, responded
from tests.support.scripted_cluster import Connection

OFFSET_COMMIT, OFFSET_FETCH, TXN_OFFSET_COMMIT, DELETE_GROUPS, OFFSET_DELETE = 8, 9, 28, 42, 47
PRODUCER = (7, 0)


@dataclass
class Committed:
    """Committed state of one partition at a coordinator."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass
class Coordinator:
    """Coordinator of all groups."""

    world: World
    committed: dict[tuple[str, str, int], Committed] = field(default_factory=dict)
    pending: dict[tuple[str, str, int], tuple[int, Committed]] = field(default_factory=dict)
    """Offsets of open transactions, by producer id."""
    refuse: ErrorCode = ErrorCode.NONE
    """Error code for every commit."""
    metadata_max: int = 4096

    def respond(self, key: int, version: int, request: Any) -> Any:
        """Return a broker's response."""
        responses = {
            OFFSET_COMMIT: self._commit,
            TXN_OFFSET_COMMIT: self._commit,
            OFFSET_FETCH: self._fetch,
            DELETE_GROUPS: self._delete_groups,
            OFFSET_DELETE: self._delete_offsets,
        }
        return responses[key](version, request)

    def _name(self, topic: Any) -> str | None:
        if not any(bytes(getattr(topic, "topic_id", b""))):
            return str(topic.name)
        known = {each.topic_id: each.name for each in self.world.cluster.topics.values()}
        return known.get(bytes(topic.topic_id))

    def _commit(self, version: int, request: Any) -> Any:
        is_transaction = hasattr(request, "transactional_id")
        name = "TxnOffsetCommit" if is_transaction else "OffsetCommit"
        response = registry.message(f"{name}Response")
        topics = []
        for topic in request.topics:
            partitions = []
            for entry in topic.partitions:
                code = self._code(topic, entry)
                if code == ErrorCode.NONE:
                    place = request.group_id, str(self._name(topic)), entry.partition_index
                    epoch = entry.committed_leader_epoch
                    committed = Committed(entry.committed_offset, entry.committed_metadata or "", epoch)
                    if is_transaction:
                        self.pending[place] = request.producer_id, committed
                    else:
                        self.committed[place] = committed
                partition = getattr(response, f"{name}ResponsePartition")
                partitions.append(partition(partition_index=entry.partition_index, error_code=code))
            made_topic = getattr(response, f"{name}ResponseTopic")
            ids = {"topic_id": topic.topic_id} if hasattr(topic, "topic_id") else {}
            topics.append(made_topic(name=topic.name, partitions=partitions, **ids))
        return response(topics=topics)

    def _code(self, topic: Any, entry: Any) -> ErrorCode:
        if self.refuse != ErrorCode.NONE:
            return self.refuse
        name = self._name(topic)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        known = self.world.cluster.topics.get(name)
        if known is None or entry.partition_index >= len(known.logs):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_long = len(entry.committed_metadata or "") > self.metadata_max
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_long else ErrorCode.NONE

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """End the transaction of this producer: its pending offsets are committed or dropped."""
        for place, (producer, committed) in list(self.pending.items()):
            if producer == producer_id:
                del self.pending[place]
                if commit:
                    self.committed[place] = committed

    def _fetch(self, version: int, request: Any) -> Any:
        response = registry.message("OffsetFetchResponse")
        if version < 8:
            topics = self._topics(response, request, request.group_id, request, "OffsetFetchResponse")
            return response(topics=topics)
        groups = [
            response.OffsetFetchResponseGroup(
                group_id=group.group_id, topics=self._topics(response, request, group.group_id, group, "s")
            )
            for group in request.groups
        ]
        return response(groups=groups)

    def _topics(self, response: Any, request: Any, group_id: str, requested_group: Any, kind: str) -> list[Any]:
        end = "s" if kind == "s" else ""
        topic_class = getattr(response, f"OffsetFetchResponseTopic{end}")
        partition_class = getattr(response, f"OffsetFetchResponsePartition{end}")
        requested: list[tuple[Any, list[int]]]
        if requested_group.topics is None:
            by_name: dict[str, list[int]] = {}
            for group, name, index in self.committed:
                if group == group_id:
                    by_name.setdefault(name, []).append(index)
            message = registry.message("OffsetFetchRequest")
            ids = {each.name: each.topic_id for each in self.world.cluster.topics.values()}
            requested = [
                (message.OffsetFetchRequestTopics(name=name, topic_id=ids[name]), in_response)
                for name, in_response in by_name.items()
            ]
        else:
            requested = [(topic, topic.partition_indexes) for topic in requested_group.topics]
        topics = []
        for topic, indexes in requested:
            partitions = []
            for index in indexes:
                place = group_id, str(self._name(topic)), index
                in_response = self.committed.get(place, Committed(-1))
                is_open = request.require_stable and place in self.pending
                entry = partition_class(partition_index=index, committed_offset=-1, metadata="")
                if is_open:
                    entry.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
                else:
                    entry.committed_offset, entry.metadata = in_response.offset, in_response.metadata
                    entry.committed_leader_epoch = in_response.leader_epoch
                partitions.append(entry)
            ids = {"topic_id": topic.topic_id} if hasattr(topic, "topic_id") and end else {}
            topics.append(topic_class(name=topic.name, partitions=partitions, **ids))
        return topics

    def _delete_groups(self, version: int, request: Any) -> Any:
        response = registry.message("DeleteGroupsResponse")
        results = []
        for name in request.groups_names:
            places = [place for place in self.committed if place[0] == name]
            for place in places if self.refuse == ErrorCode.NONE else ():
                del self.committed[place]
            code = self.refuse or (ErrorCode.NONE if places else ErrorCode.GROUP_ID_NOT_FOUND)
            results.append(response.DeletableGroupResult(group_id=name, error_code=code))
        return response(results=results)

    def _delete_offsets(self, version: int, request: Any) -> Any:
        response = registry.message("OffsetDeleteResponse")
        topics = []
        for topic in request.topics:
            for entry in topic.partitions:
                self.committed.pop((request.group_id, topic.name, entry.partition_index), None)
            partitions = [
                response.OffsetDeleteResponsePartition(partition_index=entry.partition_index)
                for entry in topic.partitions
            ]
            topics.append(response.OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        return response(topics=topics)


class Api(NamedTuple):
    """See loop.interfaces.Request."""

    key: int
    version: int


@dataclass
class Sent:
    """A request under way."""

    task: Task[Any]
    key: int
    version: int

    @property
    def has_response(self) -> bool:
        return self.task.finished

    @property
    def response(self) -> Any:
        assert self.task.finished, "no answer yet"
        if self.task.error is not None:
            raise self.task.error
        assert self.task.value is not None
        return frames.decode_response(self.key, self.version, memoryview(bytes(self.task.value))[4:])[1]

    @property
    def codes(self) -> list[int]:
        """Return the codes of a commit, by partition."""
        return [entry.error_code for topic in self.response.topics for entry in topic.partitions]


class CommitWorld:
    """One proxy that owns all groups, one cluster with the topics t and u of four partitions."""

    state = "topic"
    """Place of ranges: topic, metadata, or overflow: the metadata has no room (tests/commits/conftest.py)."""

    def __init__(self, *, slow: bool = False, fast_path: bool = True, **options: Any) -> None:
        """`fast_path`: common requests take the fast path, as in forwarding; otherwise the handlers serve all."""
        self.in_metadata = self.state != "topic"
        options.setdefault("in_metadata", self.in_metadata)
        self._short_way = fast_path
        self.synchronous_fast_path = 0
        self.repeated = 0
        """Commits that repeated the last one of their connection."""
        self.world = World()
        self.cluster = self.world.cluster
        self.timers = self.world.timers
        for name in ("t", "u"):
            self.cluster.create(name, leaders=(1, 1, 1, 1))
        self.coordinator = Coordinator(self.world)
        self.cluster.respond_unscripted = self.coordinator.respond
        self.cluster.scripted = self.cluster.scripted - {OFFSET_DELETE}
        self.journal: SlowJournal = SlowJournal()
        self.journal.slow = slow
        self.services = CommitServices(
            base=self.world.services,
            journal=self.journal,
            options=CommitOptions(**options),
            held=HeldCommits(in_metadata=self.in_metadata),
        )
        if self.state == "overflow":
            self.services.limit.characters = 0
        self._numbers = itertools.count(1)
        self.serve()

    def serve(self) -> None:
        """Make the handlers of individual commits."""
        self.served: Mapping[int, Served] = {
            **commit_apis.commits(self.services),
            **commit_apis.deletions(self.services),
        }

    async def restart(self, state: str | None = None) -> None:
        """Replace the owner. The new one knows only what is in the topic and at the broker."""
        self.in_metadata = (state or self.state) != "topic"
        self.services.options = replace(self.services.options, in_metadata=self.in_metadata)
        self.services.held = HeldCommits(in_metadata=self.in_metadata)
        records = [(INDIVIDUAL_COMMITS.encode_key(key), value) for key, value in self.topic.items()]
        await self.services.held.load(records)
        self.serve()

    async def crash(self, chance: random.Random, state: str) -> None:
        """Kill the owner: requests and appends in flight arrive or are lost, and another owner takes over."""
        for _, response in self.cluster._waiting:
            if chance.random() < 0.5:
                response()
        self.cluster._waiting.clear()
        self.cluster.held = set()
        for records, _ in self.journal.appends[: chance.randrange(len(self.journal.appends) + 1)]:
            MemoryJournal.append(self.journal, records)
        self.journal.appends.clear()
        self.services = replace(self.services, locks=PartitionLocks(), gate=commit_gate())
        await self.restart(state)

    @property
    def is_free(self) -> bool:
        """True if no request holds a lock or waits for one, the gate remembers none, and no append waits for one."""
        services = self.services
        is_locked = any(
            lock.queue or lock.shared + lock.is_exclusive > len(lock.keepers or ())
            for lock in services.locks._locks.values()
        )
        return not (is_locked or any(door.inside for door in services.gate._doors) or services.journal.coming)

    # What clients do

    def connect(self) -> Connection:
        return Connection(self.cluster, 1)

    def send(self, key: int, version: int, request: Any, connection: Connection | None = None) -> Sent:
        connection = connection or self.connect()
        decoded = registry.request(key, version).decode(registry.request(key, version).encode(request))
        number = next(self._numbers)
        whole = memoryview(frames.request(key, version, number, "c", decoded))
        if self._is_served_at_once(cast(SynchronousFastPath, connection), whole, Api(key, version)):
            self.synchronous_fast_path += 1
            return self._started(connection.taken_response(), connection, key, version)
        frame = whole[4:]
        call = Call(key, version, number, "c", decoded, connection, frame=frame)
        return self._started(self._response(call), connection, key, version)

    def _is_served_at_once(self, connection: SynchronousFastPath, frame: memoryview, api: Api) -> bool:
        """Do what `ClientToBroker.walked` and `SynchronousFastPath.repeats` do."""
        synchronous_handler = self.served[api.key].synchronous_handler if self._short_way else None
        if synchronous_handler is None:
            return False
        repeated = connection.repeated
        plan = None if repeated is None else repeated.plan(frame, len(frame), self.timers.now())
        if repeated is not None and plan is not None:
            self.repeated += 1
            connection.send_at_once(repeated.request, plan[1], repeated, plan[0])
            return True
        return synchronous_handler(connection, frame, api)

    def _started(self, responding: Any, connection: Connection, key: int, version: int) -> Sent:
        task: Task[Any] = Task(responding, lambda _: None, connection)
        connection.tasks.append(task)
        task.start()
        return Sent(task, key, version)

    async def _response(self, call: Call[Any]) -> Any:
        """Respond as the route does."""
        served = self.served[call.key]
        assert call.frame is not None
        is_ours = (served.wants is None or served.wants.matcher(call.key, call.version)(call.frame)) and (
            served.picks is None or await served.picks(call)
        )
        response = await responded(served.handler, call) if is_ours else None
        if response is not None:
            return response
        body = registry.request(call.key, call.version).encode(call.message)
        forwarded = registry.response(call.key, call.version).decode(
            await call.connection.send_request(call.key, call.version, body)
        )
        return frames.response(call.key, call.version, call.correlation_id, forwarded)

    def commit(
        self,
        offset: int,
        text: str | None = None,
        *,
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
        version: int = 9,
        connection: Connection | None = None,
        **fields: Any,
    ) -> Sent:
        """Send an OffsetCommit of one partition."""
        return self.commit_many([(topic, partition, offset, text)], group, version, connection, **fields)

    def commit_many(
        self,
        commits: Sequence[tuple[str, int, int, str | None]],
        group: str = "g",
        version: int = 9,
        connection: Connection | None = None,
        **fields: Any,
    ) -> Sent:
        request = registry.message("OffsetCommitRequest")
        topics = self._topics(request, "OffsetCommitRequest", commits, fields.pop("leader_epoch", -1))
        return self.send(OFFSET_COMMIT, version, request(group_id=group, topics=topics, **fields), connection)

    def commit_in_transaction(
        self,
        offset: int,
        text: str | None = None,
        *,
        group: str = "g",
        partition: int = 0,
        producer: tuple[int, int] = PRODUCER,
        version: int = 4,
    ) -> Sent:
        """Send a TxnOffsetCommit of one partition of t."""
        request = registry.message("TxnOffsetCommitRequest")
        topics = self._topics(request, "TxnOffsetCommitRequest", [("t", partition, offset, text)], -1)
        message = request(
            transactional_id="x", group_id=group, producer_id=producer[0], producer_epoch=producer[1], topics=topics
        )
        return self.send(TXN_OFFSET_COMMIT, version, message)

    def _topics(
        self, request: Any, name: str, commits: Sequence[tuple[str, int, int, str | None]], leader_epoch: int
    ) -> list[Any]:
        topic_class, partition_class = (getattr(request, f"{name}{part}") for part in ("Topic", "Partition"))
        topics: dict[str, Any] = {}
        for topic, partition, offset, text in commits:
            known = self.cluster.topics.get(topic)
            topic_entry = topics.setdefault(
                topic, topic_class(name=topic, topic_id=known.topic_id if known else b"x" * 16, partitions=[])
            )
            topic_entry.partitions.append(
                partition_class(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_metadata=text,
                    committed_leader_epoch=leader_epoch,
                )
            )
        return list(topics.values())

    def fetch(
        self,
        connection: Connection | None = None,
        *,
        group: str = "g",
        version: int = 7,
        stable: bool = False,
        everything: bool = False,
    ) -> Sent:
        """Send an OffsetFetch of partition 0 of t, or of everything."""
        request = registry.message("OffsetFetchRequest")
        topic = self.cluster.topics["t"]
        if version < 8:
            topics = None if everything else [request.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
            message = request(group_id=group, topics=topics, require_stable=stable)
        else:
            requested_topics = [
                request.OffsetFetchRequestTopics(name="t", topic_id=topic.topic_id, partition_indexes=[0])
            ]
            requested_group = request.OffsetFetchRequestGroup(
                group_id=group, topics=None if everything else requested_topics
            )
            message = request(groups=[requested_group], require_stable=stable)
        return self.send(OFFSET_FETCH, version, message, connection)

    def request_to_delete(self, *groups: str) -> Sent:
        """Send DeleteGroups of these groups."""
        return self.send(DELETE_GROUPS, 2, registry.message("DeleteGroupsRequest")(groups_names=list(groups)))

    def committed(self, **options: Any) -> tuple[int, str]:
        """Return the committed state of partition 0 of t as a client sees it."""
        sent = self.fetch(**options)
        groups = sent.response.groups if sent.version >= 8 else [sent.response]
        (entry,) = [
            entry for group in groups for topic in group.topics for entry in topic.partitions if not entry.error_code
        ]
        return entry.committed_offset, entry.metadata

    # What there is then

    @property
    def topic(self) -> dict[CommitKey, bytes]:
        """Return the content of the topic of ranges after compaction."""
        return dict(self.journal.values)

    def ranges(self, group: str = "g", partition: int = 0) -> str:
        """Return those of a partition of t that are stored, in the topic or in the broker's metadata."""
        stored = self.topic_ranges(group, partition)
        if not self.in_metadata:
            return stored
        offset, metadata = self.broker(group, partition)
        spans = [tuple(map(int, span.split("-"))) for span in stored.split(",") if span]
        both = OffsetRanges((first, last + 1) for first, last in spans)
        text = text_of(metadata)
        both.merge_all(() if text is None else text.ranges)
        both.drop_below(offset)
        return str(both)

    def topic_ranges(self, group: str = "g", partition: int = 0) -> str:
        """Return those of a partition of t that are in the topic."""
        ranges = sorted(
            (key.first, key.last)
            for key, value in self.topic.items()
            if isinstance(key, RangeKey) and (key.group_id, key.topic, key.partition) == (group, "t", partition)
            if decode_range_value(value).metadata != BINDING
        )
        return ",".join(f"{first}-{last}" for first, last in ranges)

    def is_marked(self, group: str = "g") -> bool:
        return GroupKey(group) in self.topic

    def primary(self, group: str = "g", partition: int = 0) -> tuple[int, str]:
        """Return what the broker has of a partition of t, without ranges of `commits.state: metadata`."""
        offset, metadata = self.broker(group, partition)
        return offset, without_ranges(metadata) if self.in_metadata else metadata

    def broker(self, group: str = "g", partition: int = 0) -> tuple[int, str]:
        """Return what the broker has of a partition of t."""
        stored = self.coordinator.committed.get((group, "t", partition), Committed(-1))
        return stored.offset, stored.metadata

    def recreate_topic(self) -> None:
        """Delete topic t and create it again: brokers drop the offsets committed for a deleted topic."""
        self.cluster.create("t", leaders=(1, 1, 1, 1))
        for place in [place for place in self.coordinator.committed if place[1] == "t"]:
            del self.coordinator.committed[place]

    def begin(self, mark: int, *ranges: str, group: str = "g") -> None:
        """Set the initial state of partition 0 of t of a group."""
        assert self.commit(mark, group=group).codes == [0]
        for text in ranges:
            assert self.commit(mark, f"ic/1;{text}", group=group).codes == [0]
