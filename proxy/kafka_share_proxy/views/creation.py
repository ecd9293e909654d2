"""Preparation of views: a view is created, grown and bound to its base before a request that names it is served.

Rules: views/README.md 10 to 12, 16 and 17. One Metadata request names the views and their bases.
`base_comparison.needed_step` returns what is missing for each view. That is done, and Metadata is requested again until
nothing is missing or the time is over. One client at a time creates a view. Others wait for it and check again. A view
whose topic cannot grow is shown with the partitions it has.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.brokers.queries import TopicEntry
from kafka_share_proxy.loop.interfaces import Notes, Timers
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.slices import AT_ONCE, Work
from kafka_share_proxy.loop.waiting import first_until, wait_until
from kafka_share_proxy.views import broker_requests, state_records
from kafka_share_proxy.views.model.base_comparison import NeededStep, Step, cut_of, needed_step
from kafka_share_proxy.views.model.catalog import Binding, View, ViewCatalog
from kafka_share_proxy.views.model.names import BadViewName, ViewName, is_view, parse
from kafka_share_proxy.views.model.slots import Cut
from kafka_share_proxy.views.settings import Views
from kafka_share_proxy.views.store import ViewStore
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.values import ZERO_UUID

PAUSE_MIN_S, PAUSE_MAX_S = 0.02, 0.5
"""Seconds between two Metadata requests: twice as long each time."""

_CREATED_CODES = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT})
"""Codes of CreateTopics after which the topic is expected to appear."""
_RETRIED_CODES = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED})
"""Codes of CreateTopics after which it is sent again."""
_GROWN_CODES = frozenset({ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS, ErrorCode.REQUEST_TIMED_OUT})
"""Codes of CreatePartitions after which the partitions are expected to appear."""
_DELETED_CODES = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Codes of DeleteTopics after which the topic is expected to disappear."""
_ABSENT_CODES = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""Codes of views that do not exist any longer, or never did."""

SHOWN_PARTITIONS_MAX = 20_000
"""Maximum number of partitions of views without a topic in one response (views/README.md rule 11).

Naming a view costs the client nothing.
"""


class Missing(Enum):
    """Treatment of a view whose topic does not exist yet."""

    CREATE = auto()
    """Create it."""
    OFFER = auto()
    """Show it to a client that may create it."""
    SHOW = auto()
    """Show it."""
    LEAVE = auto()
    """Report UNKNOWN_TOPIC_OR_PARTITION."""


class ViewOutcome(NamedTuple):
    """Result of preparing one view: its state for a client, or why it cannot be shown."""

    code: ErrorCode
    name: ViewName
    topic_entry: TopicEntry | None = None
    """Metadata entry of the view's topic."""
    base_entry: TopicEntry | None = None
    """Metadata entry of its base."""
    view: View | None = None
    """The view, if it can be shown. Without a topic it has topic id zero and is not in the catalog."""
    reason: str = ""

    @property
    def is_without_topic(self) -> bool:
        """True if the view is shown although its topic does not exist yet."""
        return self.view is not None and self.view.topic_id == ZERO_UUID


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
        """Create, grow and add to the catalog these views, over the client's own connection.

        Returns the error code of each topic. With NONE, `catalog.by_name` has the view. Waits at most
        `views.create_wait_s`. Raises UpstreamLost.
        """
        names, errors = await self.parse_names(topics, work)
        outcomes = await self.prepare(connection, names, work=work)
        return {topic: outcome.code for topic, outcome in outcomes.items()} | errors

    async def resolve(self, connection: Connection, topic_ids: Iterable[bytes], work: Work = AT_ONCE) -> None:
        """Find out over the client's own connection whether unknown topic ids are views. Raises UpstreamLost.

        Ids that the catalog still lacks may not be sent upstream in a Fetch (views/README.md rule 19).
        """
        catalog = self.catalog
        unknown = [each for each in topic_ids if not catalog.is_plain(each) and catalog.view(each) is None]
        if not unknown:
            return
        views = await self.learn_plain_topics(await broker_requests.request_ids(connection, unknown, work), work)
        if views:
            await self.ensure(connection, views, work)

    async def learn_plain_topics(self, entries: Iterable[TopicEntry], work: Work = AT_ONCE) -> list[str]:
        """Note the ids of plain topics in the catalog. Return the names of the views."""
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

    async def parse_names(
        self, topics: Iterable[str], work: Work = AT_ONCE
    ) -> tuple[list[ViewName], dict[str, ErrorCode]]:
        """Return the names of views among these topics, and the errors of invalid ones."""
        names, errors = [], {}
        for topic in dict.fromkeys(topics):
            await work.step()
            try:
                name = parse(topic, self.options.slots_max)
            except BadViewName as error:
                errors[topic] = ErrorCode.INVALID_TOPIC_EXCEPTION
                self.notes("view-refused", topic=topic, reason=str(error))
                continue
            if name is not None:
                names.append(name)
        return names, errors

    async def wait_for_stored_state(self, names: Sequence[ViewName]) -> bool:
        """Wait until all stored state was read, unless `names` is empty. Return False if that took too long."""
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
        """Prepare views, in slices. Return the outcome of each. Raises UpstreamLost.

        `operations`: request the client's authorized operations (KIP-430). A topic that was deleted here is created
        again regardless of `missing`.
        """
        return await _Preparation(self, connection, names, missing=missing, operations=operations, work=work).run()


