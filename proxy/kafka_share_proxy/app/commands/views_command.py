"""Commands `views ...`, executed on the brokers under the identity of the settings, without a running proxy.

Running proxies see the changes: they follow `__proxy_views` and query topics again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import trio
from rich.table import Table

from kafka_share_proxy.app.commands import at_brokers, terminal, view_groups
from kafka_share_proxy.app.commands.terminal import cell, printable
from kafka_share_proxy.app.commands.view_migration import CannotMigrate, Migration, Sliced
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.brokers.cluster_client_connection import ClusterClientConnection, drive
from kafka_share_proxy.brokers.open_nodes import OpenNodes
from kafka_share_proxy.brokers.queries import TopicEntry, about_all_topics
from kafka_share_proxy.loop.trio_timers import TrioTimers
from kafka_share_proxy.loop.trio_waiting import until_settled
from kafka_share_proxy.views import broker_requests, state_records
from kafka_share_proxy.views.creation import Missing, ViewCreation, ViewOutcome
from kafka_share_proxy.views.model.base_comparison import Step, cut_of, needed_step
from kafka_share_proxy.views.model.catalog import ViewCatalog
from kafka_share_proxy.views.model.names import BadViewName, ViewName, is_view, parse
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.views.model.plans import read as read_plan
from kafka_share_proxy.views.state_topic import ViewTopic
from kafka_share_proxy.views.stored_state import ViewState
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, error_name
from kafka_share_proxy.wire.values import Address

T = TypeVar("T")

CHECK_S = 1.0
"""Seconds between two lookups of the topic with the stored facts."""
DELETE_S = 10.0
"""Maximum seconds for the deletion of a topic."""


class ViewsFailed(ProxyError):
    """A command did not complete. The text names what is left to do."""


class ViewsSession:
    """Connections of one command to the brokers, and the stored facts about views."""

    def __init__(self, config: Config, nursery: trio.Nursery) -> None:
        self.config = config
        self.catalog = ViewCatalog()
        self.reasons: dict[str, str] = {}
        """View -> reason for its refusal."""
        self.unread = ""
        """Reason why the stored records were not read at the last attempt."""
        new_client = partial(at_brokers.cluster_client, config)
        self.nodes = OpenNodes(new_client())
        self.connection = ClusterClientConnection(new_client())
        self.state = ViewState(self.catalog, new_client, CHECK_S, self._note)
        self.creation = ViewCreation(self.catalog, config.views, self.state, TrioTimers(nursery), self._note)
        nursery.start_soon(self.connection.run)
        nursery.start_soon(self.state.run)

    def _note(self, event: str, /, **context: Any) -> None:
        if event == "view-state-not-read":
            self.unread = f": {context['reason']}"
        topic = context.get("topic") or context.get("view")
        if topic is not None and "reason" in context:
            self.reasons[topic] = context["reason"]

    async def prepare(self, topics: Iterable[str], *, missing: Missing) -> dict[str, ViewOutcome]:
        """Make views ready as far as possible. Raises BadViewName."""
        names = [parse_view(topic, self.config.views.slots_max) for topic in topics]
        return await drive(self.creation.prepare(self.connection, names, missing=missing))

    async def all_views(self) -> tuple[list[str], dict[str, TopicEntry], dict[int, Address]]:
        """Return the names of all views, the Metadata entries of all topics, and the addresses of the brokers."""
        response, _ = await self.nodes.client.send_request(ApiKey.METADATA, about_all_topics())
        entries = {topic.name: topic for topic in response.topics or () if topic.name is not None}
        brokers = self.nodes.client.broker_addresses(response)
        return sorted(name for name in entries if is_view(name)), entries, brokers

    async def until_read(self) -> None:
        """Wait until the stored records are read. Raises ViewsFailed if they cannot be."""
        synced = self.state.synced()
        with trio.move_on_after(self.config.views.create_wait_s) as scope:
            await until_settled(synced)
        if scope.cancelled_caught or self.state.off:
            raise ViewsFailed(self.state.off or f"{state_records.TOPIC} cannot be read{self.unread}")

    async def store_value(self, key: bytes, value: bytes | None) -> None:
        """Store a value durably. Raises ProxyError."""
        stored = self.state.store(key, value)
        await until_settled(stored)
        stored.result()


def parse_view(topic: str, slots_max: int) -> ViewName:
    """Return the view that a topic name names. Raises BadViewName if it names none."""
    name = parse(topic, slots_max)
    if name is None:
        raise BadViewName(f"{topic!r} is no view: write __view.r<slots>.<topic>, s<slots> or p<plan>")
    return name


@asynccontextmanager
async def open_session(config: Config) -> AsyncIterator[ViewsSession]:
    """Open a session, and close its connections at the end."""
    async with trio.open_nursery() as nursery:
        opened = ViewsSession(config, nursery)
        try:
            yield opened
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await opened.nodes.aclose()
                await opened.nodes.client.aclose()


def run(config: Config, command: Callable[[ViewsSession], Coroutine[Any, Any, T]]) -> T:
    """Run one command to its end. Raises ProxyError."""

    async def main() -> T:
        async with open_session(config) as opened:
            return await command(opened)

    return at_brokers.run(main)


async def create(session: ViewsSession, topics: Sequence[str]) -> list[str]:
    """Create views, and return a line for each. Raises ViewsFailed."""
    return _report(session, await session.prepare(topics, missing=Missing.CREATE))


async def grow(session: ViewsSession, topics: Sequence[str]) -> list[str]:
    """Make views follow their bases: all views if none is named. Raises ViewsFailed."""
    names = list(topics) or (await session.all_views())[0]
    valid_names = [name for name in names if topics or _is_valid_view(name)]
    return _report(session, await session.prepare(valid_names, missing=Missing.LEAVE))


def _is_valid_view(topic: str) -> bool:
    try:
        return parse(topic) is not None
    except BadViewName:
        return False


def _report(session: ViewsSession, outcomes: dict[str, ViewOutcome]) -> list[str]:
    lines, failed = [], []
    for topic, outcome in sorted(outcomes.items()):
        view = session.catalog.by_name(topic)
        if outcome.code == ErrorCode.NONE and view is not None:
            lines.append(f"{topic}: {view.partitions} partitions, {view.slots} for each of {outcome.name.base}")
            if session.reasons.get(topic):
                failed.append(f"{topic}: {session.reasons[topic]}")
        else:
            failed.append(f"{topic}: {session.reasons.get(topic) or error_name(outcome.code)}")
    if failed:
        raise ViewsFailed("\n".join([*lines, *failed]))
    return lines


async def delete(session: ViewsSession, topics: Sequence[str]) -> list[str]:
    """Delete views and what is stored about them, and return a line for each. Raises ViewsFailed."""
    for topic in topics:
        if not is_view(topic):
            raise BadViewName(f"{topic!r} is no view")
    entries = await drive(broker_requests.request_topics(session.connection, topics))
    lines, failed = [], []
    for topic in dict.fromkeys(topics):
        if entries[topic].error_code != ErrorCode.NONE:
            failed.append(f"{topic}: {error_name(entries[topic].error_code)}")
            continue
        code, text = await drive(broker_requests.delete(session.connection, bytes(entries[topic].topic_id), DELETE_S))
        if code != ErrorCode.NONE:
            failed.append(f"{topic}: {text or error_name(code)}")
            continue
        with suppress(ViewsFailed):  # if nothing can be stored, nothing is stored
            await session.until_read()
            if session.catalog.binding(topic) is not None:
                await session.store_value(state_records.binding_key(topic), None)
        lines.append(f"{topic}: deleted")
    if failed:
        raise ViewsFailed("\n".join([*lines, *failed]))
    return lines


async def plan(session: ViewsSession, plan_id: str, text: bytes, *, dry_run: bool) -> str:
    """Check a plan and store it. Raises BadPlan, ViewsFailed."""
    read = read_plan(plan_id, text)
    await session.until_read()
    stored = session.catalog.plan(plan_id)
    if stored is not None and stored.starts != read.starts:
        raise ViewsFailed(f"there is another plan {plan_id!r}, and plans never change: give this one another name")
    is_news = stored is None or (bool(read.weights) and stored.weights != read.weights)
    if is_news and not dry_run:
        merged = read if stored is None else replace(stored, weights=read.weights)
        await session.store_value(state_records.plan_key(plan_id), state_records.plan_value(merged))
        if stored is None:
            await _check_first(session, read)
    outcome = "would be stored" if dry_run else "is stored"
    if stored is not None:
        outcome = "is stored already" if not is_news else outcome + " with these weights"
    return f"plan {plan_id} {outcome}: {read.slots} ranges; read it as __view.p{plan_id}.{read.topic or '<topic>'}"


async def _check_first(session: ViewsSession, written: Plan) -> None:
    """Restore the first plan of this name, and raise ViewsFailed, if it is another writer's."""
    topic = ViewTopic(at_brokers.cluster_client(session.config))
    try:
        key = state_records.plan_key(written.plan_id)
        values = [value for name, value in await topic.read_all() if name == key and value is not None]
    finally:
        await topic.aclose()
    if values and values[0] != state_records.plan_value(written):
        leader = await topic.leader()
        if leader is not None:
            await topic.append(leader, [(key, values[0])])
        await topic.aclose()
        raise ViewsFailed(f"another client stored another plan {written.plan_id!r} just now; it stays")


