"""Preparation of views: a view is created, grown and bound to its base before a request that names it is served.

Rules: views/README.md 10 to 12, 16 and 17. One Metadata request names the views and their bases.
`base_comparison.judge` returns what is missing for each view. That is done, and Metadata is requested again until
nothing is missing or the time is over. One client at a time creates a view. Others wait for it and check again. A view
whose topic cannot grow is shown with the partitions it has.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.brokers.queries import TopicEntry
from kafka_share_proxy.loop.interfaces import Notes, Timers
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.slices import AT_ONCE, Work
from kafka_share_proxy.loop.waiting import first_until, wait_until
from kafka_share_proxy.views import broker_requests, state_records
from kafka_share_proxy.views.model.base_comparison import Standing, Step, cut_of, judge
from kafka_share_proxy.views.model.catalog import Binding, View, ViewCatalog
from kafka_share_proxy.views.model.names import BadViewName, ViewName, is_view, parse
from kafka_share_proxy.views.model.slots import Cut
from kafka_share_proxy.views.settings import Views
from kafka_share_proxy.views.store import ViewStore
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.values import ZERO_UUID

PAUSE_MIN_S, PAUSE_MAX_S = 0.02, 0.5

_MAYBE = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT})
"""Codes after which the topic is expected to appear."""
_AGAIN = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED})
_GROWN = frozenset({ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS, ErrorCode.REQUEST_TIMED_OUT})
_DELETED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_ABSENT_CODES = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})

SHOWN_PARTITIONS_MAX = 20_000
"""Maximum number of partitions of views/README.md rule 11, because naming a view costs the client nothing."""


class Missing(Enum):
    """Treatment of a view whose topic does not exist yet."""

    CREATE = auto()
    OFFER = auto()
    """Show it to a client that may create it."""
    SHOW = auto()
    LEAVE = auto()


@dataclass(frozen=True, slots=True)
class ViewOutcome:
    """Result of preparing one view: its state for a client, or why it cannot be shown."""

    code: ErrorCode
    name: ViewName
    view: TopicEntry | None = None
    """Metadata entry of the view's topic."""
    base: TopicEntry | None = None
    known: View | None = None
    """The view, if it can be shown. Without a topic it has topic id zero and is not in the catalog."""
    reason: str = ""

    @property
    def is_without_topic(self) -> bool:
        """True if the view is shown although its topic does not exist yet."""
        return self.known is not None and self.known.topic_id == ZERO_UUID


class ViewCreation:
    """Prepares views, and finds out which topic ids are views. One per process."""

    def __init__(
        self,
        catalog: ViewCatalog,
        options: Views,
        store: ViewStore,
        timers: Timers,
        notes: Notes,
        own: Connection | None = None,
    ) -> None:
        """`own`: connection under the proxy's own identity. None if it has no identity."""
        self.own = own
        self.catalog = catalog
        self.options = options
        self.store = store
        self.timers = timers
        self.notes = notes
        self.busy: set[str] = set()
        """Views that a request is creating, growing or deleting now."""

    # Entry points

    async def ensure(
        self, connection: Connection, topics: Iterable[str], work: Work = AT_ONCE
    ) -> Mapping[str, ErrorCode]:
        """Make these views ready over the client's own connection: created, grown, visible, in the catalog.

        Return the error code of each topic. With NONE, `catalog.by_name` has the view. Waits at most
        `views.create_wait_s`. Raises UpstreamLost.
        """
        names, bad = await self.read(topics, work)
        outcomes = await self.prepare(connection, names, work=work)
        return {topic: outcome.code for topic, outcome in outcomes.items()} | bad

    async def resolve(self, connection: Connection, topic_ids: Iterable[bytes], work: Work = AT_ONCE) -> None:
        """Find out over the client's own connection whether unknown topic ids are views. Raises UpstreamLost.

        Ids that the catalog still lacks may not be sent upstream in a Fetch (views/README.md rule 19).
        """
        catalog = self.catalog
        unknown = [each for each in topic_ids if not catalog.is_plain(each) and catalog.view(each) is None]
        if not unknown:
            return
        views = await self.file(await broker_requests.request_ids(connection, unknown, work), work)
        if views:
            await self.ensure(connection, views, work)

    async def file(self, entries: Iterable[TopicEntry], work: Work = AT_ONCE) -> list[str]:
        """Note plain ids. Return the names of views."""
        views = []
        for entry in entries:
            await work.step()
            if entry.error_code != ErrorCode.NONE or entry.name is None:
                continue
            if is_view(entry.name):
                views.append(entry.name)
            else:
                self.catalog.learn_plain(bytes(entry.topic_id))
        return views

    async def read(self, topics: Iterable[str], work: Work = AT_ONCE) -> tuple[list[ViewName], dict[str, ErrorCode]]:
        names, bad = [], {}
        for topic in dict.fromkeys(topics):
            await work.step()
            try:
                name = parse(topic, self.options.slots_max)
            except BadViewName as error:
                bad[topic] = ErrorCode.INVALID_TOPIC_EXCEPTION
                self.notes("view-refused", topic=topic, reason=str(error))
                continue
            if name is not None:
                names.append(name)
        return names, bad

    async def know(self, names: Sequence[ViewName]) -> bool:
        """Wait until all stored state was read. False if that took too long."""
        if not names:
            return True
        synced = self.store.synced()
        await first_until(self.timers, self.timers.now() + self.options.create_wait_s, synced)
        return synced.done

    async def prepare(
        self,
        connection: Connection,
        names: Iterable[ViewName],
        *,
        missing: Missing = Missing.CREATE,
        operations: bool = False,
        work: Work = AT_ONCE,
    ) -> dict[str, ViewOutcome]:
        """Return the state that each view has reached. Works in slices. Raises UpstreamLost.

        A topic that was deleted here is created again regardless of `missing`.
        """
        return await _Preparation(self, connection, names, missing=missing, operations=operations, work=work).run()


