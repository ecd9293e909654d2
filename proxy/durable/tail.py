"""Following a state without owning it: read from its start, then as it grows.

Theory of operation. Every proxy may tail a state, whoever owns its partitions. Each partition is read from its start by
the rules of a takeover (`partition_log`): what a replaced owner still managed to append does not count. The records
that count go to the `Follower` in the order of the log, and others get their turn between two batches. A partition is
*loaded* once everything is read that it held when the tail first met it; a topic that does not exist holds nothing.

How old a followed state is, is known: `age_s` is the time since the partition read longest ago was seen to have no
record more, `behind` counts the records that are not read, `delay_s` is what the newest record took from the owner's
append to here (by the wall clocks of two machines).

One connection to each leader, one Fetch at a time with all its partitions, which waits at the broker for something new.
Where the topic was deleted and made anew, or a log ends before what was read of it, the follower forgets these
partitions, and they are read from the start. Records are asked by topic id, so that a new topic is told from the old
one however long it is (KIP-516).

A partition in which something cannot be read is left alone from there on and named (`unreadable`), also where the
follower has a fault of its own: the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import trio

from proxy.brokers import own_log
from proxy.brokers.internal_topics import TopicLeaders
from proxy.brokers.own_connection import connection
from proxy.brokers.replaced import SILENT_S, unless_replaced
from proxy.durable import replay
from proxy.durable.described_state import DescribedState, Follower
from proxy.durable.hosted_state import BrokerAccess
from proxy.durable.leader_watch import PATIENCE_S, LeaderWatch
from proxy.durable.partition_log import ENDLESS, Replay
from proxy.durable.state_topic import StateTopic
from proxy.loop import faults
from proxy.loop.lasting_trouble import LastingTrouble
from proxy.wire import messages
from proxy.wire.errors import ErrorCode, ProxyError, RemoteProtocolError
from proxy.wire.records import Record

LOOK_S = 1.0
"""Between two looks for a topic that does not exist."""
FETCH_WAIT_S = 3.0
"""A broker that has nothing new answers after this: not before so long after the Fetch was sent. What is new it answers
at once. Each answer costs 0.7 ms for 50 partitions, so twice a second they were most of what an idle proxy costs."""
RETRY_S = 0.1
"""After something that failed."""
PAUSE_S = 0.02
"""Before the next Fetch after one that had something: an owner appends a thousand times a second, and following each
append took a sixth of its time."""
OWNED_PAUSE_S = 0.2
"""The same while this proxy owns all of it: it appends everything itself, and knows it before. Each turn of a task of
Trio costs as much as several requests."""


@dataclass(slots=True, eq=False)
class _Followed:
    """One partition, as far as it is read."""

    replay: Replay
    end: int = -1
    """Read so far, it is loaded; -1: not known yet."""
    high_watermark: int = 0
    current_at: float = -inf
    """When it was last known that nothing more was there: no later than the broker said so."""

    @property
    def is_loaded(self) -> bool:
        return 0 <= self.end <= self.replay.next_offset


class Tail:
    """Follows while `run` does."""

    def __init__(
        self,
        state: DescribedState[Any],
        follower: Follower,
        access: BrokerAccess,
        *,
        unwanted: bytes = b"",
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """`unwanted`: keys that begin so are nothing to the follower; batches with no others are not opened."""
        self.unreadable: dict[int, str] = {}
        """Partitions of which no more is read, and why: a newer proxy has written what is not known here."""
        self.delay_s = 0.0
        """What the newest record took from the owner's append to here."""
        self.on_read: Callable[[], None] = lambda: None
        """Called after each look and each answer: something may be loaded, or not any more."""
        self.is_owned: Callable[[int], bool] = lambda _partition: False
        """Whether this proxy itself owns a partition at this moment."""
        self.on_trouble: Callable[[ProxyError], None] = lambda _error: None
        """Called each time that the topic cannot be looked for."""
        self._state = state
        self._follower = follower
        self._access = access
        self._unwanted = unwanted
        self._wall_s = wall_s
        self._followed: dict[int, _Followed] = {}
        self._is_missing = False
        """There is no such topic, as far as is known."""
        self._topic_id = b""
        self._due: dict[int, float] = {}
        """Node id -> when its answer is late (trio.current_time)."""
        self._changed = trio.Event()
        self._fault: Exception | None = None
        """What the follower raised about the last record."""
        self._leaders = LeaderWatch(state.topic, state.partitions, access.settings, access.notes)
        self._leaders.on_seen = self._seen
        self._leaders.on_missing = self._missing
        self._leaders.on_trouble = self._not_seen
        failed, works = state.event("not-followed"), state.event("followed")
        self._trouble = LastingTrouble(access.notes, failed, works, patience_s=PATIENCE_S)

    def is_loaded(self, partition: int) -> bool:
        """Whether everything is known that the partition held when it was first met."""
        return self._is_missing or (partition in self._followed and self._followed[partition].is_loaded)

    @property
    def is_all_loaded(self) -> bool:
        """The same of every partition."""
        return all(map(self.is_loaded, self._state.all))

    @property
    def behind(self) -> int:
        """Records that are known to be there and are not read."""
        return sum(max(0, each.high_watermark - each.replay.next_offset) for each in self._followed.values())

    @property
    def age_s(self) -> float:
        """How old what is known may be: no partition was fully read longer ago. inf before all were."""
        if self._is_missing:
            return 0.0
        if len(self._followed) < self._state.partitions:
            return inf
        return trio.current_time() - min(each.current_at for each in self._followed.values())

    async def loaded(self) -> None:
        """Wait until all is loaded."""
        while not self.is_all_loaded:
            await self._changed.wait()

    async def run(self) -> None:
        """Follow until cancelled."""
        topic = StateTopic(self._access.client(), self._state)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._leaders.run, topic)
            while True:
                await self._leaders.look()
                if self._is_missing or not self._readable():
                    await trio.sleep(LOOK_S)
                    continue
                try:
                    await self._read()
                except ProxyError as error:
                    self._trouble.happened(str(error))
                await trio.sleep(RETRY_S)

    # The topic

    def _missing(self) -> None:
        if self._followed:
            self._forget(self._followed.keys())
            self._topic_id = b""
        self._is_missing = True
        self._tell()

    def _not_seen(self, error: ProxyError) -> None:
        self.on_trouble(error)

    def _seen(self, view: TopicLeaders) -> None:
        if not view.leaders:
            return  # being made or deleted
        if self._topic_id not in (b"", view.topic_id):
            self._forget(self._followed.keys())
        self._topic_id = view.topic_id
        self._is_missing = False
        for partition in self._state.all:
            if partition not in self._followed:
                self._followed[partition] = self._from_the_start()

    def _from_the_start(self) -> _Followed:
        return _Followed(Replay(self._state.reign_of, ENDLESS, sink=self._apply, unwanted=self._unwanted))

    def _forget(self, partitions: Iterable[int]) -> None:
        gone = list(partitions)
        for partition in gone:
            del self._followed[partition]
            self.unreadable.pop(partition, None)
        self._follower.forget(gone)
        self._access.notes(self._state.event("read-anew"), partitions=len(gone))

    # Reading

    async def _read(self) -> None:
        """From all leaders, until one is not to be reached or leads no more."""
        place = self._leaders.place
        try:
            async with trio.open_nursery() as nursery:
                for node_id, partitions in place.by_leader(self._readable()).items():
                    nursery.start_soon(self._read_from, node_id, place, set(partitions))
        except BaseExceptionGroup as group:
            raise faults.first_of(group) from None

    def _readable(self) -> list[int]:
        return [partition for partition in self._followed if partition not in self.unreadable]

    async def _read_from(self, node_id: int, place: replay.ReplayPlace, partitions: set[int]) -> None:
        """From one leader; not longer from one that is lost without a word than until another one leads."""
        led = dict.fromkeys(partitions, node_id)

        async def is_replaced() -> bool:
            is_late = trio.current_time() >= self._due[node_id]
            return is_late and await self._leaders.is_led_elsewhere(led)

        self._due[node_id] = -inf
        await unless_replaced(partial(self._follow, node_id, place, partitions), is_replaced, look_s=SILENT_S)

    async def _follow(self, node_id: int, place: replay.ReplayPlace, partitions: set[int]) -> None:
        async with connection(place.address(node_id), place.settings) as opened:
            topic = self._state.topic
            starts = await replay.offsets(opened, topic, partitions, own_log.EARLIEST)
            ends = await replay.offsets(opened, topic, partitions, own_log.LATEST)
            for partition in partitions:
                self._begin(self._followed[partition], starts[partition], ends[partition])
            while wanted := {p: self._followed[p].replay for p in partitions if p not in self.unreadable}:
                self._tell()
                sent = trio.current_time()
                self._due[node_id] = sent + FETCH_WAIT_S + SILENT_S
                entries = await replay.fetch(opened, place, wanted, round(FETCH_WAIT_S * 1000))
                waited = trio.current_time() - sent >= FETCH_WAIT_S
                pace = replay.Pace()
                for entry in entries:
                    await self._take(entry, sent + FETCH_WAIT_S if waited else sent, pace)
                self._trouble.ended()
                if not waited and self.is_all_loaded:
                    await trio.sleep(OWNED_PAUSE_S if all(map(self.is_owned, wanted)) else PAUSE_S)

    def _begin(self, followed: _Followed, start: int, end: int) -> None:
        """Read on from where it was left, if that is still there."""
        followed.replay.next_offset = max(followed.replay.next_offset, start)
        if followed.end < 0:
            followed.end = end

    async def _take(self, entry: messages.FetchResponse.PartitionData, at: float, pace: replay.Pace) -> None:
        """What was answered of one partition, then or later. Raises UpstreamLost."""
        partition = entry.partition_index
        followed = self._followed[partition]
        if entry.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._forget([partition])
            self._followed[partition] = self._from_the_start()
        replay.check(self._state.topic, partition, entry.error_code)
        before = followed.replay.next_offset
        try:
            await replay.take(followed.replay, entry.records, pace)
        except RemoteProtocolError as error:
            self.unreadable[partition] = str(error)
            self._access.notes(self._state.event("unreadable"), partition=partition, reason=str(error))
            self._tell()
            return
        if followed.replay.next_offset > before and followed.replay.newest_ms >= 0:
            self.delay_s = self._wall_s() - followed.replay.newest_ms / 1000
        followed.high_watermark = entry.high_watermark
        if followed.replay.next_offset >= entry.high_watermark:
            followed.current_at = at

    def _apply(self, record: Record) -> None:
        value = None if record.value is None else bytes(record.value)
        self._fault = None
        faults.guard(self, partial(self._follower.apply, record.key or b"", value))
        if isinstance(self._fault, RemoteProtocolError):
            raise self._fault
        if self._fault is not None:
            self._access.notes("callback-failed", error=self._fault)
            raise RemoteProtocolError(f"a fault of ours: {self._fault!r}") from self._fault

    def failed(self, error: Exception) -> None:
        """The follower raised (see FaultOwner)."""
        self._fault = error

    def _tell(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        self.on_read()
