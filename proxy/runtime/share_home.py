"""Where share groups live: takes their state over, reads it, serves it, and gives it up (decisions 20-22).

Theory of operation. One task goes round: wait until this proxy is to own the state; see to the topic; take every state
partition over (`journal`); read each from its start to the takeover (`replay`); fill the coordinator; open the gate.
Then wait until ownership or a state partition is lost, close the gate, forget everything, and begin again. Clients of
everything else notice nothing of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import trio

from proxy.apis import share_state
from proxy.apis.ports import Notes
from proxy.apis.services import Services
from proxy.apis.share_state import PARTITIONS
from proxy.cluster.producing import TakenOver
from proxy.cluster.replaying import Replay
from proxy.errors import ErrorCode, ProxyError, RemoteProtocolError, UpstreamLost
from proxy.runtime import replay
from proxy.runtime.client import AuthenticationNeeded, OwnClient
from proxy.runtime.journal import TRANSACTIONAL_ID, TopicJournal
from proxy.runtime.links import Links
from proxy.runtime.own_connection import AuthenticationFailed, OwnSettings
from proxy.runtime.reactor import Reactor
from proxy.runtime.state_topic import StateTopic, TopicRefused, View
from proxy.values import Address

T = TypeVar("T")

ALL = range(PARTITIONS)
RETRY_MIN_S, RETRY_MAX_S = 0.1, 5.0
"""After something that failed on the way to ownership."""
AGAIN_S = 1.0
"""After ownership was lost, before it is looked for again: two who fight for it do so slowly."""
VIEW_PAUSE_S = 0.1
"""Between two looks for leaders."""
REST_EVERY_S = 60.0
"""Between two looks for share partitions that nobody has used since the last."""


class Owner(Protocol):
    """Says who is to own the state partitions."""

    lease_s: float
    """The longest time that a lost owner goes on by its own clock."""
    on_renewed: Callable[[], None]
    on_refused: Callable[[str, ProxyError | None], None]

    async def run(self) -> None:
        """Take part until cancelled."""

    async def wait_owned(self) -> None:
        """Until this proxy is to own them."""

    async def wait_lost(self) -> None:
        """Until it is not any more."""

    def is_valid(self) -> bool:
        """Whether nobody else can have become the owner meanwhile."""


@dataclass(slots=True)
class _Takeover:
    """One attempt to own everything."""

    taken: dict[int, TakenOver] = field(default_factory=dict)
    checking: set[int] = field(default_factory=set)
    replays: dict[int, Replay] = field(default_factory=dict)
    changed: trio.Event = field(default_factory=trio.Event)

    def note(self) -> None:
        """Something came."""
        self.changed.set()


class ShareHome:
    """Owns the journal's partitions while it runs."""

    def __init__(
        self,
        services: Services,
        journal: TopicJournal,
        owner: Owner,
        client: Callable[[], OwnClient],
        settings: OwnSettings,
        reactor: Reactor,
        notes: Notes,
    ) -> None:
        self.off = ""
        """What the proxy lacks to serve share groups, where everything else works without; a reason to go on."""
        self.trouble = "share state is not loaded yet"
        """Why share groups are not served; empty while they are."""
        self.loaded_s = 0.0
        """How long the last takeover and replay took."""
        self._services = services
        self._journal = journal
        self._owner = owner
        self._client = client
        self._settings = settings
        self._reactor = reactor
        self._notes = notes
        self._view = View({}, {})
        self._view_wanted = trio.Event()
        self._view_seen = trio.Event()
        self._lost = trio.Event()
        self._takeover = _Takeover()
        services.gate.lease = owner.is_valid
        owner.on_renewed = services.gate.look
        owner.on_refused = self._refused_ownership
        journal.need_view = lambda: self._view_wanted.set()
        journal.on_taken_over = self._taken_over
        journal.on_checking = self._checking
        journal.on_lost = self._partition_lost

    @property
    def why_not(self) -> str:
        """Why share groups are not served at this moment; empty while they are, or where they are off."""
        if self.off:
            return ""
        if not self.trouble and not self._owner.is_valid():
            return "the group of proxies has not answered for a while"
        return self.trouble

    async def run(self) -> None:
        """Own, serve, lose, and again, until cancelled."""
        async with trio.open_nursery() as nursery:
            journal = self._journal
            journal.links = Links(nursery, self._reactor, self._settings, self._notes, journal.look_soon)
            journal.links.on_unreachable = journal.unreachable
            nursery.start_soon(self._owner.run)
            nursery.start_soon(self._follow_view)
            nursery.start_soon(self._rest)
            try:
                while True:
                    await self._owner.wait_owned()
                    await self._own()
                    await trio.sleep(AGAIN_S)
            finally:
                journal.links.close()

    # One round

    async def _own(self) -> None:
        self._lost = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_for_loss, nursery.cancel_scope)
            await self._load_in_the_end()
            await trio.sleep_forever()
        self._give_up()

    async def _watch_for_loss(self, scope: trio.CancelScope) -> None:
        async with trio.open_nursery() as nursery:

            async def first(wait: Callable[[], Awaitable[None]]) -> None:
                await wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(first, self._lost.wait)
            nursery.start_soon(first, self._owner.wait_lost)
        scope.cancel()

    async def _load_in_the_end(self) -> None:
        while True:
            try:
                return await self._load()
            except ProxyError as error:
                self._complain(error)
            self._journal.stop(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "share state is not loaded")
            self._services.coordinator.clear()
            await trio.sleep(RETRY_MAX_S)

    async def _load(self) -> None:
        began = trio.current_time()
        self._close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "share state is being loaded")
        self._services.gate.refused.clear()
        await self._see_to_topic()
        self._takeover = _Takeover()
        self._journal.take_over(ALL)
        await self._wait_taken()
        taken_s = trio.current_time() - began
        await self._read()
        await self._fill()
        self._journal.serve()
        self.loaded_s = trio.current_time() - began
        self.off = ""
        self.trouble = "; ".join(sorted(set(self._services.gate.refused.values())))
        self._services.gate.open()
        coordinator = self._services.coordinator
        self._notes(
            "share-state-loaded",
            groups=len(coordinator.groups),
            share_partitions=coordinator.resting,
            takeover_s=round(taken_s, 3),
            seconds=round(self.loaded_s, 3),
        )

    def _give_up(self) -> None:
        self._close(ErrorCode.COORDINATOR_NOT_AVAILABLE, self.trouble or "share state is owned by another proxy")
        self._services.coordinator.clear()
        self._journal.stop(ErrorCode.NOT_COORDINATOR, "share state is owned by another proxy")

    def _close(self, code: ErrorCode, reason: str) -> None:
        self.trouble = reason
        self._services.gate.close(code, reason)

    # Steps

    async def _see_to_topic(self) -> None:
        """Until the topic is there and every partition has a leader."""
        client = self._client()
        try:
            await self._see_to(StateTopic(client))
        finally:
            await client.aclose()

    async def _see_to(self, topic: StateTopic) -> None:
        delay = RETRY_MIN_S
        while True:
            try:
                view = await topic.view()
                if view is None:
                    await topic.create()
                    self._notes("state-topic-created", topic=share_state.TOPIC)
                elif view.is_whole:
                    self._view = view
                    self._view_wanted.set()
                    return
            except ProxyError as error:
                self._complain(error)
                delay = max(delay, 1.0)
            await trio.sleep(delay)
            delay = min(2 * delay, RETRY_MAX_S)

    def _complain(self, error: ProxyError) -> None:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        text, self.off = str(error), ""
        if isinstance(error, AuthenticationNeeded | AuthenticationFailed):
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            text = (
                "share groups are off: their state is kept in a topic (share_groups.state), for which the proxy needs "
                f"an identity of its own (upstream.sasl.*): {error}"
            )
            self.off = text
        elif isinstance(error, TopicRefused):
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            text = f"share groups are off: {error}"
        if self.trouble != text:
            self._notes("share-groups-off", reason=text)
        self._close(code, text)

    async def _wait_taken(self) -> None:
        """Until every partition has its takeover record in the log."""
        takeover = self._takeover
        while len(takeover.taken) < PARTITIONS:
            takeover.changed = trio.Event()
            if takeover.checking and len(takeover.taken) + len(takeover.checking) == PARTITIONS:
                await self._check(sorted(takeover.checking))
                continue
            await takeover.changed.wait()

    async def _check(self, partitions: list[int]) -> None:
        """Partitions to be owned under a producer id that is new: is there an owner with another?"""
        ends = await self._insist(lambda: replay.ends(partitions, *self._where(), self._settings))
        replays = {p: Replay(share_state.reign_of, ends[p] - 1) for p in partitions if ends[p] > 0}
        await self._insist(lambda: replay.read(replays, *self._where(), self._settings))
        if any(each.reign is not None for each in replays.values()):
            self._notes("share-state-old-owner", reason="waiting until an earlier owner has stopped by its own clock")
            await trio.sleep(self._owner.lease_s)
        self._takeover.checking.difference_update(partitions)
        for partition in partitions:
            self._journal.proceed(partition)

    async def _read(self) -> None:
        self._takeover.replays = {
            partition: Replay(share_state.reign_of, taken.offset) for partition, taken in self._takeover.taken.items()
        }
        await self._insist(self._read_on)

    async def _read_on(self) -> None:
        try:
            await replay.read(self._takeover.replays, *self._where(), self._settings)
        except RemoteProtocolError as error:
            await self._read_each(error)

    async def _read_each(self, error: RemoteProtocolError) -> None:
        """Something cannot be read: which partition is it?"""
        for partition, each in list(self._takeover.replays.items()):
            try:
                await replay.read({partition: each}, *self._where(), self._settings)
            except RemoteProtocolError as own_error:
                self._refuse(partition, own_error)
        if not self._services.gate.refused:
            raise error

    async def _fill(self) -> None:
        coordinator = self._services.coordinator
        for partition, each in self._takeover.replays.items():
            if each.ignored:
                self._notes("share-state-ignored", partition=partition, batches=each.ignored)
            try:
                share_state.load(coordinator, each.values.items())
            except RemoteProtocolError as error:
                self._refuse(partition, error)
            if superfluous := each.superfluous():
                self._journal.forget_keys(partition, superfluous)
            await trio.lowlevel.checkpoint()
        self._takeover.replays = {}

    def _refuse(self, partition: int, error: RemoteProtocolError) -> None:
        self._takeover.replays.pop(partition, None)
        self._services.gate.refused[partition] = f"state partition {partition} cannot be read here: {error}"
        self._notes("share-state-unreadable", partition=partition, reason=str(error))

    async def _insist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Again and again until it succeeds; brokers come back, leaders are found."""
        delay = RETRY_MIN_S
        while True:
            try:
                return await attempt()
            except (UpstreamLost, AuthenticationFailed) as error:
                self._complain(error)
            self._view_seen = trio.Event()
            self._view_wanted.set()
            await self._view_seen.wait()
            await trio.sleep(delay)
            delay = min(2 * delay, RETRY_MAX_S)

    def _where(self) -> tuple[dict[int, int], dict[int, Address]]:
        return self._view.leaders, self._view.addresses

    # What the owner and the journal tell

    def _refused_ownership(self, reason: str, error: ProxyError | None = None) -> None:
        if isinstance(error, AuthenticationNeeded | AuthenticationFailed):
            self._complain(error)
        elif self._services.gate.code != ErrorCode.NONE:
            self._close(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)

    def _taken_over(self, partition: int, outcome: TakenOver) -> None:
        self._takeover.taken.setdefault(partition, outcome)
        self._takeover.note()

    def _checking(self, partition: int) -> None:
        self._takeover.checking.add(partition)
        self._takeover.note()

    def _partition_lost(self, partition: int, code: ErrorCode) -> None:
        """Somebody else has taken over: nothing may be answered from here on."""
        self._notes("share-state-lost", partition=partition, reason=f"another proxy took over ({code.name})")
        self._close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "share state was taken over by another proxy")
        self._lost.set()

    # In the background

    async def _follow_view(self) -> None:
        """Find leaders and coordinators whenever the journal misses one."""
        client = self._client()
        topic = StateTopic(client)
        try:
            while True:
                await self._view_wanted.wait()
                self._view_wanted = trio.Event()
                try:
                    await self._look(topic)
                except ProxyError as error:
                    self._notes("state-view-failed", reason=str(error))
                    if self._services.gate.code != ErrorCode.NONE:
                        self._complain(error)
                self._journal.look_soon()
                self._view_seen.set()
                await trio.sleep(VIEW_PAUSE_S)
        finally:
            await client.aclose()

    async def _look(self, topic: StateTopic) -> None:
        journal = self._journal
        view = await topic.view()
        if view is not None:
            self._view = view
            journal.leaders = dict(view.leaders)
            if journal.links is not None:
                journal.links.addresses = dict(view.addresses)
        missing = [partition for partition in ALL if partition not in journal.coordinators]
        if missing:
            names = {f"{TRANSACTIONAL_ID}{partition}": partition for partition in missing}
            for name, node_id in (await topic.coordinators(names)).items():
                journal.coordinators[names[name]] = node_id

    async def _rest(self) -> None:
        while True:
            await trio.sleep(REST_EVERY_S)
            self._services.coordinator.rest_idle()
