"""The commands `views ...`: made at the brokers under the identity of the settings; no proxy has to run.

What is changed here running proxies see: they follow `__proxy_views` and look at topics anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import trio
from rich.console import Console
from rich.table import Table

from proxy.app import tls_contexts, view_setup
from proxy.app.composition import own_settings
from proxy.app.config import Config
from proxy.app.view_migration import CannotMigrate, Migration, Sliced
from proxy.brokers.own_client import OwnClient
from proxy.brokers.own_client_connection import OwnPort, drive
from proxy.brokers.questions import TopicEntry, about_all_topics
from proxy.loop.trio_timers import TrioTimers
from proxy.views import broker_requests, state_records
from proxy.views.creation import SeenView, ViewCreation
from proxy.views.model.base_comparison import Step, cut_of, judge
from proxy.views.model.catalog import ViewCatalog
from proxy.views.model.names import BadViewName, ViewName, is_view, parse
from proxy.views.model.plans import Plan
from proxy.views.model.plans import read as read_plan
from proxy.views.state_topic import ViewTopic
from proxy.views.stored_state import ViewState
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode, ProxyError, error_name
from proxy.wire.values import Address

T = TypeVar("T")

LOOK_S = 1.0
DELETE_S = 10.0
WIDTH_ELSEWHERE = 400


class ViewsFailed(ProxyError):
    """A command did not do all it was told; the text says what is left."""


class Desk:
    """What a command works with."""

    def __init__(self, config: Config, nursery: trio.Nursery) -> None:
        self.config = config
        self.settings = own_settings(config, tls_contexts.towards_brokers(config.upstream.tls))
        self.catalog = ViewCatalog()
        self.reasons: dict[str, str] = {}
        """View -> why it was refused."""
        self.unread = ""
        """Why what is stored was not read at the last attempt."""
        self.client = self._client()
        self.port = OwnPort(self._client())
        self.store = ViewState(self.catalog, self._client, LOOK_S, self._note)
        self.keeper = ViewCreation(
            self.catalog, view_setup.options(config), self.store, TrioTimers(nursery), self._note
        )
        nursery.start_soon(self.port.run)
        nursery.start_soon(self.store.run)

    def _client(self) -> OwnClient:
        return OwnClient(self.config.upstream.bootstrap, self.settings, self.config.upstream.nodes)

    def _note(self, event: str, /, **context: Any) -> None:
        if event == "view-state-not-read":
            self.unread = f": {context['reason']}"
        topic = context.get("topic") or context.get("view")
        if topic is not None and "reason" in context:
            self.reasons[topic] = context["reason"]

    async def look(self, topics: Iterable[str], *, create: bool) -> dict[str, SeenView]:
        """Views as they are, made ready as far as that goes. Raises BadViewName."""
        names = [parse_view(topic, self.config.views.slots_max) for topic in topics]
        return await drive(self.keeper.look(self.port, names, create=create))

    async def all_views(self) -> tuple[list[str], dict[str, TopicEntry], dict[int, Address]]:
        """Names of all views there are, Metadata entries of all topics, where the brokers are."""
        answer, _ = await self.client.ask(ApiKey.METADATA, about_all_topics())
        entries = {topic.name: topic for topic in answer.topics or () if topic.name is not None}
        brokers = {
            broker.node_id: self.client.address_of(broker.node_id, Address(broker.host, broker.port))
            for broker in answer.brokers or ()
        }
        return sorted(name for name in entries if is_view(name)), entries, brokers

    async def stored(self) -> None:
        """Wait until what is stored has been read. Raises ViewsFailed where it cannot be."""
        synced = self.store.synced()
        done = trio.Event()
        synced.on_settled(done.set)
        with trio.move_on_after(self.config.views.create_wait_s) as scope:
            await done.wait()
        if scope.cancelled_caught or self.store.off:
            raise ViewsFailed(self.store.off or f"{state_records.TOPIC} cannot be read{self.unread}")

    async def keep(self, key: bytes, value: bytes | None) -> None:
        """Store a fact, for certain. Raises ProxyError."""
        stored = self.store.store(key, value)
        done = trio.Event()
        stored.on_settled(done.set)
        await done.wait()
        stored.result()


def parse_view(topic: str, slots_max: int) -> ViewName:
    """A view's name. Raises BadViewName, also for other topics."""
    name = parse(topic, slots_max)
    if name is None:
        raise BadViewName(f"{topic!r} is no view: write __view.r<slots>.<topic>, s<slots> or p<plan>")
    return name