async def migrate(
    session: ViewsSession, group: str, old: str, new: str, *, dry_run: bool
) -> tuple[str, dict[int, int]]:
    """Commit a group's start offsets on another view. Return the new topic and the offsets. Raises CannotMigrate."""
    bases = {topic: _base(session, topic) for topic in (old, new)}
    if old == new or bases[old] != bases[new]:
        raise CannotMigrate(f"{old} and {new} are not two views of one topic")
    await session.until_read()
    outcomes = await session.prepare([topic for topic in (old, new) if is_view(topic)], missing=Missing.LEAVE)
    if is_view(new) and outcomes[new].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not dry_run:
        outcomes |= await session.prepare([new], missing=Missing.CREATE)
    _, entries, _ = await session.all_views()
    base = entries.get(bases[old])
    for topic, outcome in outcomes.items():
        if outcome.code != ErrorCode.NONE and not (dry_run and topic == new):
            raise CannotMigrate(f"{topic}: {session.reasons.get(topic) or error_name(outcome.code)}")
    if base is None:
        raise CannotMigrate(f"there is no topic {bases[old]}")
    migration = Migration(session.nodes, group)
    sliced = Sliced(new, _slots(session, new))
    offsets = await migration.plan(Sliced(old, _slots(session, old)), sliced, base)
    if not dry_run:
        await migration.commit(sliced, offsets)
    return new, offsets


