"""Making views ready: created, grown and tied to their base before the request that names them goes on.

Theory of operation. One Metadata question names the views and their bases; `standing.judge` says of each what is
missing. That is done, and the question is asked again until nothing is missing or the time is over. Who asks:

- a view is created over the client's own connection, as its principal: the ACL on topics `__view.*` decides;
- it grows, and is deleted when its base was made anew, under the proxy's own identity if that may do so, else over the
  client's connection: a view follows its base whoever happens to read it.

One client at a time creates a view; others wait for it and look for themselves. A view whose topic cannot grow is shown
as far as it goes. One whose base was made anew is not shown until its topic is made anew too (committed offsets
would point into other records): UNKNOWN_TOPIC_OR_PARTITION until then.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.brokers.interfaces import Connection
from proxy.brokers.questions import TopicEntry
from proxy.loop.interfaces import Notes, Timers
from proxy.loop.promise import Promise
from proxy.loop.waiting import first_until, wait_until
from proxy.views import broker_requests, state_records
from proxy.views.model.base_comparison import Standing, Step, cut_of, judge
from proxy.views.model.catalog import Binding, View, ViewCatalog
from proxy.views.model.names import BadViewName, ViewName, is_view, parse
from proxy.views.model.slots import Cut
from proxy.views.options import ViewOptions
from proxy.views.store import ViewStore
from proxy.wire.errors import ErrorCode, ProxyError

PAUSE_MIN_S, PAUSE_MAX_S = 0.02, 0.5
"""Between two looks for a view that is being made."""

_MAYBE = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT})
"""Answers to CreateTopics after which the topic is looked for."""
_GROWN = frozenset({ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS, ErrorCode.REQUEST_TIMED_OUT})
_DELETED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""What is said of the view, not of who asks."""


@dataclass(frozen=True, slots=True)
class SeenView:
    """A view as it is to be shown."""

    code: ErrorCode
    name: ViewName
    view: TopicEntry | None = None
    """The broker's Metadata entry of the view's topic, if it has one."""
    base: TopicEntry | None = None
    """That of its base."""
    known: View | None = None
    """What it is, as of this look, where it can be shown: the catalog may be about a later one already."""


class ViewCreation:
    """See services.ViewKeeper. One per process."""

    def __init__(
        self, catalog: ViewCatalog, options: ViewOptions, store: ViewStore, timers: Timers, notes: Notes
    ) -> None:
        self.own: Connection | None = None
        """Leads to some broker under the proxy's own identity; None where it has none to use."""
        self.catalog = catalog
        self.options = options
        self.store = store
        self.timers = timers
        self.notes = notes
        self.busy: set[str] = set()
        """Views that somebody is making, growing or deleting."""

    # The doors

    async def ensure(self, connection: Connection, topics: Iterable[str]) -> Mapping[str, ErrorCode]:
        """See ViewServices.ensure."""
        names, bad = self.read(topics)
        sights = await self.look(connection, names)
        return {topic: sight.code for topic, sight in sights.items()} | bad

    async def resolve(self, connection: Connection, topic_ids: Iterable[bytes]) -> None:
        """See ViewServices.resolve."""
        catalog = self.catalog
        unknown = [each for each in topic_ids if not catalog.is_plain(each) and catalog.view(each) is None]
        if not unknown:
            return
        views = self.file(await broker_requests.ask_ids(connection, unknown))
        if views:
            await self.ensure(connection, views)

    def file(self, entries: Iterable[TopicEntry]) -> list[str]:
        """Note which ids of Metadata entries are plain; the names of the others, which are views'."""
        views = []
        for entry in entries:
            if entry.error_code != ErrorCode.NONE or entry.name is None:
                continue
            if is_view(entry.name):
                views.append(entry.name)
            else:
                self.catalog.learn_plain(bytes(entry.topic_id))
        return views

    def read(self, topics: Iterable[str]) -> tuple[list[ViewName], dict[str, ErrorCode]]:
        """The views among these topics, and those that begin like a view and are none."""
        names, bad = [], {}
        for topic in dict.fromkeys(topics):
            try:
                name = parse(topic, self.options.slots_max)
            except BadViewName as error:
                bad[topic] = ErrorCode.INVALID_TOPIC_EXCEPTION
                self.notes("view-refused", topic=topic, reason=str(error))
                continue
            if name is not None:
                names.append(name)
        return names, bad

    async def know(self, names: Iterable[ViewName]) -> bool:
        """Wait until what is stored about these views has been read; False when that took too long."""
        if all(self.catalog.named(name.topic) is not None for name in names):
            return True
        synced = self.store.synced()
        await first_until(self.timers, self.timers.now() + self.options.create_wait_s, synced)
        return synced.done

    async def look(
        self, connection: Connection, names: Iterable[ViewName], *, create: bool = True, operations: bool = False
    ) -> dict[str, SeenView]:
        """Make these views ready, and show each as far as that went. Raises UpstreamLost.

        Without `create` a missing topic stays missing, unless it was deleted here. With `operations` the entries have
        the authorized operations of whoever asks.
        """
        return await _Look(self, connection, names, create=create, operations=operations).run()


