"""Follower of a state that this proxy does not own: reads it from its start, then as it grows.

The records that count (`partition_log`) are passed to the `Follower`. A partition is *loaded* when everything is read
that it contained when the tail first saw it. If the topic was deleted and created anew (KIP-516), or a log ends before
the offset that was read, the follower forgets the partitions and reads them from the start. A partition with something
unreadable, or at which the follower has an internal error, is not read further. While the leaders have no news, the
loop repeats the requests (brokers/README.md rule 24).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import trio

from kafka_share_proxy.brokers import topic_log
from kafka_share_proxy.brokers.cluster_connection import ClusterConnection, InFlight, connection
from kafka_share_proxy.brokers.internal_topics import TopicLeaders
from kafka_share_proxy.brokers.replaced import SILENT_S, ResponseDue, unless_replaced
from kafka_share_proxy.durable import replay
from kafka_share_proxy.durable.described_state import DescribedState, Follower
from kafka_share_proxy.durable.leader_watch import PATIENCE_S, LeaderWatch
from kafka_share_proxy.durable.partition_log import ENDLESS, Replay
from kafka_share_proxy.durable.state_host import BrokerAccess
from kafka_share_proxy.durable.state_topic import StateTopic
from kafka_share_proxy.loop import faults
from kafka_share_proxy.loop.lasting_trouble import LastingTrouble
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, RemoteProtocolError
from kafka_share_proxy.wire.records.records import Record

CHECK_S = 1.0
"""Seconds between two lookups of a topic that does not exist."""
FETCH_WAIT_S = 3.0
"""Seconds after which a broker without new records responds. Each response costs 0.7 ms for 50 partitions: two per
second were most of the cost of an idle proxy.
"""
FETCH_WAIT_MS = round(FETCH_WAIT_S * 1000)
RETRY_S = 0.1
"""Delay in seconds after a failure."""
PAUSE_S = 0.02
"""Delay in seconds before the next Fetch after one with records: following each of a thousand appends a second took a
sixth of its time.
"""
OWNED_PAUSE_S = 0.2
"""The same delay while this proxy made all appends itself."""

_Replays = dict[int, Replay]
"""Replays by partition."""


@dataclass(slots=True, eq=False)
class _Followed:
    """Partition that is followed."""

    replay: Replay
    end: int = -1
    """End of the log when the tail first saw it. -1 if not known yet."""
    high_watermark: int = 0
    current_at: float = -inf
    """Latest time at which no further record is known to have existed."""

    @property
    def is_loaded(self) -> bool:
        return 0 <= self.end <= self.replay.next_offset


class Tail:
    """Tail of one state, active while `run` is."""

    def __init__(
        self,
        state: DescribedState[Any],
        follower: Follower,
        access: BrokerAccess,
        *,
        unwanted: bytes = b"",
        wall_s: Callable[[], float] = time.time,
        is_owned: Callable[[int], bool] = lambda _partition: False,
        on_read: Callable[[], None] = lambda: None,
        on_trouble: Callable[[ProxyError], None] = lambda _error: None,
    ) -> None:
        """`unwanted`: prefix of keys that the follower ignores. Batches with only such keys are not decoded.

        `is_owned` returns True if this proxy itself owns a partition now. `on_read` is called after each lookup and
        each response: partitions may be loaded now, or no longer loaded. `on_trouble` is called each time the lookup of
        the topic fails.
        """
        self.unreadable: dict[int, str] = {}
        """Partitions that are no longer read -> reason."""
        self.delay_s = 0.0
        """Seconds from the owner's append of the newest record to here, by the wall clocks of two machines."""
        self.is_owned = is_owned
        self._on_read = on_read
        self._state = state
        self._follower = follower
        self._access = access
        self._unwanted = unwanted
        self._wall_s = wall_s
        self._followed: dict[int, _Followed] = {}
        self._is_missing = False
        self._was_loaded = False
        """True if all partitions were loaded since one was read anew."""
        self._selections = 0
        """Number of changes of the partitions to read, or of their replays."""
        self._topic_id = b""
        self._changed = trio.Event()
        self._fault: Exception | None = None
        self._leaders = LeaderWatch(
            state.topic,
            state.partitions,
            access.settings,
            access.notes,
            on_leaders=self._on_leaders,
            on_missing=self._on_missing,
            on_trouble=on_trouble,
        )
        failed, works = state.event("not-followed"), state.event("followed")
        self._trouble = LastingTrouble(access.notes, failed, works, patience_s=PATIENCE_S)

    def is_loaded(self, partition: int) -> bool:
        return self._is_missing or (partition in self._followed and self._followed[partition].is_loaded)

    @property
    def is_all_loaded(self) -> bool:
        if not self._was_loaded:
            self._was_loaded = all(map(self.is_loaded, self._state.all))
        return self._was_loaded

    @property
    def behind(self) -> int:
        """Number of records, over all partitions, that are in the log and not read yet."""
        return sum(max(0, each.high_watermark - each.replay.next_offset) for each in self._followed.values())

    @property
    def age_s(self) -> float:
        """Maximum age of the state in seconds. inf until all partitions were read."""
        if self._is_missing:
            return 0.0
        if len(self._followed) < self._state.partitions:
            return inf
        return trio.current_time() - min(each.current_at for each in self._followed.values())

    async def loaded(self) -> None:
        """Wait until all partitions are loaded."""
        while not self.is_all_loaded:
            await self._changed.wait()

    async def run(self) -> None:
        topic = StateTopic(self._access.client(), self._state)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._leaders.run, topic)
            while True:
                await self._leaders.refresh()
                if self._is_missing or not self._readable():
                    await trio.sleep(CHECK_S)
                    continue
                try:
                    await self._read()
                except ProxyError as error:
                    self._trouble.happened(str(error))
                await trio.sleep(RETRY_S)

    # The topic

    def _on_missing(self) -> None:
        if self._followed:
            self._forget(self._followed.keys())
            self._topic_id = b""
        self._is_missing = True
        self._notify()

    def _on_leaders(self, view: TopicLeaders) -> None:
        if not view.leaders:
            return  # the topic is being created or deleted
        if self._topic_id not in (b"", view.topic_id):
            self._forget(self._followed.keys())
        self._topic_id = view.topic_id
        self._is_missing = self._was_loaded = False
        for partition in self._state.all:
            if partition not in self._followed:
                self._followed[partition] = self._from_the_start()

    def _from_the_start(self) -> _Followed:
        return _Followed(Replay(self._state.owner_epoch_of, ENDLESS, sink=self._apply, unwanted=self._unwanted))

    def _forget(self, partitions: Iterable[int]) -> None:
        dropped = list(partitions)
        self._was_loaded = False
        self._selections += 1
        for partition in dropped:
            del self._followed[partition]
            self.unreadable.pop(partition, None)
        self._follower.forget(dropped)
        self._access.notes(self._state.event("read-anew"), partitions=len(dropped))

    # Reading

    async def _read(self) -> None:
        """Return when a leader cannot be reached or has changed."""
        source = self._leaders.source
        try:
            async with trio.open_nursery() as nursery:
                for node_id, partitions in source.by_leader(self._readable()).items():
                    nursery.start_soon(self._read_from, node_id, source, set(partitions))
        except BaseExceptionGroup as group:
            raise faults.first_of(group) from None

    def _readable(self) -> list[int]:
        return [partition for partition in self._followed if partition not in self.unreadable]

    async def _read_from(self, node_id: int, source: replay.ReplaySource, partitions: set[int]) -> None:
        """Return when the leader is silent and another broker has replaced it."""
        led = dict.fromkeys(partitions, node_id)
        due = ResponseDue(trio.current_time())
        await unless_replaced(
            partial(self._follow, node_id, source, partitions, due),
            partial(self._leaders.is_led_elsewhere, led),
            due=due,
            check_s=SILENT_S,
        )

    async def _follow(self, node_id: int, source: replay.ReplaySource, partitions: set[int], due: ResponseDue) -> None:
        async with connection(source.address(node_id), source.settings) as opened:
            topic, session = self._state.topic, topic_log.LogSession()
            starts = await replay.offsets(opened, topic, partitions, topic_log.EARLIEST)
            ends = await replay.offsets(opened, topic, partitions, topic_log.LATEST)
            for partition in partitions:
                self._set_bounds(self._followed[partition], starts[partition], ends[partition])
            replays, positions = self._selected(partitions)
            in_flight: InFlight | None = None
            while replays:
                self._notify()
                sent, selection = trio.current_time() if in_flight is None else in_flight.sent, self._selections
                due.move(sent + FETCH_WAIT_S)
                entries = await replay.fetch(opened, source, positions, FETCH_WAIT_MS, session, in_flight=in_flight)
                pace = replay.Pace()
                for entry in entries:
                    await self._apply_entry(entry, pace)
                pause_s, in_flight = self._after_response(replays, sent), None
                if pause_s and self.is_all_loaded:
                    await trio.sleep(pause_s)
                if entries or selection != self._selections:  # idle rounds have neither, and every proxy makes them
                    replays, positions = self._selected(partitions)
                elif self.is_all_loaded:
                    due.move(inf)
                    in_flight = await self._repeat(opened, source, session, replays)

    async def _repeat(
        self, opened: ClusterConnection, source: replay.ReplaySource, session: topic_log.LogSession, replays: _Replays
    ) -> InFlight | None:
        """Let the loop repeat the request while the leader has no news. Return one whose response is due."""
        selection = self._selections

        def responded(sent: float) -> float | None:
            pause_s = self._after_response(replays, sent)
            if selection != self._selections or not self.is_all_loaded:
                return None
            self._notify()
            return pause_s

        late_s = FETCH_WAIT_S + SILENT_S
        repeated = replay.repeated_fetch(opened, source, FETCH_WAIT_MS, session, responded, late_s)
        return None if repeated is None else await repeated.run(pause_s=0)

    def _after_response(self, replays: _Replays, sent: float) -> float:
        """Note how current the replays are. Return the delay in seconds before the next Fetch, if all is loaded."""
        waited = trio.current_time() - sent >= FETCH_WAIT_S
        self._set_current(replays, sent + FETCH_WAIT_S if waited else sent)
        self._trouble.ended()
        if waited:
            return 0.0
        return OWNED_PAUSE_S if all(map(self.is_owned, replays)) else PAUSE_S

    def _selected(self, partitions: Iterable[int]) -> tuple[_Replays, dict[int, int]]:
        """Return replays and positions of the partitions to read."""
        replays = {p: self._followed[p].replay for p in partitions if p not in self.unreadable}
        return replays, replay.positions(replays)

    def _set_bounds(self, followed: _Followed, start: int, end: int) -> None:
        followed.replay.next_offset = max(followed.replay.next_offset, start)
        if followed.end < 0:
            followed.end = end

    def _set_current(self, partitions: Iterable[int], at: float) -> None:
        """Note partitions that are read to their ends, `at` the earliest time when the broker may have responded."""
        for partition in partitions:
            followed = self._followed[partition]
            if followed.replay.next_offset >= followed.high_watermark:
                followed.current_at = at

    async def _apply_entry(self, entry: messages.FetchResponse.PartitionData, pace: replay.Pace) -> None:
        """Apply the records of one partition. Raises UpstreamLost for an error code."""
        partition = entry.partition_index
        followed = self._followed[partition]
        if entry.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._forget([partition])
            self._followed[partition] = self._from_the_start()
        replay.require_no_error(self._state.topic, partition, entry.error_code)
        before, followed.high_watermark = followed.replay.next_offset, entry.high_watermark
        try:
            await replay.read_batches(followed.replay, entry.records, pace)
        except RemoteProtocolError as error:
            self.unreadable[partition] = str(error)
            self._selections += 1
            self._access.notes(self._state.event("unreadable"), partition=partition, reason=str(error))
            self._notify()
            return
        if followed.replay.next_offset > before and followed.replay.newest_ms >= 0:
            self.delay_s = self._wall_s() - followed.replay.newest_ms / 1000

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
        self._fault = error

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        self._on_read()