def _base(session: ViewsSession, topic: str) -> str:
    name = parse(topic, session.config.views.slots_max)
    return topic if name is None else name.base


def _slots(session: ViewsSession, topic: str) -> int:
    name = parse(topic, session.config.views.slots_max)
    if name is None:
        return 1
    stored = None if name.plan is None else session.catalog.plan(name.plan)
    if name.plan is not None and stored is None:
        raise CannotMigrate(f"there is no plan {name.plan!r}")
    return cut_of(name, stored).slots


@dataclass(frozen=True, slots=True)
class ViewList:
    """Result of `views list`."""

    views: Sequence[tuple[str, str, str, str]]
    """View, partitions, base partitions, state."""
    groups: Sequence[str]
    """A line for each group that reads a view."""


async def listed(session: ViewsSession) -> ViewList:
    """Return views, and the groups that read them. Raises ProxyError."""
    await session.until_read()
    names, entries, brokers = await session.all_views()
    groups = await view_groups.groups_on_views(session.nodes, brokers.values()) if names else []
    return ViewList(
        [_described(session, topic, entries) for topic in names],
        [each.line(_slots_of(session, each.view)) for each in groups],
    )


def _slots_of(session: ViewsSession, view: str) -> int:
    """Return the number of slots of a view. 1 if it is unknown."""
    try:
        return _slots(session, view)
    except ProxyError:
        return 1


def _described(session: ViewsSession, topic: str, entries: Mapping[str, TopicEntry]) -> tuple[str, str, str, str]:
    partitions = str(len(entries[topic].partitions or ()))
    try:
        name = parse_view(topic, session.config.views.slots_max)
        slots = _slots(session, topic)
    except ProxyError as error:
        return topic, partitions, "-", str(error)
    base = broker_requests.state_of(entries.get(name.base))
    needed = needed_step(
        slots,
        broker_requests.state_of(entries[topic]),
        base,
        session.catalog.binding(topic),
        session.config.views.partitions_max,
    )
    state = _STATES.get(needed.step) or needed.reason or f"{name.base}: {error_name(needed.code)}"
    return topic, partitions, str(base.partitions) if base.partitions else "-", state


_STATES = {
    Step.READY: "ready",
    Step.GROW: "its base has grown: views grow",
    Step.REPLACE: "belongs to an earlier topic of its base's name: views grow makes it anew",
}


def show_list(session: ViewsSession, listing: ViewList) -> None:
    """Print views, plans, and groups that read views."""
    console = terminal.console()
    table = Table("VIEW", "PARTITIONS", "OF", "STATE", box=None, pad_edge=False)
    for line in listing.views:
        table.add_row(*map(cell, line))
    console.print(table, markup=False)
    for each in session.catalog.plans:
        console.print(printable(f"plan {each.plan_id}: {each.slots} ranges"), markup=False, highlight=False)
    for text in listing.groups:
        console.print(printable(text), markup=False, highlight=False)