class _Look:
    """One client's look at some views, until each is ready or refused, or the time is over."""

    def __init__(
        self, room: ViewCreation, connection: Connection, names: Iterable[ViewName], *, create: bool, operations: bool
    ) -> None:
        self._room = room
        self._catalog = room.catalog
        self._connection = connection
        self._operations = operations
        self._deadline = room.timers.now() + room.options.create_wait_s
        self._waiting = {name.topic: name for name in names}
        self._may_create = set(self._waiting) if create else set[str]()
        self._made: set[str] = set()
        """Views that are there, though not every broker knows yet."""
        self._found: dict[str, SeenView] = {}
        self._entries: Mapping[str, TopicEntry] = {}
        """The last Metadata answer, by name."""

    async def run(self) -> dict[str, SeenView]:
        await self._know()
        pause = PAUSE_MIN_S
        while self._waiting:
            wanted = [topic for name in self._waiting.values() for topic in (name.topic, name.base)]
            self._entries = await broker_requests.ask_topics(self._connection, wanted, operations=self._operations)
            steps = await self._sort()
            if not steps:
                break
            now = self._room.timers.now()
            if now >= self._deadline:
                self._give_up(steps)
                break
            await self._act(steps)
            if self._waiting:
                await wait_until(self._room.timers, min(self._deadline, now + pause))
                pause = min(2 * pause, PAUSE_MAX_S)
        return self._found

    async def _know(self) -> None:
        """What is stored about views that are new here must be known first: another proxy may know them."""
        new = [name for topic, name in self._waiting.items() if self._catalog.named(topic) is None]
        known, store = await self._room.know(new), self._room.store
        for name in new:
            if not known:
                self._refuse(name, ErrorCode.LEADER_NOT_AVAILABLE, f"{state_records.TOPIC} could not be read in time")
            elif name.plan is not None and self._catalog.plan(name.plan) is None:
                off = f" ({store.off})" if store.off else ""
                self._refuse(name, ErrorCode.INVALID_TOPIC_EXCEPTION, f"there is no plan {name.plan!r}{off}")

    async def _sort(self) -> dict[str, Standing]:
        """Move on what needs nothing more; what the others need."""
        steps = {}
        for topic, name in list(self._waiting.items()):
            standing = self._judge(name)
            if standing.step is Step.READY:
                await self._ready(name, standing.partitions)
            elif standing.step is Step.REFUSE and standing.code != ErrorCode.LEADER_NOT_AVAILABLE:
                self._refuse(name, standing.code, standing.reason)
            elif standing.step is Step.CREATE and topic not in self._may_create:
                self._refuse(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                steps[topic] = standing
        return steps

    def _judge(self, name: ViewName) -> Standing:
        view, base = self._entries.get(name.topic), self._entries.get(name.base)
        binding = self._catalog.binding(name.topic)
        partitions_max = self._room.options.partitions_max
        return judge(
            self._cut(name).slots, broker_requests.seen(view), broker_requests.seen(base), binding, partitions_max
        )

    def _cut(self, name: ViewName) -> Cut:
        known = self._catalog.named(name.topic)
        if known is not None:
            return known.cut
        return cut_of(name, None if name.plan is None else self._catalog.plan(name.plan))

    async def _ready(self, name: ViewName, partitions: int) -> None:
        """Tie it to its base, durably, and put it into the catalog."""
        topic, cut = name.topic, self._cut(name)
        view, base = self._entries[topic], self._entries[name.base]
        binding = Binding(bytes(view.topic_id), bytes(base.topic_id))
        if self._catalog.binding(topic) != binding:
            await self._bind(topic, binding)
        known = View(
            name=name,
            topic_id=binding.view_id,
            base_id=binding.base_id,
            base_partitions=partitions // cut.slots,
            cut=cut,
        )
        self._catalog.learn(known)
        del self._waiting[topic]
        self._found[topic] = SeenView(ErrorCode.NONE, name, view, base, known)

    async def _bind(self, topic: str, binding: Binding) -> None:
        """Where it cannot be stored the view is served all the same: it only matters when the base is made anew."""
        self._catalog.bind(topic, binding)
        stored = self._room.store.store(state_records.binding_key(topic), state_records.binding_value(binding))
        await first_until(self._room.timers, max(self._deadline, self._room.timers.now() + PAUSE_MAX_S), stored)
        reason = "no answer in time"
        try:
            if stored.done:
                stored.result()
                return
        except ProxyError as error:
            reason = str(error)
        self._room.notes("view-binding-not-stored", view=topic, reason=reason)

    async def _act(self, steps: Mapping[str, Standing]) -> None:
        """Do what is missing, unless somebody else is at it."""
        mine = {topic: standing for topic, standing in steps.items() if topic not in self._room.busy}
        self._room.busy.update(mine)
        try:
            missing = {t: each.partitions for t, each in mine.items() if each.step is Step.CREATE}
            await self._create({t: count for t, count in missing.items() if t not in self._made})
            for topic, standing in mine.items():
                if standing.step is Step.GROW:
                    await self._grow(self._waiting[topic], standing.partitions)
                elif standing.step is Step.REPLACE:
                    self._may_create.add(topic)
                    await self._delete(self._waiting[topic])
        finally:
            self._room.busy.difference_update(mine)

    async def _create(self, missing: Mapping[str, int]) -> None:
        """Replicated as the bases are; what cannot be so, as the brokers are set."""
        by_replication: dict[int, dict[str, int]] = {}
        for topic, count in missing.items():
            base = self._entries[self._waiting[topic].base]
            replicas = min((len(each.replica_nodes or ()) for each in base.partitions), default=0)
            by_replication.setdefault(replicas or broker_requests.DEFAULT_REPLICATION, {})[topic] = count
        for replicas, group in by_replication.items():
            told = await broker_requests.create(self._connection, group, replicas, self._timeout_s)
            again = {t: group[t] for t, (code, _) in told.items() if code == ErrorCode.INVALID_REPLICATION_FACTOR}
            if again and replicas != broker_requests.DEFAULT_REPLICATION:
                default = broker_requests.DEFAULT_REPLICATION
                told |= await broker_requests.create(self._connection, again, default, self._timeout_s)
            for topic, (code, text) in told.items():
                if code == ErrorCode.NONE:
                    self._room.notes("view-created", view=topic, partitions=group[topic])
                if code in _MAYBE:
                    self._made.add(topic)
                else:
                    reason = text or f"CreateTopics was answered with {ErrorCode.of(code).name}"
                    self._refuse(self._waiting[topic], ErrorCode.of(code), reason)

    async def _grow(self, name: ViewName, partitions: int) -> None:
        topic = name.topic
        code, text = await self._own_or_client(
            lambda asked: broker_requests.grow(asked, topic, partitions, self._timeout_s), _GROWN
        )
        if code == ErrorCode.NONE:
            self._room.notes("view-grown", view=topic, partitions=partitions)
        elif code not in _GROWN:
            reason = text or ErrorCode.of(code).name
            self._room.notes("view-not-grown", view=topic, partitions=partitions, reason=reason)
            await self._ready(name, len(self._entries[topic].partitions))

    async def _delete(self, name: ViewName) -> None:
        topic_id = bytes(self._entries[name.topic].topic_id)
        known = self._catalog.named(name.topic)
        if known is not None and known.topic_id == topic_id:
            self._catalog.forget(name.topic)
        self._made.discard(name.topic)
        code, text = await self._own_or_client(
            lambda asked: broker_requests.delete(asked, topic_id, self._timeout_s), _DELETED
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
        """Try under the proxy's own identity, then over the client's connection."""
        own = self._room.own
        if own is not None and own is not self._connection:
            try:
                code, text = await attempt(own)
            except ProxyError:
                pass  # it has none, or no broker answers it; the client's connection does
            else:
                if code in good:
                    return code, text
        return await attempt(self._connection)

    def _refuse(self, name: ViewName, code: ErrorCode, reason: str = "") -> None:
        topic = name.topic
        del self._waiting[topic]
        if code in _GONE:
            self._catalog.forget(topic)
        if reason:
            self._room.notes("view-refused", topic=topic, error=code.name, reason=reason)
        self._found[topic] = SeenView(code, name, self._entries.get(topic))

    def _give_up(self, steps: Mapping[str, Standing]) -> None:
        for topic, standing in steps.items():
            replaced = standing.step is Step.REPLACE
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if replaced else ErrorCode.LEADER_NOT_AVAILABLE
            reason = f"not ready within {self._room.options.create_wait_s:g} s ({standing.step.name.lower()})"
            self._refuse(self._waiting[topic], code, reason)


_Attempt = Callable[[Connection], Coroutine[Promise[Any], None, tuple[int, str]]]