class _Preparation:
    """Work of one request on some views."""

    def __init__(
        self,
        creation: ViewCreation,
        connection: Connection,
        names: Iterable[ViewName],
        *,
        missing: Missing,
        operations: bool,
        work: Work,
    ) -> None:
        self._creation = creation
        self._catalog = creation.catalog
        self._connection = connection
        self._operations = operations
        self._work = work
        self._deadline = creation.timers.now() + creation.options.create_wait_s
        self._names = names
        self._waiting: dict[str, ViewName] = {}
        """Views without an outcome yet, by topic."""
        self._missing = missing
        self._may_create: set[str] = set()
        self._created: set[str] = set()
        """Topics that a broker has accepted to create, or that existed already."""
        self._results: dict[str, ViewOutcome] = {}
        self._entries: Mapping[str, TopicEntry] = {}
        """Metadata of views and bases, by topic, of the last request."""

    async def run(self) -> dict[str, ViewOutcome]:
        await self._begin()
        pause = PAUSE_MIN_S
        while self._waiting:
            self._entries = await broker_requests.request_topics(
                self._connection, await self._names_to_query(), operations=self._operations, work=self._work
            )
            steps = await self._next_steps()
            if not steps:
                break
            now = self._creation.timers.now()
            if now >= self._deadline:
                await self._give_up(steps)
                break
            await self._take_steps(steps)
            if self._waiting:
                await wait_until(self._creation.timers, min(self._deadline, now + pause))
                pause = min(2 * pause, PAUSE_MAX_S)
        return self._results

    async def _names_to_query(self) -> dict[str, None]:
        names: dict[str, None] = {}
        for topic, name in self._waiting.items():
            names[topic] = names[name.base] = None
            await self._work.step()
        return names

    async def _begin(self) -> None:
        """Refuse views of which the bindings or the plan cannot be known."""
        for name in self._names:
            self._waiting[name.topic] = name
            await self._work.step()
        if self._missing is Missing.CREATE:
            self._may_create.update(self._waiting)
        new = await self._work.select(lambda name: self._catalog.by_name(name.topic) is None, self._waiting.values())
        is_read, store = await self._creation.wait_for_stored_state(new), self._creation.store
        for name in new:
            await self._work.step()
            if not is_read:
                self._refuse(name, ErrorCode.LEADER_NOT_AVAILABLE, f"{state_records.TOPIC} could not be read in time")
            elif name.plan is not None and self._catalog.plan(name.plan) is None:
                off = f" ({store.off})" if store.off else ""
                self._refuse(name, ErrorCode.INVALID_TOPIC_EXCEPTION, f"there is no plan {name.plan!r}{off}")

    async def _next_steps(self) -> dict[str, NeededStep]:
        """Settle the outcomes that the last Metadata decides. Return what is needed for the other views."""
        steps = {}
        absent: dict[str, NeededStep] = {}
        views_allowed = self._creation.options.views_max - self._catalog.count
        for topic, name in list(self._waiting.items()):
            await self._work.step()
            needed = self._needed_step(name)
            is_new = needed.step is Step.CREATE and self._catalog.binding(topic) is None
            views_allowed -= is_new
            if is_new and views_allowed < 0:
                reason = f"there are {self._catalog.count} views: delete some, or raise views.views_max"
                self._refuse(name, ErrorCode.POLICY_VIOLATION, reason)
            elif needed.step is Step.READY:
                await self._complete(name, needed.partitions)
            elif needed.step is Step.REFUSE and needed.code != ErrorCode.LEADER_NOT_AVAILABLE:
                self._refuse(name, needed.code, needed.reason)
            elif needed.step is Step.CREATE and topic not in self._may_create:
                absent[topic] = needed
            else:
                steps[topic] = needed
        await self._show_without_topics({topic: needed.partitions for topic, needed in absent.items()})
        return steps | {topic: needed for topic, needed in absent.items() if topic in self._waiting}

    async def _show_without_topics(self, absent: Mapping[str, int]) -> None:
        """Show views without a topic. One that was created a moment ago stays in `_waiting`."""
        if self._missing is Missing.LEAVE:
            for topic in absent:
                self._refuse(self._waiting[topic], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                await self._work.step()
            return
        remaining = max(SHOWN_PARTITIONS_MAX, self._creation.options.partitions_max)
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
                elif code not in _CREATED_CODES | _RETRIED_CODES:
                    self._refuse_to_create(topic, code, text)
        for topic, partitions in fitting.items():
            await self._work.step()
            if topic in self._waiting and topic not in self._created:
                self._results[topic] = self._without_topic(self._waiting.pop(topic), partitions)

    def _without_topic(self, name: ViewName, partitions: int) -> ViewOutcome:
        cut, base = self._cut(name), self._entries[name.base]
        self._catalog.forget(name.topic)
        self._catalog.note_shown()
        shown = View(
            name=name,
            topic_id=ZERO_UUID,
            base_id=bytes(base.topic_id),
            base_partitions=partitions // cut.slots,
            cut=cut,
        )
        return ViewOutcome(ErrorCode.NONE, name, self._entries.get(name.topic), base, shown)

    def _needed_step(self, name: ViewName) -> NeededStep:
        return needed_step(
            self._cut(name).slots,
            broker_requests.state_of(self._entries.get(name.topic)),
            broker_requests.state_of(self._entries.get(name.base)),
            self._catalog.binding(name.topic),
            self._creation.options.partitions_max,
        )

    def _cut(self, name: ViewName) -> Cut:
        view = self._catalog.by_name(name.topic)
        if view is not None:
            return view.cut
        return cut_of(name, None if name.plan is None else self._catalog.plan(name.plan))

    async def _complete(self, name: ViewName, partitions: int) -> None:
        """Bind the view durably, and add it to the catalog."""
        topic, cut = name.topic, self._cut(name)
        topic_entry, base_entry = self._entries[topic], self._entries[name.base]
        binding = Binding(bytes(topic_entry.topic_id), bytes(base_entry.topic_id))
        if self._catalog.binding(topic) != binding:
            await self._bind(topic, binding)
        view = View(
            name=name,
            topic_id=binding.view_id,
            base_id=binding.base_id,
            base_partitions=partitions // cut.slots,
            cut=cut,
        )
        self._catalog.learn(view)
        del self._waiting[topic]
        self._results[topic] = ViewOutcome(ErrorCode.NONE, name, topic_entry, base_entry, view)

    async def _bind(self, topic: str, binding: Binding) -> None:
        """Store the binding. A failure is tolerated: it only matters when the base is recreated."""
        self._catalog.bind(topic, binding)
        stored = self._creation.store.store(state_records.binding_key(topic), state_records.binding_value(binding))
        await first_until(self._creation.timers, max(self._deadline, self._creation.timers.now() + PAUSE_MAX_S), stored)
        reason = "no response in time"
        try:
            if stored.done:
                stored.result()
                return
        except ProxyError as error:
            reason = str(error)
        self._creation.notes("view-binding-not-stored", view=topic, reason=reason)

    async def _take_steps(self, steps: Mapping[str, NeededStep]) -> None:
        """Create, grow and delete topics, except those that another request is changing now."""
        mine = {topic: needed for topic, needed in steps.items() if topic not in self._creation.busy}
        self._creation.busy.update(mine)
        try:
            missing = {t: each.partitions for t, each in mine.items() if each.step is Step.CREATE}
            await self._create(missing)
            for topic, needed in mine.items():
                await self._work.step()
                if needed.step is Step.GROW:
                    await self._grow(self._waiting[topic], needed.partitions)
                elif needed.step is Step.REPLACE:
                    self._may_create.add(topic)
                    await self._delete(self._waiting[topic])
        finally:
            self._creation.busy.difference_update(mine)

    async def _create(self, missing: Mapping[str, int]) -> None:
        new = await self._work.select(lambda topic: topic not in self._created, missing)
        for topic, (code, text) in (await self._request_to_create({topic: missing[topic] for topic in new})).items():
            await self._work.step()
            if code == ErrorCode.NONE:
                self._creation.notes("view-created", view=topic, partitions=missing[topic])
            if code in _CREATED_CODES:
                self._created.add(topic)
            elif code not in _RETRIED_CODES:
                self._refuse_to_create(topic, code, text)

    async def _request_to_create(
        self, missing: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, tuple[int, str]]:
        """Create topics with the replication of the bases, or the brokers' default if that is impossible."""
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
            lambda by: broker_requests.grow(by, topic, partitions, self._timeout_s), _GROWN_CODES
        )
        if code == ErrorCode.NONE:
            self._creation.notes("view-grown", view=topic, partitions=partitions)
        elif code not in _GROWN_CODES:
            reason = text or ErrorCode.of(code).name
            self._creation.notes("view-not-grown", view=topic, partitions=partitions, reason=reason)
            await self._complete(name, len(self._entries[topic].partitions))

    async def _delete(self, name: ViewName) -> None:
        topic_id = bytes(self._entries[name.topic].topic_id)
        known = self._catalog.by_name(name.topic)
        if known is not None and known.topic_id == topic_id:
            self._catalog.forget(name.topic)
        self._created.discard(name.topic)
        code, text = await self._own_or_client(
            lambda by: broker_requests.delete(by, topic_id, self._timeout_s), _DELETED_CODES
        )
        if code in _DELETED_CODES:
            self._creation.notes("view-replaced", view=name.topic, reason="its base was deleted and made anew")
            return
        reason = f"its base was made anew, and its topic cannot be deleted: {text or ErrorCode.of(code).name}"
        self._refuse(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)

    @property
    def _timeout_s(self) -> float:
        return max(self._deadline - self._creation.timers.now(), 1.0)

    async def _own_or_client(self, attempt: _Attempt, success_codes: frozenset[ErrorCode]) -> tuple[int, str]:
        """Make an attempt under the proxy's own identity. If it fails, repeat it on the client's connection."""
        own = self._creation.own
        if own is not None and own is not self._connection:
            try:
                code, text = await attempt(own)
            except ProxyError:
                pass  # no identity, or no broker reachable with it: use the client's connection
            else:
                if code in success_codes:
                    return code, text
        return await attempt(self._connection)

    def _refuse(self, name: ViewName, code: ErrorCode, reason: str = "") -> None:
        topic = name.topic
        del self._waiting[topic]
        if code in _ABSENT_CODES:
            self._catalog.forget(topic)
        if reason:
            self._creation.notes("view-refused", topic=topic, error=code.name, reason=reason)
        self._results[topic] = ViewOutcome(code, name, self._entries.get(topic), reason=reason)

    async def _give_up(self, steps: Mapping[str, NeededStep]) -> None:
        for topic, needed in steps.items():
            await self._work.step()
            is_old = needed.step is Step.REPLACE
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_old else ErrorCode.LEADER_NOT_AVAILABLE
            reason = f"not ready within {self._creation.options.create_wait_s:g} s ({needed.step.name.lower()})"
            self._refuse(self._waiting[topic], code, reason)


_Attempt = Callable[[Connection], Coroutine[Promise[Any], None, tuple[int, str]]]