class _Preparation:
    """Work of one request on some views."""

    def __init__(
        self,
        room: ViewCreation,
        connection: Connection,
        names: Iterable[ViewName],
        *,
        missing: Missing,
        operations: bool,
        work: Work,
    ) -> None:
        self._room = room
        self._catalog = room.catalog
        self._connection = connection
        self._operations = operations
        self._work = work
        self._deadline = room.timers.now() + room.options.create_wait_s
        self._names = names
        self._waiting: dict[str, ViewName] = {}
        self._missing = missing
        self._may_create: set[str] = set()
        self._created: set[str] = set()
        self._results: dict[str, ViewOutcome] = {}
        self._entries: Mapping[str, TopicEntry] = {}

    async def run(self) -> dict[str, ViewOutcome]:
        await self._know()
        pause = PAUSE_MIN_S
        while self._waiting:
            self._entries = await broker_requests.request_topics(
                self._connection, await self._names_to_query(), operations=self._operations, work=self._work
            )
            steps = await self._sort()
            if not steps:
                break
            now = self._room.timers.now()
            if now >= self._deadline:
                await self._give_up(steps)
                break
            await self._act(steps)
            if self._waiting:
                await wait_until(self._room.timers, min(self._deadline, now + pause))
                pause = min(2 * pause, PAUSE_MAX_S)
        return self._results

    async def _names_to_query(self) -> dict[str, None]:
        names: dict[str, None] = {}
        for topic, name in self._waiting.items():
            names[topic] = names[name.base] = None
            await self._work.step()
        return names

    async def _know(self) -> None:
        for name in self._names:
            self._waiting[name.topic] = name
            await self._work.step()
        if self._missing is Missing.CREATE:
            self._may_create.update(self._waiting)
        new = await self._work.select(lambda name: self._catalog.by_name(name.topic) is None, self._waiting.values())
        is_read, store = await self._room.know(new), self._room.store
        for name in new:
            await self._work.step()
            if not is_read:
                self._refuse(name, ErrorCode.LEADER_NOT_AVAILABLE, f"{state_records.TOPIC} could not be read in time")
            elif name.plan is not None and self._catalog.plan(name.plan) is None:
                off = f" ({store.off})" if store.off else ""
                self._refuse(name, ErrorCode.INVALID_TOPIC_EXCEPTION, f"there is no plan {name.plan!r}{off}")

    async def _sort(self) -> dict[str, Standing]:
        steps = {}
        absent: dict[str, Standing] = {}
        views_left = self._room.options.views_max - self._catalog.count
        for topic, name in list(self._waiting.items()):
            await self._work.step()
            standing = self._judge(name)
            is_new = standing.step is Step.CREATE and self._catalog.binding(topic) is None
            views_left -= is_new
            if is_new and views_left < 0:
                reason = f"there are {self._catalog.count} views: delete some, or raise views.views_max"
                self._refuse(name, ErrorCode.POLICY_VIOLATION, reason)
            elif standing.step is Step.READY:
                await self._ready(name, standing.partitions)
            elif standing.step is Step.REFUSE and standing.code != ErrorCode.LEADER_NOT_AVAILABLE:
                self._refuse(name, standing.code, standing.reason)
            elif standing.step is Step.CREATE and topic not in self._may_create:
                absent[topic] = standing
            else:
                steps[topic] = standing
        await self._show({topic: standing.partitions for topic, standing in absent.items()})
        return steps | {topic: standing for topic, standing in absent.items() if topic in self._waiting}

    async def _show(self, absent: Mapping[str, int]) -> None:
        """Show views without a topic. One that was created a moment ago stays in `_waiting`."""
        if self._missing is Missing.LEAVE:
            for topic in absent:
                self._refuse(self._waiting[topic], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                await self._work.step()
            return
        remaining = max(SHOWN_PARTITIONS_MAX, self._room.options.partitions_max)
        fitting: dict[str, int] = {}
        for topic, partitions in absent.items():
            await self._work.step()
            remaining -= partitions
            if remaining >= 0:
                fitting[topic] = partitions
            else:
                reason = "one request names too many views that do not exist yet: create some first"
                self._refuse(self._waiting[topic], ErrorCode.LEADER_NOT_AVAILABLE, reason)
        if self._missing is Missing.OFFER and fitting:
            for topic, (code, text) in (await self._request_to_create(fitting, validate_only=True)).items():
                await self._work.step()
                if code == ErrorCode.TOPIC_ALREADY_EXISTS:
                    self._created.add(topic)
                elif code not in _MAYBE | _AGAIN:
                    self._refuse_to_create(topic, code, text)
        for topic, partitions in fitting.items():
            await self._work.step()
            if topic in self._waiting and topic not in self._created:
                self._results[topic] = self._without_topic(self._waiting.pop(topic), partitions)

    def _without_topic(self, name: ViewName, partitions: int) -> ViewOutcome:
        cut, base = self._cut(name), self._entries[name.base]
        self._catalog.forget(name.topic)
        self._catalog.show()
        shown = View(
            name=name,
            topic_id=ZERO_UUID,
            base_id=bytes(base.topic_id),
            base_partitions=partitions // cut.slots,
            cut=cut,
        )
        return ViewOutcome(ErrorCode.NONE, name, self._entries.get(name.topic), base, shown)

    def _judge(self, name: ViewName) -> Standing:
        view, base = self._entries.get(name.topic), self._entries.get(name.base)
        binding = self._catalog.binding(name.topic)
        partitions_max = self._room.options.partitions_max
        return judge(
            self._cut(name).slots,
            broker_requests.state_of(view),
            broker_requests.state_of(base),
            binding,
            partitions_max,
        )

    def _cut(self, name: ViewName) -> Cut:
        view = self._catalog.by_name(name.topic)
        if view is not None:
            return view.cut
        return cut_of(name, None if name.plan is None else self._catalog.plan(name.plan))

    async def _ready(self, name: ViewName, partitions: int) -> None:
        """Bind the view durably, and add it to the catalog."""
        topic, cut = name.topic, self._cut(name)
        view, base = self._entries[topic], self._entries[name.base]
        binding = Binding(bytes(view.topic_id), bytes(base.topic_id))
        if self._catalog.binding(topic) != binding:
            await self._bind(topic, binding)
        ready_view = View(
            name=name,
            topic_id=binding.view_id,
            base_id=binding.base_id,
            base_partitions=partitions // cut.slots,
            cut=cut,
        )
        self._catalog.learn(ready_view)
        del self._waiting[topic]
        self._results[topic] = ViewOutcome(ErrorCode.NONE, name, view, base, ready_view)

    async def _bind(self, topic: str, binding: Binding) -> None:
        """Store the binding. A failure is tolerated: it only matters when the base is recreated."""
        self._catalog.bind(topic, binding)
        stored = self._room.store.store(state_records.binding_key(topic), state_records.binding_value(binding))
        await first_until(self._room.timers, max(self._deadline, self._room.timers.now() + PAUSE_MAX_S), stored)
        reason = "no response in time"
        try:
            if stored.done:
                stored.result()
                return
        except ProxyError as error:
            reason = str(error)
        self._room.notes("view-binding-not-stored", view=topic, reason=reason)

    async def _act(self, steps: Mapping[str, Standing]) -> None:
        mine = {topic: standing for topic, standing in steps.items() if topic not in self._room.busy}
        self._room.busy.update(mine)
        try:
            missing = {t: each.partitions for t, each in mine.items() if each.step is Step.CREATE}
            await self._create(missing)
            for topic, standing in mine.items():
                await self._work.step()
                if standing.step is Step.GROW:
                    await self._grow(self._waiting[topic], standing.partitions)
                elif standing.step is Step.REPLACE:
                    self._may_create.add(topic)
                    await self._delete(self._waiting[topic])
        finally:
            self._room.busy.difference_update(mine)

    async def _create(self, missing: Mapping[str, int]) -> None:
        new = await self._work.select(lambda topic: topic not in self._created, missing)
        for topic, (code, text) in (await self._request_to_create({topic: missing[topic] for topic in new})).items():
            await self._work.step()
            if code == ErrorCode.NONE:
                self._room.notes("view-created", view=topic, partitions=missing[topic])
            if code in _MAYBE:
                self._created.add(topic)
            elif code not in _AGAIN:
                self._refuse_to_create(topic, code, text)

    async def _request_to_create(
        self, missing: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, tuple[int, str]]:
        """Use the replication of the bases, or the brokers' default if that is impossible."""
        by_replication: dict[int, dict[str, int]] = {}
        for topic, count in missing.items():
            await self._work.step()
            base = self._entries[self._waiting[topic].base]
            replicas = min((len(each.replica_nodes or ()) for each in base.partitions), default=0)
            by_replication.setdefault(replicas or broker_requests.DEFAULT_REPLICATION, {})[topic] = count
        return await broker_requests.create(
            self._connection, by_replication, self._timeout_s, validate_only=validate_only, work=self._work
        )

    def _refuse_to_create(self, topic: str, code: int, text: str) -> None:
        reason = text or f"CreateTopics got {ErrorCode.of(code).name}"
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            reason = (
                f"view {topic} does not exist yet, and the principal has no right to create it: grant CREATE on this "
                "topic, or have another principal run `kafka-share-proxy views create`"
            )
        self._refuse(self._waiting[topic], ErrorCode.of(code), reason)

    async def _grow(self, name: ViewName, partitions: int) -> None:
        topic = name.topic
        code, text = await self._own_or_client(
            lambda by: broker_requests.grow(by, topic, partitions, self._timeout_s), _GROWN
        )
        if code == ErrorCode.NONE:
            self._room.notes("view-grown", view=topic, partitions=partitions)
        elif code not in _GROWN:
            reason = text or ErrorCode.of(code).name
            self._room.notes("view-not-grown", view=topic, partitions=partitions, reason=reason)
            await self._ready(name, len(self._entries[topic].partitions))

    async def _delete(self, name: ViewName) -> None:
        topic_id = bytes(self._entries[name.topic].topic_id)
        known = self._catalog.by_name(name.topic)
        if known is not None and known.topic_id == topic_id:
            self._catalog.forget(name.topic)
        self._created.discard(name.topic)
        code, text = await self._own_or_client(
            lambda by: broker_requests.delete(by, topic_id, self._timeout_s), _DELETED
        )
        if code in _DELETED:
            self._room.notes("view-replaced", view=name.topic, reason="its base was deleted and made anew")
            return
        reason = f"its base was made anew, and its topic cannot be deleted: {text or ErrorCode.of(code).name}"
        self._refuse(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)

    @property
    def _timeout_s(self) -> float:
        return max(self._deadline - self._room.timers.now(), 1.0)

    async def _own_or_client(self, attempt: _Attempt, good: frozenset[ErrorCode]) -> tuple[int, str]:
        own = self._room.own
        if own is not None and own is not self._connection:
            try:
                code, text = await attempt(own)
            except ProxyError:
                pass  # no identity, or no broker reachable with it: use the client's connection
            else:
                if code in good:
                    return code, text
        return await attempt(self._connection)

    def _refuse(self, name: ViewName, code: ErrorCode, reason: str = "") -> None:
        topic = name.topic
        del self._waiting[topic]
        if code in _ABSENT_CODES:
            self._catalog.forget(topic)
        if reason:
            self._room.notes("view-refused", topic=topic, error=code.name, reason=reason)
        self._results[topic] = ViewOutcome(code, name, self._entries.get(topic), reason=reason)

    async def _give_up(self, steps: Mapping[str, Standing]) -> None:
        for topic, standing in steps.items():
            await self._work.step()
            replaced = standing.step is Step.REPLACE
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if replaced else ErrorCode.LEADER_NOT_AVAILABLE
            reason = f"not ready within {self._room.options.create_wait_s:g} s ({standing.step.name.lower()})"
            self._refuse(self._waiting[topic], code, reason)


_Attempt = Callable[[Connection], Coroutine[Promise[Any], None, tuple[int, str]]]
