"""One state as far as this proxy owns it: its partitions are taken over, read, served, and given up.

`begin` starts one *takeover* of newly assigned partitions (durable/README.md rules 13 to 17, 31 and 33). To give
partitions up, `close_doors` rejects new requests, the caller waits until `is_idle`, and `give_up` closes the gate and
lets the feature forget. `state_home` decides which partitions, and when, for all states.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import aclosing
from functools import partial
from typing import Any

import trio

from kafka_share_proxy.brokers.internal_topics import TopicLeaders, TopicRefused
from kafka_share_proxy.durable import producer_expiration, restored_state
from kafka_share_proxy.durable.described_state import DescribedState, HeldState
from kafka_share_proxy.durable.gate import StateGate
from kafka_share_proxy.durable.journal import TopicJournal
from kafka_share_proxy.durable.journal_events import JournalEvents
from kafka_share_proxy.durable.leader_watch import PATIENCE_S, LeaderWatch
from kafka_share_proxy.durable.ownership import Takeover, refusal_of
from kafka_share_proxy.durable.partition_log import Replay
from kafka_share_proxy.durable.prepared_topic import PreparedTopic
from kafka_share_proxy.durable.producer_requests import TakenOver
from kafka_share_proxy.durable.state_host import StateHost
from kafka_share_proxy.durable.state_topic import StateTopic
from kafka_share_proxy.durable.takeover_reader import TakeoverReader
from kafka_share_proxy.durable.topic_guard import TopicGuard
from kafka_share_proxy.loop import faults
from kafka_share_proxy.loop.lasting_trouble import LastingTrouble
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, RemoteProtocolError

ABSENT_CHECKS = 5
"""Lookups without a topic before it counts as deleted: a broker that has just started may not know it."""
AGAIN_S = 5.0
"""Seconds after which a takeover that failed begins again."""
NOT_REQUESTED_S = 1.0
"""Seconds after which partitions without requests are taken over, while clients use others."""
CHECK_S = 10.0
"""Seconds between two lookups of the topic."""


class HostedState:
    """One state of this proxy. `served`: its partitions that are loaded."""

    def __init__(self, state: DescribedState[Any], held: HeldState, gate: StateGate, host: StateHost) -> None:
        """`held`: records of the state in memory. `gate`: gate at which requests wait for it."""
        self.state, self.held, self.gate = state, held, gate
        self.off = ""
        """Empty if the proxy has what it needs to serve the state."""
        self.trouble = f"{state.name} is not loaded yet"
        """Empty while the state is served."""
        self.loaded_s = 0.0
        """Seconds of the last takeover."""
        self.served: set[int] = set()
        self.is_closing = False
        self._host = host
        self._access = host.access
        self._notes = host.access.notes
        self._takeovers: dict[int, Takeover] = {}
        self._load_lock = trio.Lock()
        """Lock of loads: a load must not restore partitions that are given up meanwhile."""
        self._assigned: set[int] = set()
        self._topic_id = b""
        """Empty before the first takeover."""
        self._topic_lost = trio.Event()
        """Set when all partitions must be taken over again."""
        self._lost_reason = ""
        self._restores = False
        """True if the records in memory are then written to the topic, instead of loaded."""
        self._missing_lookups = 0
        """Number of lookups without the topic since the last one with it."""
        off, on = state.served_event("off"), state.served_event("on")
        self._complaint = LastingTrouble(self._notes, off, on, patience_s=PATIENCE_S)
        self._leaders = self._new_leader_watch()
        self.guard = TopicGuard(
            state.topic,
            self._notes,
            on_unsafe=self._on_unsafe,
            on_corrected=lambda: self._open(self.served),
            on_deleted=partial(self._lose_topic, restores=True),
        )
        self.journal: TopicJournal[Any] = TopicJournal(
            state, host.reactor, self._notes, host.name, host.channels, self._journal_events()
        )
        self._topic = PreparedTopic(state, host.access, self._leaders, self.guard, self.journal, held)
        gate.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, self.trouble)
        gate.on_requested = self._on_requested

    def _new_leader_watch(self) -> LeaderWatch:
        return LeaderWatch(
            self.state.topic,
            self.state.partitions,
            self._access.settings,
            self._notes,
            check_s=CHECK_S,
            on_leaders=self._on_leaders,
            on_trouble=self._on_lookup_failed,
            on_refreshed=lambda: self.journal.check_soon(),
            on_missing=partial(self._count_missing, "the topic was deleted"),
        )

    def _journal_events(self) -> JournalEvents:
        return JournalEvents(
            need_view=self._leaders.check_soon,
            taken_over=self._on_taken_over,
            checking=self._on_new_producer_id,
            lost=self._on_lost,
            denied=self._on_denied,
            went_back=self._on_log_changed,
        )

    @property
    def owned(self) -> set[int]:
        """Partitions that are served or taken over."""
        return self.served | self._takeovers.keys()

    def partitions_of(self, numbers: Iterable[int]) -> set[int]:
        """Return the partitions of this state with these numbers."""
        return {number for number in numbers if number < self.state.partitions}

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._leaders.run, self._topic.open(), self._on_refreshed)
            while True:
                await self._topic_lost.wait()
                await self._begin_anew(nursery)

    async def prepare(self) -> None:
        """Prepare while the group of proxies forms, which takes some seconds. The takeover reports errors."""
        await self._topic.prepare()

    # Ownership

    def begin(
        self, numbers: Iterable[int], nursery: trio.Nursery, *, restores: bool = False, has_clients: bool = False
    ) -> None:
        """Take over partitions. `restores`, `has_clients`: see Takeover."""
        partitions = self.partitions_of(numbers)
        if partitions:
            if not self.owned:
                self._topic_id = b""
            self._assigned |= partitions
            self._nursery = nursery
            self._begin(Takeover(partitions, restores, has_clients))

    def _begin(self, takeover: Takeover) -> None:
        self._takeovers.update(dict.fromkeys(takeover.partitions, takeover))
        self._nursery.start_soon(self._run_takeover, takeover)

    def _on_requested(self, partitions: Collection[int]) -> None:
        """Take these partitions over in addition to the current ones, for which brokers may need long."""
        under_way = {self._takeovers[partition] for partition in partitions if partition in self._takeovers}
        for takeover in under_way:
            urgent = takeover.split_off(partitions)
            if urgent is None:
                takeover.notify()
            else:
                self._begin(urgent)

    def is_idle(self, numbers: Iterable[int]) -> bool:
        """True if none of the served partitions has a request in progress, or an append queued or in flight."""
        served = self.served.intersection(numbers)
        return self.gate.is_idle(served) and self.journal.is_idle(served)

    def close_doors(self, numbers: Iterable[int], reason: str) -> None:
        """Reject new requests for these partitions. Those in progress may finish."""
        self.gate.closing(self.partitions_of(numbers), ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)

    async def give_up(self, numbers: Iterable[int], reason: str) -> None:
        """Release ownership of these partitions: end their requests and appends, and drop their records from memory."""
        released = self.partitions_of(numbers)
        if not released:
            return
        reason = self.trouble or reason
        self._assigned -= released
        self.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason, released)
        await self._drop(released)
        self.journal.stop(released, ErrorCode.NOT_COORDINATOR, reason)
        self._notes(self.state.event("given-up"), partitions=len(released), left=len(self.served))

    def close(self, code: ErrorCode, reason: str, partitions: Iterable[int] | None = None, standby: str = "") -> None:
        """Stop serving partitions, or all of them if None. `standby`: the proxy that serves them."""
        self.trouble = reason
        self.gate.standby = standby
        self.gate.close(code, reason, partitions)

    def report_trouble(self, error: ProxyError, partitions: Iterable[int] | None = None) -> None:
        """Log why partitions, or all of them if None, are not served, and refuse their requests for this reason."""
        code, text, needs_identity = refusal_of(error, self.state)
        self.off = text if needs_identity else ""
        self._complaint.happened(text, patient=code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self.close(code, text, partitions)

    async def _drop(self, released: set[int]) -> None:
        self.served -= released
        for takeover in {self._takeovers.pop(p) for p in released & self._takeovers.keys()}:
            takeover.remove(released)
        await self._forget(released)

    async def _forget(self, partitions: Collection[int]) -> None:
        async with self._load_lock:
            await self.held.forget(partitions)

    # Topic lost

    async def _begin_anew(self, nursery: trio.Nursery) -> None:
        """Take over all again. The topic's contents are forgotten, or written again."""
        reason, self._topic_lost = self._lost_reason, trio.Event()
        restores, self._restores = self._restores, False
        affected = set(self.served) if restores else self.owned
        event = self.state.event("restored" if restores else "topic-lost")
        self._notes(event, topic=self.state.topic, reason=reason, partitions=len(affected), **self.held.figures())
        self.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason, affected)
        self.journal.stop(affected, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason)
        if restores:
            self.served -= affected
            unread = affected & self.gate.refused.keys()  # nothing of them is in memory
            self.begin(unread & self._assigned, nursery)
            affected -= unread
        else:
            await self._drop(affected)
        self.begin(affected & self._assigned, nursery, restores=restores)

    def _count_missing(self, reason: str) -> None:
        if not self._topic_id or not self.owned:
            return
        self._missing_lookups += 1
        if self._missing_lookups >= ABSENT_CHECKS:
            self._lose_topic(reason)
        else:
            self._leaders.check_soon()

    def _on_log_changed(self, partition: int) -> None:
        self._lose_topic(f"the log of partition {partition} was recreated or truncated")

    def _lose_topic(self, reason: str, *, restores: bool = False) -> None:
        """Begin anew. `restores`: the topic is the same, and memory has the records that brokers have deleted."""
        self._restores = restores and not self._topic_lost.is_set()
        self._topic.forget()
        if not self._restores:
            self._missing_lookups, self._topic_id = 0, b""
        self._lost_reason = reason
        self._topic_lost.set()

    # Takeover

    async def _run_takeover(self, takeover: Takeover) -> None:
        with takeover.scope:
            while True:
                try:
                    return await self._load(takeover)
                except ProxyError as error:
                    self.report_trouble(error, takeover.partitions)
                takeover.is_urgent = False
                self._topic.forget()
                reason = f"{self.state.name} is not loaded"
                self.journal.stop(takeover.partitions, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason)
                if not takeover.restores:
                    await self._forget(takeover.partitions)
                await trio.sleep(AGAIN_S)

    async def _load(self, takeover: Takeover) -> None:
        began = trio.current_time()
        reason = f"{self.state.name} is being loaded"
        self.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason, takeover.partitions)
        for partition in takeover.partitions:
            self.gate.refused.pop(partition, None)
        if not takeover.is_urgent:
            await self._topic.require(lambda error: self.report_trouble(error, takeover.partitions))
        self._topic_id = self._topic_id or self._leaders.view.topic_id
        taken_s = 0.0
        async with aclosing(self._reader(takeover)) as reader:
            while takeover.partitions:
                await self._leave_brokers_to_clients(takeover, began + NOT_REQUESTED_S)
                taken_s += await self._load_next(takeover, reader)
        if takeover.is_urgent:
            return
        self.loaded_s = trio.current_time() - began
        self._notes(
            self.state.event("loaded"),
            **self.held.figures(),
            partitions=len(self.served),
            takeover_s=round(taken_s, 3),
            seconds=round(self.loaded_s, 3),
        )
        await self._learn_periods()

    async def _leave_brokers_to_clients(self, takeover: Takeover, until: float) -> None:
        """Wait until this time (trio.current_time()), or until one of the partitions is requested."""
        takeover.current = set()  # so that a request that arrives ends the wait, and no other takeover begins
        while takeover.may_wait(self.gate.requested) and trio.current_time() < until:
            takeover.changed = trio.Event()
            with trio.move_on_at(until):
                await takeover.changed.wait()

    def _reader(self, takeover: Takeover) -> TakeoverReader:
        return TakeoverReader(
            takeover,
            self._leaders,
            self._access.settings,
            self.state,
            self.report_trouble,
            partial(self._refuse, takeover),
        )

    async def _load_next(self, takeover: Takeover, reader: TakeoverReader) -> float:
        """Take over and load partitions for which requests wait, or else others. Return the seconds until taken over.

        A partition takes 10 to 20 ms of CPU, here and at the brokers, and most have no group.
        """
        began = trio.current_time()
        self.journal.take_over(takeover.select_next(self.gate.requested))
        await self._take_over_current(takeover, reader)
        taken_s = trio.current_time() - began
        if takeover.restores:
            await restored_state.write(self.journal, self.held, takeover.current)
        else:
            await reader.read()
            await self._load_partitions(takeover)
        self._serve(takeover)
        return taken_s

    def _serve(self, takeover: Takeover) -> None:
        """Serve what is loaded, without `await`, so that nothing changes meanwhile."""
        loaded = set(takeover.current)
        takeover.partitions -= loaded
        for partition in loaded:
            del self._takeovers[partition]
        self.journal.serve(loaded)
        self.served |= loaded
        self.off = ""
        self._complaint.ended()
        if self.guard.unsafe:
            self.guard.hold_back()
        else:
            self._open(loaded)

    def _open(self, partitions: set[int]) -> None:
        if not self._takeovers:
            self.trouble = "; ".join(sorted(set(self.gate.refused.values())))
        if not self.is_closing:
            self.gate.open(partitions)

    async def _learn_periods(self) -> None:
        """Request expiration times, at every takeover, since the setting may change."""
        own, leaders = self._access.own, self._leaders.view.leaders
        if own is not None and leaders:
            self.journal.keep_alive(*await producer_expiration.periods(own, min(leaders.values()), self._notes))

    async def _take_over_current(self, takeover: Takeover, reader: TakeoverReader) -> None:
        """Wait until the takeover records are stored, and read meanwhile what the logs have already."""
        try:
            async with trio.open_nursery() as nursery:
                if not takeover.restores:
                    nursery.start_soon(reader.read_ahead)
                await self._until_taken_over(takeover, reader)
        except BaseExceptionGroup as group:
            raise faults.first_of(group) from None

    async def _until_taken_over(self, takeover: Takeover, reader: TakeoverReader) -> None:
        while len(takeover.taken_over) < len(takeover.current):
            takeover.changed = trio.Event()
            if takeover.to_check and len(takeover.taken_over) + len(takeover.to_check) == len(takeover.current):
                await self._wait_for_earlier_owners(takeover, reader, sorted(takeover.to_check))
                continue
            await takeover.changed.wait()

    async def _wait_for_earlier_owners(self, takeover: Takeover, reader: TakeoverReader, partitions: list[int]) -> None:
        """Wait until the former owners of partitions with a new producer id have stopped."""
        if await reader.had_owner(partitions):
            reason = "waiting until an earlier owner has stopped by its own clock"
            self._notes(self.state.event("old-owner"), reason=reason)
            await trio.sleep(self._host.lease_s)
        takeover.to_check.difference_update(partitions)
        for partition in takeover.partitions.intersection(partitions):
            self.journal.proceed(partition)

    async def _load_partitions(self, takeover: Takeover) -> None:
        for partition in list(takeover.replays):
            async with self._load_lock:
                replay = takeover.replays.pop(partition, None)  # after `pop`, the loaded values are in memory only once
                if replay is not None and partition in takeover.partitions:  # and not given up meanwhile
                    await self._load_partition(takeover, partition, replay)

    async def _load_partition(self, takeover: Takeover, partition: int, replay: Replay) -> None:
        self.guard.log_starts[partition] = replay.start
        if replay.ignored:
            self._notes(self.state.event("ignored"), partition=partition, batches=replay.ignored)
        try:
            await self.held.load(replay.values.items())
        except RemoteProtocolError as error:
            self._refuse(takeover, partition, error)
        if partition in takeover.partitions and (superfluous := replay.superfluous()):
            self.journal.forget_keys(partition, superfluous)

    def _refuse(self, takeover: Takeover, partition: int, error: RemoteProtocolError) -> None:
        takeover.replays.pop(partition, None)
        self.gate.refused[partition] = f"state partition {partition} cannot be read here: {error}"
        self._notes(self.state.event("unreadable"), partition=partition, reason=str(error))

    # Events of the journal

    def _on_taken_over(self, partition: int, outcome: TakenOver) -> None:
        takeover = self._takeovers.get(partition)
        if takeover is not None:
            takeover.taken_over.setdefault(partition, outcome)
            takeover.notify()

    def _on_new_producer_id(self, partition: int) -> None:
        takeover = self._takeovers.get(partition)
        if takeover is not None:
            takeover.to_check.add(partition)
            takeover.notify()

    def _on_denied(self, partition: int, code: ErrorCode) -> None:
        """Report a missing right, to waiting clients too."""
        needed = (
            f"it needs WRITE on topic {self.state.topic} and on transactional ids {self.state.transactional_prefix}*"
        )
        error = TopicRefused(f"the proxy's own identity may not keep their state ({code.name}): {needed}")
        self.report_trouble(error, [partition])
        self.gate.denied = self.trouble

    def _on_lost(self, partition: int, code: ErrorCode) -> None:
        """Stop serving. -1: an internal error, all partitions are lost."""
        self._notes(self.state.event("lost"), partition=partition, reason=f"another proxy took over ({code.name})")
        self._host.on_lost(partition if partition >= 0 else None)

    # Leaders and coordinators

    def _on_leaders(self, view: TopicLeaders) -> None:
        if view.leaders and view.topic_id == self._topic_id:
            self._missing_lookups = 0
        elif view.leaders:
            self._count_missing("the topic was deleted and created again")
        self.journal.leaders = dict(view.leaders)
        self._host.channels.addresses = dict(view.addresses)

    def _on_lookup_failed(self, error: ProxyError) -> None:
        if self._takeovers:
            self.report_trouble(error, self._takeovers.keys())

    async def _on_refreshed(self, topic: StateTopic) -> None:
        await self._topic.find_coordinators(topic)
        view = self._leaders.view
        if view.leaders and self._topic_id in (b"", view.topic_id):
            await self.guard.check(topic, view, self.served, self._leaders.source)
            self._topic.follow_sizes(topic)

    def _on_unsafe(self) -> None:
        reason = f"{self.state.serves} are off: {self.guard.unsafe}"
        self.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason, self.served)
