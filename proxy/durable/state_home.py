"""Where share groups live: takes their state over, reads it, serves it, and gives it up (durable/README.md).

Theory of operation. The group of proxies says which state partitions this proxy is to own (`Owner.assigned`). What is
new there is one *takeover*: see to the topic; take every partition of it over (`journal`); read each from its start to
the takeover (`replay`); fill the coordinator; open the gate. What is not ours any more is stopped: nobody is let in,
what is being stored is waited for, the gate is closed, its groups are forgotten, and the group of proxies is told.
Where one proxy owns everything there is one takeover of all partitions, and the loss of one is the loss of all.
Clients of everything else notice nothing of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

from proxy.brokers.channels import Links
from proxy.brokers.own_client import AuthenticationNeeded, OwnClient
from proxy.brokers.own_connection import AuthenticationFailed, OwnSettings
from proxy.durable import producer_expiration, replay
from proxy.durable.journal import TRANSACTIONAL_ID, TopicJournal
from proxy.durable.ownership import Owner, Takeover, refusal_of
from proxy.durable.partition_log import Replay
from proxy.durable.state_producer import TakenOver
from proxy.durable.state_topic import StateTopic, View
from proxy.fleet import links as fleet
from proxy.loop.interfaces import Notes
from proxy.loop.lasting_trouble import LastingTrouble
from proxy.loop.reactor import Reactor
from proxy.sharegroups import state_records
from proxy.sharegroups.services import ShareServices
from proxy.sharegroups.state_records import PARTITIONS
from proxy.wire.errors import ErrorCode, ProxyError, RemoteProtocolError, UpstreamLost
from proxy.wire.values import Address

T = TypeVar("T")

ALL = range(PARTITIONS)
RETRY_MIN_S, RETRY_MAX_S = 0.1, 5.0
"""After something that failed on the way to ownership."""
AGAIN_S = 1.0
"""After ownership was lost, before it is looked for again: two who fight for it do so slowly."""
PATIENCE_S = 3.0
"""Trouble that is over so soon, as it is while a topic is made or a leader moves, is not told."""
VIEW_PAUSE_S = 0.1
"""Between two looks for leaders."""
DRAIN_S = 0.5
"""What is being stored when a partition is to move is waited for so long."""
DRAIN_LOOK_S = 0.005
FORGOTTEN_AT_ONCE = 100
"""Groups forgotten in one go; then others get their turn."""


OWNED_ELSEWHERE = "share state is owned by another proxy"


class ShareHome:
    """Owns the journal's partitions while it runs."""

    def __init__(
        self,
        services: ShareServices,
        journal: TopicJournal,
        owner: Owner,
        client: Callable[[], OwnClient],
        settings: OwnSettings,
        reactor: Reactor,
        notes: Notes,
        *,
        links: fleet.Links | None = None,
    ) -> None:
        """`links`: to other proxies, which own what this one does not; None: one owns everything."""
        self.off = ""
        """What the proxy lacks to serve share groups, where everything else works without; a reason to go on."""
        self.trouble = "share state is not loaded yet"
        """Why share groups are not served; empty while they are."""
        self.loaded_s = 0.0
        """How long the last takeover and replay took."""
        self.served: set[int] = set()
        """State partitions whose groups are served here."""
        self._services = services
        self.journal = journal
        self._owner = owner
        self._client = client
        self._settings = settings
        self._reactor = reactor
        self._notes = notes
        self.links = links
        self._view = View({}, {})
        self._view_wanted = trio.Event()
        self._view_seen = trio.Event()
        self._changed = trio.Event()
        self._takeovers: dict[int, Takeover] = {}
        """Those under way, by each of their partitions."""
        self._lost: set[int] = set()
        """Partitions that somebody else has taken over, to be stopped."""
        self._retiring = False
        self._complaint = LastingTrouble(notes, "share-groups-off", "share-groups-on", patience_s=PATIENCE_S)
        self._no_view = LastingTrouble(notes, "state-view-failed", "state-view-found", patience_s=PATIENCE_S)
        services.gate.lease = owner.is_valid
        owner.on_renewed = services.gate.look
        owner.on_refused = self._refused_ownership
        owner.on_changed = self._look_soon
        journal.need_view = lambda: self._view_wanted.set()
        journal.on_taken_over = self._taken_over
        journal.on_checking = self._checking
        journal.on_lost = self._partition_lost

    @property
    def why_not(self) -> str:
        """Why share groups are not served at this moment; empty while they are, or where they are off."""
        if self.off:
            return ""
        if not self.trouble and self._owner.assigned and not self._owner.is_valid():
            return "the group of proxies has not answered for a while"
        if self.links is not None and not self.trouble and self.links.missing:
            return f"no link to the proxies at {', '.join(self.links.missing)}"
        return self.trouble

    def state(self) -> dict[str, object]:
        """For /readyz."""
        told: dict[str, object] = {"state_partitions": len(self.served)}
        return told if self.links is None else told | {"linked_proxies": self.links.linked}

    def listen(self, address: Address) -> None:
        """Let other proxies of the fleet in. Raises OSError."""
        if self.links is not None:
            self.links.listen(address)

    async def run(self) -> None:
        """Own what is assigned, as long as it is, until cancelled."""
        async with trio.open_nursery() as nursery:
            journal = self.journal
            journal.links = Links(nursery, self._reactor, self._settings, self._notes, journal.look_soon)
            journal.links.on_unreachable = journal.unreachable
            nursery.start_soon(self._owner.run)
            if self.links is not None:
                nursery.start_soon(self.links.run)
            nursery.start_soon(self._follow_view)
            nursery.start_soon(self._prepare)
            try:
                await self._follow_assignment(nursery)
            finally:
                self._services.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the proxy stops")
                journal.links.close()

    async def retire(self) -> None:
        """Serve nobody any more; what is being stored is waited for. To be called before `run` is cancelled."""
        self._retiring = True
        await self._drain(self.served)
        self._services.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the proxy stops")

    # What is ours

    def _look_soon(self) -> None:
        self._changed.set()
        if self.links is not None:
            self.links.look_soon()

    async def _follow_assignment(self, nursery: trio.Nursery) -> None:
        while True:
            self._changed = trio.Event()
            wanted = self._owner.assigned
            held = self.served | self._takeovers.keys()
            lost, self._lost = self._lost, set()
            gone = held - wanted
            if gone - lost and wanted and self._owner.is_valid():
                await self._drain((gone - lost) & self.served)
            await self._give_up(gone | (lost & held))
            self._owner.stopped(gone)
            if lost:
                await trio.sleep(AGAIN_S)
            wanted = self._owner.assigned
            news = wanted - self.served - self._takeovers.keys()
            if self.links is not None and self._owner.is_member:
                others = set(ALL) - wanted
                self._services.gate.closing(others, ErrorCode.COORDINATOR_NOT_AVAILABLE, OWNED_ELSEWHERE)
            if news and not self._retiring:
                takeover = Takeover(set(news))
                self._takeovers.update(dict.fromkeys(news, takeover))
                nursery.start_soon(self._take_over, takeover)
            elif not wanted - self.served and self.links is not None and self._owner.is_member:
                self.trouble = ""
            if not self._lost:
                await self._changed.wait()

    async def _drain(self, partitions: Iterable[int]) -> None:
        """Let nobody in, and what is being stored be stored, for a bounded time."""
        moving = tuple(partitions)
        self._services.gate.closing(moving, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group moves to another proxy")
        with trio.move_on_after(DRAIN_S):
            while not self.journal.is_idle(moving):  # noqa: ASYNC110 - of the loop's doing, and short
                await trio.sleep(DRAIN_LOOK_S)

    async def _give_up(self, partitions: Iterable[int]) -> None:
        gone = set(partitions)
        if not gone:
            return
        reason = self.trouble or OWNED_ELSEWHERE
        self._services.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason, gone)
        self.served -= gone
        for takeover in {self._takeovers.pop(p) for p in gone & self._takeovers.keys()}:
            takeover.let_go(gone)
        await self._forget(gone)
        self.journal.stop(gone, ErrorCode.NOT_COORDINATOR, reason)
        self._notes("share-state-given-up", partitions=len(gone), left=len(self.served))

    async def _forget(self, partitions: set[int]) -> None:
        coordinator = self._services.coordinator
        if partitions.issuperset(ALL):
            coordinator.clear()
            return
        for count, group_id in enumerate(state_records.groups_in(coordinator, partitions)):
            coordinator.remove_group(group_id)
            coordinator.store_settings(group_id, {})
            if count % FORGOTTEN_AT_ONCE == FORGOTTEN_AT_ONCE - 1:
                await trio.lowlevel.checkpoint()

    # One takeover

    async def _take_over(self, takeover: Takeover) -> None:
        with takeover.scope:
            while True:
                try:
                    await self._load(takeover)
                    return await self._learn_periods()
                except ProxyError as error:
                    self._complain(error, takeover.partitions)
                self.journal.stop(
                    takeover.partitions, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "share state is not loaded"
                )
                await self._forget(takeover.partitions)
                await trio.sleep(RETRY_MAX_S)

    async def _load(self, takeover: Takeover) -> None:
        began = trio.current_time()
        gate = self._services.gate
        self._close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "share state is being loaded", takeover.partitions)
        for partition in takeover.partitions:
            gate.refused.pop(partition, None)
        await self._see_to_topic(takeover)
        for found in (takeover.taken, takeover.checking, takeover.replays):
            found.clear()
        self.journal.take_over(sorted(takeover.partitions))
        await self._wait_taken(takeover)
        taken_s = trio.current_time() - began
        await self._read(takeover)
        await self._fill(takeover)
        self._serve(takeover)
        self.loaded_s = trio.current_time() - began
        coordinator = self._services.coordinator
        self._notes(
            "share-state-loaded",
            groups=len(coordinator.groups),
            share_partitions=coordinator.resting,
            partitions=len(self.served),
            takeover_s=round(taken_s, 3),
            seconds=round(self.loaded_s, 3),
        )

    def _serve(self, takeover: Takeover) -> None:
        """All of it is loaded; nothing is waited for from here on, so that nothing can have changed."""
        gate, loaded = self._services.gate, set(takeover.partitions)
        for partition in loaded:
            del self._takeovers[partition]
        self.journal.serve(loaded)
        self.served |= loaded
        self.off = ""
        self._complaint.ended()
        if not self._takeovers:
            self.trouble = "; ".join(sorted(set(gate.refused.values())))
        if not self._retiring:
            gate.open(loaded)

    def _close(self, code: ErrorCode, reason: str, partitions: Iterable[int] = ALL) -> None:
        self.trouble = reason
        self._services.gate.standby = ""
        self._services.gate.close(code, reason, partitions)

    # Steps

    async def _see_to_topic(self, takeover: Takeover) -> None:
        """Until the topic is there and every partition has a leader."""
        client = self._client()
        try:
            topic = StateTopic(client)
            await self._see_to(topic, takeover)
            await self._learn_sizes(topic)
        finally:
            await client.aclose()

    async def _see_to(self, topic: StateTopic, takeover: Takeover) -> None:
        delay = RETRY_MIN_S
        while True:
            try:
                view = await topic.view()
                if view is None:
                    await self._create(topic)
                elif view.is_whole:
                    self._view = view
                    self._view_wanted.set()
                    return
            except ProxyError as error:
                self._complain(error, takeover.partitions)
                delay = max(delay, 1.0)
            await trio.sleep(delay)
            delay = min(2 * delay, RETRY_MAX_S)

    async def _create(self, topic: StateTopic) -> None:
        if await topic.create():
            self._notes("state-topic-created", topic=state_records.TOPIC)

    async def _prepare(self) -> None:
        """Have made what a first start needs, while the group of proxies forms: that takes some seconds.

        Trouble is for whoever takes over to find again, and to tell.
        """
        client = self._client()
        topic = StateTopic(client)
        try:
            if await topic.view() is None:
                await self._create(topic)
            self._view_wanted.set()  # asking for the coordinators makes the brokers make the topic of transactions
        except ProxyError:
            return
        finally:
            await client.aclose()

    async def _learn_sizes(self, topic: StateTopic) -> None:
        """How large a record batch may be; asked at every takeover, since it may be set anew."""
        size = await topic.message_bytes(self._notes)
        self.journal.limit_batches(size)
        self._services.coordinator.bound_records(size)

    async def _learn_periods(self) -> None:
        """How soon the brokers forget who writes; asked at every takeover, since it may be set anew."""
        own = self._services.own
        if own is not None and self._view.leaders:
            node_id = min(self._view.leaders.values())
            self.journal.keep_alive(*await producer_expiration.periods(own, node_id, self._notes))

    def _complain(self, error: ProxyError, partitions: Iterable[int] = ALL) -> None:
        code, text, needs_identity = refusal_of(error)
        self.off = text if needs_identity else ""
        self._complaint.happened(text, patient=code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._close(code, text, partitions)

    async def _wait_taken(self, takeover: Takeover) -> None:
        """Until every partition has its takeover record in the log."""
        while len(takeover.taken) < len(takeover.partitions):
            takeover.changed = trio.Event()
            if takeover.checking and len(takeover.taken) + len(takeover.checking) == len(takeover.partitions):
                await self._check(takeover, sorted(takeover.checking))
                continue
            await takeover.changed.wait()

    async def _check(self, takeover: Takeover, partitions: list[int]) -> None:
        """Partitions to be owned under a producer id that is new: is there an owner with another?"""
        ends = await self._insist(lambda: replay.ends(partitions, *self._where(), self._settings), takeover)
        replays = {p: Replay(state_records.reign_of, ends[p] - 1) for p in partitions if ends[p] > 0}
        await self._insist(lambda: replay.read(replays, *self._where(), self._settings), takeover)
        if any(each.reign is not None for each in replays.values()):
            self._notes("share-state-old-owner", reason="waiting until an earlier owner has stopped by its own clock")
            await trio.sleep(self._owner.lease_s)
        takeover.checking.difference_update(partitions)
        for partition in takeover.partitions.intersection(partitions):
            self.journal.proceed(partition)

    async def _read(self, takeover: Takeover) -> None:
        takeover.replays = {p: Replay(state_records.reign_of, taken.offset) for p, taken in takeover.taken.items()}
        await self._insist(lambda: self._read_on(takeover), takeover)

    async def _read_on(self, takeover: Takeover) -> None:
        try:
            await replay.read(takeover.replays, *self._where(), self._settings)
        except RemoteProtocolError as error:
            await self._read_each(takeover, error)

    async def _read_each(self, takeover: Takeover, error: RemoteProtocolError) -> None:
        """Something cannot be read: which partition is it?"""
        refused = False
        for partition, each in list(takeover.replays.items()):
            try:
                await replay.read({partition: each}, *self._where(), self._settings)
            except RemoteProtocolError as own_error:
                self._refuse(takeover, partition, own_error)
                refused = True
        if not refused:
            raise error

    async def _fill(self, takeover: Takeover) -> None:
        coordinator = self._services.coordinator
        for partition, each in list(takeover.replays.items()):
            if partition not in takeover.partitions:
                continue  # given up meanwhile
            if each.ignored:
                self._notes("share-state-ignored", partition=partition, batches=each.ignored)
            try:
                state_records.load(coordinator, each.values.items())
            except RemoteProtocolError as error:
                self._refuse(takeover, partition, error)
            if superfluous := each.superfluous():
                self.journal.forget_keys(partition, superfluous)
            await trio.lowlevel.checkpoint()
        takeover.replays = {}

    def _refuse(self, takeover: Takeover, partition: int, error: RemoteProtocolError) -> None:
        takeover.replays.pop(partition, None)
        self._services.gate.refused[partition] = f"state partition {partition} cannot be read here: {error}"
        self._notes("share-state-unreadable", partition=partition, reason=str(error))

    async def _insist(self, attempt: Callable[[], Awaitable[T]], takeover: Takeover) -> T:
        """Again and again until it succeeds; brokers come back, leaders are found."""
        delay = RETRY_MIN_S
        while True:
            try:
                return await attempt()
            except (UpstreamLost, AuthenticationFailed) as error:
                self._complain(error, takeover.partitions)
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
        elif not self.served:
            self._close(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
            self._services.gate.standby = reason if error is None else ""

    def _taken_over(self, partition: int, outcome: TakenOver) -> None:
        takeover = self._takeovers.get(partition)
        if takeover is not None:
            takeover.taken.setdefault(partition, outcome)
            takeover.note()

    def _checking(self, partition: int) -> None:
        takeover = self._takeovers.get(partition)
        if takeover is not None:
            takeover.checking.add(partition)
            takeover.note()

    def _partition_lost(self, partition: int, code: ErrorCode) -> None:
        """Somebody else has taken over: nothing may be answered from here on. -1: a fault of ours, all is lost."""
        self._notes("share-state-lost", partition=partition, reason=f"another proxy took over ({code.name})")
        lost = {partition} if self.links is not None and partition >= 0 else set(ALL)
        reason = "share state was taken over by another proxy"
        self._close(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason, lost)
        self._lost |= lost
        self._look_soon()

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
                    self._no_view.happened(str(error))
                    if self._takeovers:
                        self._complain(error, self._takeovers.keys())
                else:
                    self._no_view.ended()
                self.journal.look_soon()
                self._view_seen.set()
                await trio.sleep(VIEW_PAUSE_S)
        finally:
            await client.aclose()

    async def _look(self, topic: StateTopic) -> None:
        journal = self.journal
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