@asynccontextmanager
async def desk(config: Config) -> AsyncIterator[Desk]:
    """Everything is closed at the end."""
    async with trio.open_nursery() as nursery:
        opened = Desk(config, nursery)
        try:
            yield opened
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await opened.client.aclose()


def run(config: Config, command: Callable[[Desk], Coroutine[Any, Any, T]]) -> T:
    """One command, from beginning to end. Raises ProxyError."""

    async def main() -> T:
        async with desk(config) as opened:
            return await command(opened)

    try:
        return trio.run(main)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from None


async def create(at: Desk, topics: Sequence[str]) -> list[str]:
    """Make views, or have those that exist follow their bases; a line for each. Raises ViewsFailed."""
    return _told(at, await at.look(topics, create=True))


async def grow(at: Desk, topics: Sequence[str]) -> list[str]:
    """Have views follow their bases, all there are if none is named. Raises ViewsFailed."""
    names = list(topics) or (await at.all_views())[0]
    wanted = [name for name in names if topics or _is_good(name)]
    return _told(at, await at.look(wanted, create=False))


def _is_good(topic: str) -> bool:
    try:
        return parse(topic) is not None
    except BadViewName:
        return False


def _told(at: Desk, sights: dict[str, SeenView]) -> list[str]:
    lines, failed = [], []
    for topic, sight in sorted(sights.items()):
        view = at.catalog.named(topic)
        if sight.code == ErrorCode.NONE and view is not None:
            lines.append(f"{topic}: {view.partitions} partitions, {view.slots} for each of {sight.name.base}")
            if at.reasons.get(topic):
                failed.append(f"{topic}: {at.reasons[topic]}")
        else:
            failed.append(f"{topic}: {at.reasons.get(topic) or error_name(sight.code)}")
    if failed:
        raise ViewsFailed("\n".join([*lines, *failed]))
    return lines


async def delete(at: Desk, topics: Sequence[str]) -> list[str]:
    """Delete views; offsets that groups have committed on them go too. Raises ViewsFailed."""
    for topic in topics:
        if not is_view(topic):
            raise BadViewName(f"{topic!r} is no view")
    entries = await drive(broker_requests.ask_topics(at.port, topics))
    lines, failed = [], []
    for topic in dict.fromkeys(topics):
        if entries[topic].error_code != ErrorCode.NONE:
            failed.append(f"{topic}: {error_name(entries[topic].error_code)}")
            continue
        code, text = await drive(broker_requests.delete(at.port, bytes(entries[topic].topic_id), DELETE_S))
        if code != ErrorCode.NONE:
            failed.append(f"{topic}: {text or error_name(code)}")
            continue
        with suppress(ViewsFailed):  # where nothing can be stored, nothing is
            await at.stored()
            if at.catalog.binding(topic) is not None:
                await at.keep(state_records.binding_key(topic), None)
        lines.append(f"{topic}: deleted")
    if failed:
        raise ViewsFailed("\n".join([*lines, *failed]))
    return lines


async def plan(at: Desk, plan_id: str, text: bytes, *, dry_run: bool) -> str:
    """Check a plan and store it. Raises BadPlan, ViewsFailed."""
    read = read_plan(plan_id, text)
    await at.stored()
    known = at.catalog.plan(plan_id)
    if known is not None and known.starts != read.starts:
        raise ViewsFailed(f"there is another plan {plan_id!r}, and plans never change: give this one another name")
    if known is None and not dry_run:
        await at.keep(state_records.plan_key(plan_id), state_records.plan_value(read))
        await _check_first(at, read)
    done = "is stored already" if known is not None else "would be stored" if dry_run else "is stored"
    return f"plan {plan_id} {done}: {read.slots} ranges; read it as __view.p{plan_id}.{read.topic or '<topic>'}"


