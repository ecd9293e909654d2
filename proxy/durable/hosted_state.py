"""One state, as far as this proxy owns it: its partitions are taken over, read, served, and given up.

Theory of operation. `begin` starts one *takeover* of the partitions that are new here: see to the topic; take every
partition of it over (`journal`); read each from its start to the takeover (`replay`); have the feature hold what is
read; open the gate. What is stopped: nobody is let in, what is being stored is waited for (`close_doors`, `is_idle`);
then the gate is closed and the feature forgets (`give_up`). Which partitions, and when, is `state_home`'s to say; it
goes on at all states of the proxy at once, each at its own pace: one whose topic cannot be made keeps no other waiting.

A topic that somebody deletes is made anew, with a takeover of everything that is owned here: what it held is forgotten,
and the log says how much that was (durable/README.md rule 33).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import trio

from proxy.brokers.interfaces import OwnQuestions
from proxy.brokers.internal_topics import TopicLeaders, TopicRefused
from proxy.brokers.own_client import AuthenticationNeeded, OwnClient
from proxy.brokers.own_connection import AuthenticationFailed, OwnSettings
from proxy.brokers.replaced import SILENT_S, unless_replaced
from proxy.durable import producer_expiration, replay
from proxy.durable.described_state import HeldState
from proxy.durable.gate import StateGate
from proxy.durable.journal import TopicJournal
from proxy.durable.leader_watch import PATIENCE_S, LeaderWatch
from proxy.durable.ownership import Takeover, refusal_of
from proxy.durable.partition_log import Replay
from proxy.durable.state_producer import TakenOver
from proxy.durable.state_topic import StateTopic
from proxy.loop.interfaces import Notes
from proxy.loop.lasting_trouble import LastingTrouble
from proxy.wire.errors import ErrorCode, ProxyError, RemoteProtocolError, UpstreamLost

T = TypeVar("T")

RETRY_MIN_S, RETRY_MAX_S = 0.1, 5.0
"""After something that failed on the way to ownership."""
GONE_LOOKS = 5
"""So many looks in a row have to miss a topic: a broker that has just started may not know of it yet."""
LOOK_S = 10.0
"""A topic that was deleted and made anew while nothing is appended is noticed after this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAccess:
    """How brokers are asked, under the proxy's own identity."""

    client: Callable[[], OwnClient]
    """A client more, for one task."""
    settings: OwnSettings
    own: OwnQuestions | None
    """None: how soon brokers forget writers is not asked."""
    notes: Notes


