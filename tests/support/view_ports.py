"""Views in front of the scripted cluster: keyed logs, the creation of views, readers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.interfaces import WorkersBusy
from kafka_share_proxy.loop.promise import Promise, Task
from kafka_share_proxy.loop.slices import AT_ONCE, Work
from kafka_share_proxy.views.apis import k01_fetch, k02_list_offsets, k23_offset_for_leader_epoch
from kafka_share_proxy.views.model.catalog import View
from kafka_share_proxy.views.model.names import BadViewName, parse
from kafka_share_proxy.views.model.slots import Cut, EvenCut, StripeCut
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.views.settings import Views
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records

from tests.support.ports import Reply, World
from tests.support.scripted_cluster import Connection, Log, Topic

HANDLERS: Mapping[int, Any] = {
    api.KEY: api.handle for api in (k01_fetch, k02_list_offsets, k23_offset_for_leader_epoch)
}


class ScriptedCreation:
    """Knows the topics of the scripted cluster; a view exists once its base does."""

    def __init__(self, world: ViewWorld) -> None:
        self._world = world
        self.resolved: list[bytes] = []
        self.ensured: list[str] = []

    async def ensure(
        self, connection: Connection, topics: Iterable[str], _work: Work = AT_ONCE
    ) -> dict[str, ErrorCode]:
        errors = {}
        for name in topics:
            self.ensured.append(name)
            known = self._world.learn(name)
            errors[name] = ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return errors

    async def resolve(self, connection: Connection, topic_ids: Iterable[bytes], _work: Work = AT_ONCE) -> None:
        catalog = self._world.views.catalog
        names = {topic.topic_id: topic.name for topic in self._world.cluster.topics.values()}
        for topic_id in topic_ids:
            self.resolved.append(topic_id)
            if topic_id in self._world.view_ids.values():
                self._world.learn(next(n for n, i in self._world.view_ids.items() if i == topic_id))
            elif topic_id in names:
                catalog.learn_plain(topic_id)


class HeldWorkers:
    """Computes when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []
        self.large: list[bool] = []
        """Size class of each request."""
        self.is_full = False

    def run(self, work: Callable[[], Any], owner: Any = None, *, is_large: bool = False) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        if self.is_full:
            promise.fail(WorkersBusy("too many"))
            return promise
        self.large.append(is_large)
        self.jobs.append(lambda: promise.set(work()))
        return promise

    def work(self) -> None:
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job()


class ViewWorld(World):
    """A cluster, views of its topics, and clients that fetch."""

    def __init__(self, *, view_options: Views | None = None, workers: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self.creation = ScriptedCreation(self)
        extra = {} if workers is None else {"workers": workers}
        creation: Any = self.creation
        self.views = ViewServices(services=self.services, creation=creation, options=view_options or Views(), **extra)
        self.view_ids: dict[str, bytes] = {}
        self._view_ids = itertools.count(0xF000)
        self._correlations = itertools.count(1)

    def topic(self, name: str, leaders: Sequence[int] = (1,), *, plain: bool = True) -> Topic:
        """A base topic whose id is known as plain."""
        topic = self.cluster.create(name, leaders)
        if plain:
            self.views.catalog.learn_plain(topic.topic_id)
        return topic

    def view(self, name: str) -> bytes:
        """Add a view that exists and is known. Return its topic id."""
        self.view_ids[name] = next(self._view_ids).to_bytes(16, "big")
        assert self.learn(name)
        return self.view_ids[name]

    def learn(self, name: str) -> bool:
        try:
            parsed = parse(name)
        except BadViewName:
            return False
        assert parsed is not None
        base = self.cluster.topics.get(parsed.base)
        if base is None or name not in self.view_ids:
            return False
        assert isinstance(parsed.number, int)
        cut: Cut = EvenCut(parsed.number) if parsed.kind == "r" else StripeCut(parsed.number)
        self.views.catalog.learn(
            View(
                name=parsed,
                topic_id=self.view_ids[name],
                base_id=base.topic_id,
                base_partitions=len(base.logs),
                cut=cut,
            )
        )
        return True

    def produce(self, topic: Topic, keys: Sequence[bytes | None], partition: int = 0, **batch: Any) -> range:
        """Append one batch with these keys; the value of each record is its offset."""
        log: Log = topic.logs[partition]
        first = log.end
        batch_records = [
            records.Record(key=key, value=b"%d" % (first + index), timestamp=1_700_000_000_000)
            for index, key in enumerate(keys)
        ]
        data = records.build_batch(first, batch_records, leader_epoch=log.epoch, **batch)
        log.batches.append((first, first + len(keys) - 1, data))
        log.end += len(keys)
        self.cluster.wake_fetches()
        return range(first, log.end)

    def fetch(
        self,
        connection: Connection,
        requested: Mapping[bytes | str, Mapping[int, int]],
        *,
        version: int = 15,
        wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 << 20,
        partition_max_bytes: int = 1 << 20,
        isolation: int = 0,
        session: tuple[int, int] = (0, -1),
        epoch: int = -1,
        last_epoch: int | Mapping[int, int] = -1,
        tags: Mapping[int, bytes] | None = None,
    ) -> Reply:
        """Send a Fetch: topic id (name below v13) -> partition -> offset; `last_epoch`: of all, or by partition."""
        message = registry.message("FetchRequest")
        name_field = "topic_id" if version >= 13 else "topic"
        unknown_tags = tuple((tags or {}).items())
        topics = [
            message.FetchTopic(
                **{name_field: name},
                partitions=[
                    message.FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=epoch,
                        last_fetched_epoch=last_epoch if isinstance(last_epoch, int) else last_epoch[partition],
                        unknown_tags=unknown_tags,
                    )
                    for partition, offset in partitions.items()
                ],
            )
            for name, partitions in requested.items()
        ]
        request = message(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            session_id=session[0] if version >= 7 else 0,
            session_epoch=session[1] if version >= 7 else -1,
            topics=topics,
        )
        return self.give(connection, 1, version, request)

    def give(self, connection: Connection, key: int, version: int, request: Any) -> Reply:
        """Give a request to its handler, through our codec as the wire would."""
        decoded = registry.request(key, version).decode(registry.request(key, version).encode(request))
        call = Call(key, version, next(self._correlations), "test-client", decoded, connection)
        task: Task[Any] = Task(HANDLERS[key](call, self.views), lambda task: None, connection)
        connection.tasks.append(task)
        task.start()
        return Reply(task, key, version)

    def looked_at(self, version: int, request: Any) -> bool:
        """Return True if the bytes of a Fetch say that it is to be served here."""
        frame = frames.request(1, version, 7, "client", request)
        return k01_fetch.may_need_views(self.views.catalog).matcher(1, version)(memoryview(frame)[4:])


def partitions_of(response: Any) -> dict[tuple[bytes | str, int], Any]:
    """Return (topic, partition) -> entry of a Fetch response."""
    return {
        (bytes(topic.topic_id) if any(topic.topic_id) else topic.topic, entry.partition_index): entry
        for topic in response.responses
        for entry in topic.partitions
    }


def offsets_in(data: Any) -> list[int]:
    """Return the offsets of the records that a consumer would get: none of control batches."""
    data = memoryview(data or b"")
    return [
        record.offset
        for batch in records.iter_batches(data)
        if not batch.is_control
        for record in records.decode_records(data[batch.position : batch.end])
    ]


def next_offset(data: Any, fetch_offset: int) -> int:
    """Return where a consumer fetches next."""
    ends = [batch.last_offset + 1 for batch in records.iter_batches(memoryview(data or b""))]
    return ends[-1] if ends else fetch_offset