async def _check_first(at: Desk, written: Plan) -> None:
    """Of two who store a plan of one name at the same time the first one wins, for good."""
    topic = ViewTopic(OwnClient(at.config.upstream.bootstrap, at.settings, at.config.upstream.nodes))
    try:
        key = state_records.plan_key(written.plan_id)
        values = [value for name, value in await topic.all() if name == key and value is not None]
    finally:
        await topic.aclose()
    if values and values[0] != state_records.plan_value(written):
        leader = await topic.leader()
        if leader is not None:
            await topic.append(leader, [(key, values[0])])
        await topic.aclose()
        raise ViewsFailed(f"somebody else stored another plan {written.plan_id!r} just now; it stays")


async def migrate(at: Desk, group: str, old: str, new: str, *, dry_run: bool) -> tuple[str, dict[int, int]]:
    """Let a group go on with another view of the same base; the new topic and its offsets. Raises CannotMigrate."""
    bases = {topic: _base(at, topic) for topic in (old, new)}
    if old == new or bases[old] != bases[new]:
        raise CannotMigrate(f"{old} and {new} are not two views of one topic")
    await at.stored()
    sights = await at.look([topic for topic in (old, new) if is_view(topic)], create=False)
    if is_view(new) and sights[new].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not dry_run:
        sights |= await at.look([new], create=True)
    _, entries, addresses = await at.all_views()
    base = entries.get(bases[old])
    for topic, sight in sights.items():
        if sight.code != ErrorCode.NONE and not (dry_run and topic == new):
            raise CannotMigrate(f"{topic}: {at.reasons.get(topic) or error_name(sight.code)}")
    if base is None:
        raise CannotMigrate(f"there is no topic {bases[old]}")
    migration = Migration(at.client, at.settings, group)
    sliced = Sliced(new, _slots(at, new))
    offsets = await migration.plan(Sliced(old, _slots(at, old)), sliced, base, addresses)
    if not dry_run:
        await migration.commit(sliced, offsets)
    return new, offsets


def _base(at: Desk, topic: str) -> str:
    name = parse(topic, at.config.views.slots_max)
    return topic if name is None else name.base


def _slots(at: Desk, topic: str) -> int:
    name = parse(topic, at.config.views.slots_max)
    if name is None:
        return 1
    stored = None if name.plan is None else at.catalog.plan(name.plan)
    if name.plan is not None and stored is None:
        raise CannotMigrate(f"there is no plan {name.plan!r}")
    return cut_of(name, stored).slots


async def listed(at: Desk) -> list[tuple[str, str, str, str]]:
    """(view, partitions, base partitions, state) of every view there is."""
    await at.stored()
    names, entries, _ = await at.all_views()
    return [_line(at, topic, entries) for topic in names]


def _line(at: Desk, topic: str, entries: Mapping[str, TopicEntry]) -> tuple[str, str, str, str]:
    there = str(len(entries[topic].partitions or ()))
    try:
        name = parse_view(topic, at.config.views.slots_max)
        slots = _slots(at, topic)
    except ProxyError as error:
        return topic, there, "-", str(error)
    base = broker_requests.seen(entries.get(name.base))
    standing = judge(
        slots, broker_requests.seen(entries[topic]), base, at.catalog.binding(topic), at.config.views.partitions_max
    )
    state = _STATES.get(standing.step) or standing.reason or f"{name.base}: {error_name(standing.code)}"
    return topic, there, str(base.partitions) if base.partitions else "-", state


_STATES = {
    Step.READY: "ready",
    Step.GROW: "its base has grown: views grow",
    Step.REPLACE: "belongs to an earlier topic of its base's name: views grow makes it anew",
}


def show_list(at: Desk, lines: Sequence[tuple[str, str, str, str]]) -> None:
    """Print views and plans."""
    console = Console()
    console = console if console.is_terminal else Console(width=WIDTH_ELSEWHERE)
    table = Table("VIEW", "PARTITIONS", "OF", "STATE", box=None, pad_edge=False)
    for line in lines:
        table.add_row(*line)
    console.print(table, markup=False)
    for each in at.catalog.plans:
        console.print(f"plan {each.plan_id}: {each.slots} ranges", markup=False, highlight=False)