class HostedState:
    """`served` are its partitions that are loaded here."""

    def __init__(self, journal: TopicJournal[Any], held: HeldState, gate: StateGate, access: BrokerAccess) -> None:
        self.state = state = journal.state
        self.journal = journal
        self.held = held
        self.gate = gate
        self.off = ""
        """What the proxy lacks to serve it, where everything else works without; a reason to go on."""
        self.trouble = f"{state.name} is not loaded yet"
        """Why it is not served; empty while it is."""
        self.loaded_s = 0.0
        """How long the last takeover and replay took."""
        self.served: set[int] = set()
        self.lease_s = 0.0
        """The longest time that an earlier owner goes on by its own clock."""
        self.on_lost: Callable[[int | None], None] = lambda _partition: None
        """Called with a partition that another proxy has taken over; None: a fault of ours ends all."""
        self.is_closing = False
        """The proxy stops: nobody is let in any more."""
        self._access = access
        self._notes = access.notes
        self._takeovers: dict[int, Takeover] = {}
        """Those under way, by each of their partitions."""
        self._filling = trio.Lock()
        """Held while a partition is loaded or forgotten: what is given up meanwhile does not come back."""
        self._leaders = LeaderWatch(state.topic, state.partitions, access.settings, access.notes, look_s=LOOK_S)
        self._leaders.on_seen = self._seen
        self._leaders.on_trouble = self._no_leaders
        self._leaders.on_looked = journal.look_soon
        self._leaders.on_missing = self._missing
        self._wanted: set[int] = set()
        """Partitions that were begun and not given up."""
        self._topic_id = b""
        """Of the topic that was taken over; empty: of none yet."""
        self._missed = 0
        """Looks in a row that did not find that one."""
        self._lost_topic = trio.Event()
        self._lost_why = ""
        off, on = state.served_event("off"), state.served_event("on")
        self._complaint = LastingTrouble(access.notes, off, on, patience_s=PATIENCE_S)
        journal.need_view = self._leaders.look_soon
        journal.on_taken_over = self._taken_over
        journal.on_checking = self._checking
        journal.on_lost = self._lost
        journal.on_denied = self._denied
        journal.on_went_back = self._went_back
        gate.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, self.trouble)

    @property
    def owned(self) -> set[int]:
        """Partitions that are served or being taken over."""
        return self.served | self._takeovers.keys()

    def of(self, numbers: Iterable[int]) -> set[int]:
        """Those of its partitions that belong to the owner of these numbers."""
        return {number for number in numbers if number < self.state.partitions}

    async def run(self) -> None:
        """Look for leaders and coordinators whenever the journal misses one, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._leaders.run, self._topic(), self._find_coordinators)
            while True:
                await self._lost_topic.wait()
                await self._begin_anew(nursery)

    async def prepare(self) -> None:
        """Have made what a first start needs, while the group of proxies forms: that takes some seconds.

        Trouble is for whoever takes over to find again, and to tell.
        """
        topic = self._topic()
        try:
            if await topic.leaders() is None:
                await self._create(topic)
            self._leaders.look_soon()  # asking for the coordinators makes the brokers make the topic of transactions
        except ProxyError:
            return
        finally:
            await topic.aclose()

    def _topic(self) -> StateTopic:
        return StateTopic(self._access.client(), self.state)

    # What is ours

    def begin(self, numbers: Iterable[int], nursery: trio.Nursery) -> None:
        """Take over the partitions of these numbers, until they are served or given up."""
        wanted = self.of(numbers)
        if wanted:
            if not self.owned:
                self._topic_id = b""
            self._wanted |= wanted
            takeover = Takeover(wanted)
            self._takeovers.update(dict.fromkeys(wanted, takeover))
            nursery.start_soon(self._take_over, takeover)

    def is_idle(self, numbers: Iterable[int]) -> bool:
        """Whether nothing is to be stored, or being stored, in those of these that are served."""
        return self.journal.is_idle(self.served.intersection(numbers))

    def close_doors(self, numbers: Iterable[int], reason: str) -> None:
        """Let nobody in; what is inside may finish."""
        self.gate.closing(self.of(numbers), ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)

    async def give_up(self, numbers: Iterable[int], reason: str) -> None:
        """Own these no more."""
        gone = self.of(numbers)
        if not gone:
            return
        reason = self.trouble or reason
        self._wanted -= gone
        self.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason, gone)
        await self._let_go(gone)
        self.journal.stop(gone, ErrorCode.NOT_COORDINATOR, reason)
        self._notes(self.state.event("given-up"), partitions=len(gone), left=len(self.served))

    def close(self, code: ErrorCode, reason: str, partitions: Iterable[int] | None = None, standby: str = "") -> None:
        """Let nothing in and nothing out. None: every partition. `standby`: who else serves, for people."""
        self.trouble = reason
        self.gate.standby = standby
        self.gate.close(code, reason, partitions)

    def complain(self, error: ProxyError, partitions: Iterable[int] | None = None) -> None:
        """Trouble on the way to ownership of these, or all."""
        code, text, needs_identity = refusal_of(error, self.state)
        self.off = text if needs_identity else ""
        self._complaint.happened(text, patient=code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self.close(code, text, partitions)

    async def _let_go(self, gone: set[int]) -> None:
        self.served -= gone
        for takeover in {self._takeovers.pop(p) for p in gone & self._takeovers.keys()}:
            takeover.let_go(gone)
        await self._forget(gone)

    async def _forget(self, partitions: Collection[int]) -> None:
        async with self._filling:
            await self.held.forget(partitions)

    # A topic that is gone

    async def _begin_anew(self, nursery: trio.Nursery) -> None:
        """Forget what the topic held and take over everything again that is still ours then."""
        reason, self._lost_topic = self._lost_why, trio.Event()
        gone = self.owned
        held = self.held.figures()
        self._notes(self.state.event("topic-lost"), topic=self.state.topic, reason=reason, partitions=len(gone), **held)
        self.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason, gone)
        self.journal.stop(gone, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason)
        await self._let_go(gone)
        self.begin(gone & self._wanted, nursery)

    def _missing(self) -> None:
        self._miss("the topic was deleted")

    def _miss(self, reason: str) -> None:
        """A look did not find the topic that was taken over."""
        if not self._topic_id or not self.owned:
            return
        self._missed += 1
        if self._missed >= GONE_LOOKS:
            self._lose_topic(reason)
        else:
            self._leaders.look_soon()

    def _went_back(self, partition: int) -> None:
        self._lose_topic(f"the log of partition {partition} is another one, or its end is lost")

    def _lose_topic(self, reason: str) -> None:
        self._missed, self._topic_id = 0, b""
        self._lost_why = reason
        self._lost_topic.set()

    # One takeover

    async def _take_over(self, takeover: Takeover) -> None:
        with takeover.scope:
            while True:
                try:
                    await self._load(takeover)
                    return await self._learn_periods()
                except ProxyError as error:
                    self.complain(error, takeover.partitions)
                reason = f"{self.state.name} is not loaded"
                self.journal.stop(takeover.partitions, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason)
                await self._forget(takeover.partitions)
                await trio.sleep(RETRY_MAX_S)

    async def _load(self, takeover: Takeover) -> None:
        began = trio.current_time()
        reason = f"{self.state.name} is being loaded"
        self.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason, takeover.partitions)
        for partition in takeover.partitions:
            self.gate.refused.pop(partition, None)
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
        self._notes(
            self.state.event("loaded"),
            **self.held.figures(),
            partitions=len(self.served),
            takeover_s=round(taken_s, 3),
            seconds=round(self.loaded_s, 3),
        )

    def _serve(self, takeover: Takeover) -> None:
        """All of it is loaded; nothing is waited for from here on, so that nothing can have changed."""
        loaded = set(takeover.partitions)
        for partition in loaded:
            del self._takeovers[partition]
        self.journal.serve(loaded)
        self.served |= loaded
        self.off = ""
        self._complaint.ended()
        if not self._takeovers:
            self.trouble = "; ".join(sorted(set(self.gate.refused.values())))
        if not self.is_closing:
            self.gate.open(loaded)

    async def _see_to_topic(self, takeover: Takeover) -> None:
        """Until the topic is there and every partition has a leader."""
        topic = self._topic()
        try:
            await self._see_to(topic, takeover)
            await self._learn_sizes(topic)
        finally:
            await topic.aclose()

    async def _see_to(self, topic: StateTopic, takeover: Takeover) -> None:
        delay = RETRY_MIN_S
        while True:
            try:
                view = await topic.leaders()
                if view is None:
                    await self._create(topic)
                elif view.is_whole:
                    self._topic_id = self._topic_id or view.topic_id
                    self._leaders.learn(view)
                    self._leaders.look_soon()
                    return
            except ProxyError as error:
                self.complain(error, takeover.partitions)
                delay = max(delay, 1.0)
            await trio.sleep(delay)
            delay = min(2 * delay, RETRY_MAX_S)

    async def _create(self, topic: StateTopic) -> None:
        if await topic.create():
            self._notes("state-topic-created", topic=self.state.topic)

    async def _learn_sizes(self, topic: StateTopic) -> None:
        """How large a record batch may be; asked at every takeover, since it may be set anew."""
        size = await topic.message_bytes(self._notes)
        self.journal.limit_batches(size)
        self.held.limit_records(size)

    async def _learn_periods(self) -> None:
        """How soon the brokers forget who writes; asked at every takeover, since it may be set anew."""
        own, leaders = self._access.own, self._leaders.view.leaders
        if own is not None and leaders:
            self.journal.keep_alive(*await producer_expiration.periods(own, min(leaders.values()), self._notes))

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
        ends = await self._insist(lambda: replay.ends(partitions, self._leaders.place), takeover)
        replays = {p: Replay(self.state.reign_of, ends[p] - 1) for p in partitions if ends[p] > 0}
        try:
            await self._insist(lambda: replay.read(replays, self._leaders.place), takeover)
            was_owned = any(each.reign is not None for each in replays.values())
        except RemoteProtocolError:  # which partition it is shows when they are read to be loaded
            was_owned = True
        if was_owned:
            reason = "waiting until an earlier owner has stopped by its own clock"
            self._notes(self.state.event("old-owner"), reason=reason)
            await trio.sleep(self.lease_s)
        takeover.checking.difference_update(partitions)
        for partition in takeover.partitions.intersection(partitions):
            self.journal.proceed(partition)

    async def _read(self, takeover: Takeover) -> None:
        takeover.replays = {p: Replay(self.state.reign_of, taken.offset) for p, taken in takeover.taken.items()}
        await self._insist(lambda: self._read_on(takeover), takeover)

    async def _read_on(self, takeover: Takeover) -> None:
        try:
            await replay.read(takeover.replays, self._leaders.place)
        except RemoteProtocolError as error:
            await self._read_each(takeover, error)

    async def _read_each(self, takeover: Takeover, error: RemoteProtocolError) -> None:
        """Something cannot be read: which partition is it?"""
        refused = False
        for partition, each in list(takeover.replays.items()):
            try:
                await replay.read({partition: each}, self._leaders.place)
            except RemoteProtocolError as own_error:
                self._refuse(takeover, partition, own_error)
                refused = True
        if not refused:
            raise error

    async def _fill(self, takeover: Takeover) -> None:
        for partition in list(takeover.replays):
            async with self._filling:
                each = takeover.replays.pop(partition, None)  # what is loaded is in memory once
                if each is not None and partition in takeover.partitions:  # and not given up meanwhile
                    await self._load_partition(takeover, partition, each)

    async def _load_partition(self, takeover: Takeover, partition: int, each: Replay) -> None:
        if each.ignored:
            self._notes(self.state.event("ignored"), partition=partition, batches=each.ignored)
        try:
            await self.held.load(each.values.items())
        except RemoteProtocolError as error:
            self._refuse(takeover, partition, error)
        if partition in takeover.partitions and (superfluous := each.superfluous()):
            self.journal.forget_keys(partition, superfluous)

    def _refuse(self, takeover: Takeover, partition: int, error: RemoteProtocolError) -> None:
        takeover.replays.pop(partition, None)
        self.gate.refused[partition] = f"state partition {partition} cannot be read here: {error}"
        self._notes(self.state.event("unreadable"), partition=partition, reason=str(error))

    async def _insist(self, attempt: Callable[[], Awaitable[T]], takeover: Takeover) -> T:
        """Again and again until it succeeds; brokers come back, leaders are found."""
        delay = RETRY_MIN_S
        while True:
            try:
                led = {p: node for p, node in self._leaders.view.leaders.items() if p in takeover.partitions}
                moved = partial(self._leaders.is_led_elsewhere, led)
                return await unless_replaced(attempt, moved, look_s=SILENT_S)
            except (UpstreamLost, AuthenticationFailed) as error:
                self.complain(error, takeover.partitions)
            await self._leaders.look()
            await trio.sleep(delay)
            delay = min(2 * delay, RETRY_MAX_S)

    # What the journal tells

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

    def _denied(self, partition: int, code: ErrorCode) -> None:
        """Nobody will own it before somebody gives the right: whoever waits is told so."""
        needed = (
            f"it needs WRITE on topic {self.state.topic} and on transactional ids {self.state.transactional_prefix}*"
        )
        error = TopicRefused(f"the proxy's own identity may not keep their state ({code.name}): {needed}")
        self.complain(error, [partition])
        self.gate.denied = self.trouble

    def _lost(self, partition: int, code: ErrorCode) -> None:
        """Somebody else has taken over: nothing may be answered from here on. -1: a fault of ours, all is lost."""
        self._notes(self.state.event("lost"), partition=partition, reason=f"another proxy took over ({code.name})")
        self.on_lost(partition if partition >= 0 else None)

    # Leaders and coordinators

    def _seen(self, view: TopicLeaders) -> None:
        if view.leaders and view.topic_id == self._topic_id:
            self._missed = 0
        elif view.leaders:
            self._miss("the topic was deleted and made anew")
        self.journal.leaders = dict(view.leaders)
        if self.journal.links is not None:
            self.journal.links.addresses = dict(view.addresses)

    def _no_leaders(self, error: ProxyError) -> None:
        if self._takeovers:
            self.complain(error, self._takeovers.keys())

    async def _find_coordinators(self, topic: StateTopic) -> None:
        known = self.journal.coordinators
        missing = {self.state.transactional_id(p): p for p in self.state.all if p not in known}
        if missing:
            for name, node_id in (await topic.coordinators(missing)).items():
                known[missing[name]] = node_id


def lacks_identity(error: ProxyError | None) -> bool:
    """Whether brokers want an identity that the proxy does not have, or refuse the one it has."""
    return isinstance(error, AuthenticationNeeded | AuthenticationFailed)
