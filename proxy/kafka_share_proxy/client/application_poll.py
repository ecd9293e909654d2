"""One poll of the application: its begin, callbacks during the wait, and its end (client/README.md rules 13-15).

A poll that was cancelled, or raised, is open. Events stay at the head of the queue until they are processed, callbacks
included.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import trio

from kafka_share_proxy.client.individual_commits import IndividualCommits
from kafka_share_proxy.client.network_task import NetworkTask
from kafka_share_proxy.client.polled_records import PartitionRecords, PolledRecords, RecordsUnreadable
from kafka_share_proxy.client.rebalance_listener import RebalanceListener
from kafka_share_proxy.client.record_supply import RecordSupply
from kafka_share_proxy.consumer import events as event_types
from kafka_share_proxy.consumer.events import BackgroundEvent
from kafka_share_proxy.consumer.fetch.offset_requests import NoOffsetForPartition
from kafka_share_proxy.consumer.partitions import NOTHING, Partitions

POLL_RECORDS_MAX = 500
"""max.poll.records."""


class PollResult(NamedTuple):
    """Result of one poll (KIP-983, its first variant)."""

    records: PolledRecords
    to_be_revoked: Partitions
    """Given up at the start of the next poll, unless delayed."""
    lost: Partitions
    """Lost since the last poll. Other members may own them."""


class ApplicationPoll:
    """Poll of an application. If it is cancelled, the next call continues it."""

    def __init__(
        self,
        network: NetworkTask,
        listener: RebalanceListener,
        supplies: Sequence[RecordSupply],
        individual: IndividualCommits | None,
        *,
        revoke_in_same_poll: bool,
    ) -> None:
        self._network = network
        self._listener = listener
        self._supplies = supplies
        self._individual = individual
        self._revoke_in_same_poll = revoke_in_same_poll
        self._events: deque[BackgroundEvent] = deque()
        self._is_polling = False
        self._poll_is_open = False
        """True if a poll was cancelled or raised."""
        self._reported_revoked: Partitions = NOTHING
        """Partitions whose revocation the listener knows."""

    @trio.lowlevel.enable_ki_protection
    async def run(self, deadline: float, records_max: int) -> PollResult:
        """Run one poll until its deadline in Trio seconds. Raises as `Consumer.poll`.

        Positions advance past the returned records only with `advance_positions`.
        """
        if self._is_polling:
            raise trio.BusyResourceError("another task polls this consumer")
        self._is_polling = True
        try:
            await self._begin()
            while True:
                await self._act_on_events()
                result = self._result_if_news(records_max)
                if result is not None:
                    return result
                with trio.move_on_at(deadline) as waiting:
                    self._events.append(await self._network.next_event())
                if waiting.cancelled_caught:
                    return self._result(PolledRecords())
        finally:
            self._is_polling = False

    async def report_revoked(self, partitions: Partitions) -> None:
        """Call the listener, once for each partition."""
        due = partitions - self._reported_revoked
        if not due:
            return
        self._reported_revoked |= due
        try:
            await self._listener.on_partitions_revoked(due)
        except BaseException as error:
            if not isinstance(error, Exception):  # cancelled: the listener is called again
                self._reported_revoked -= due
            raise

    def on_unsubscribed(self) -> None:
        """Forget which revocations were reported: later assignments are new ones."""
        self._reported_revoked = NOTHING

    async def _begin(self) -> None:
        if not self._poll_is_open:
            await self.report_revoked(self._network.core.ledger.next)
        continues, self._poll_is_open = self._poll_is_open, True
        self._reported_revoked = frozenset()
        await self._network.begin_poll(continues=continues)

    async def _act_on_events(self) -> None:
        while self._has_event():
            event = self._events[0]
            try:
                await self._act_on(event)
            except Exception:  # a cancelled event stays in the queue: the next poll acts on it again
                self._events.popleft()
                raise
            self._events.popleft()

    def _has_event(self) -> bool:
        """Return True if the queue has an event now."""
        if not self._events:
            try:
                self._events.append(self._network.background.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                return False
        return True

    async def _act_on(self, event: BackgroundEvent) -> None:
        match event:
            case event_types.BackgroundError():
                self._network.on_error_reported()
                if not self._is_outdated(event):
                    raise event.error
            case event_types.AssignPartitions():
                await self._assigned_by_group(event)
            case event_types.RevokePartitions() if self._revoke_in_same_poll:
                await self._revoke_now(event)
            case event_types.PositionFound() if self._individual is not None:
                self._individual.on_position(event)
            case event_types.PartitionsLost():
                await self._listener.on_partitions_lost(event.partitions)
            case _:
                pass

    def _is_outdated(self, event: event_types.BackgroundError) -> bool:
        """Return True if the application has sought since the error about a missing offset was reported."""
        if not isinstance(event.error, NoOffsetForPartition):
            return False
        position = self._network.core.positions.get(event.error.partition)
        return position is None or position.moves != event.error.moves

    async def _assigned_by_group(self, event: event_types.AssignPartitions) -> None:
        try:
            await self._listener.on_partitions_assigned(event.added)
        except Exception:
            self._network.apply(event_types.AckPartitionsAssigned(event.rebalance_id))
            raise
        self._network.apply(event_types.AckPartitionsAssigned(event.rebalance_id))

    async def _revoke_now(self, event: event_types.RevokePartitions) -> None:
        partitions = event.partitions & self._network.core.ledger.outstanding
        try:
            await self._listener.on_partitions_revoked(partitions)
        except Exception:
            self._network.apply(event_types.AckPartitionsRevoked(event.rebalance_id, partitions))
            raise
        self._network.apply(event_types.AckPartitionsRevoked(event.rebalance_id, partitions))
        await self._network.wait_until(lambda: not partitions & self._network.core.ledger.outstanding)

    def _result_if_news(self, records_max: int) -> PollResult | None:
        """End the poll if there are records or rebalance events. Return None if there is nothing new."""
        self._network.report_next_arrival()
        ledger = self._network.core.ledger
        has_news = bool(ledger.unreported or ledger.lost_pending)
        records = self._take_records(records_max)
        if len(records) or has_news:
            return self._result(records)
        if (fatal := self._network.core.membership.fatal) is not None:
            raise fatal
        return None

    def _result(self, records: PolledRecords) -> PollResult:
        to_be_revoked, lost = self._network.core.ledger.end_poll()
        self._poll_is_open = False
        return PollResult(records, to_be_revoked, lost)

    def _take_records(self, records_max: int) -> PolledRecords:
        """Return the next records. Chunks without records are skipped."""
        flows = self._network.core.flows
        while True:
            parts: list[PartitionRecords] = []
            for supply in self._supplies:
                parts += self._take_from(supply, records_max, is_first=not parts)
            if any(each.has_new_room for each in flows):
                self._network.wake()
            records = PolledRecords(parts)
            if len(records) or not parts:
                return records
            self.advance_positions(parts)

    def advance_positions(self, parts: Iterable[PartitionRecords]) -> None:
        """Move positions past records that the application has received, or that need not be returned."""
        for (partition, flow), offset in {(part.partition, part.flow): part.next_offset for part in parts}.items():
            self._network.core.consumed(partition, offset, flow)

    def _take_from(self, supply: RecordSupply, records_max: int, *, is_first: bool) -> list[PartitionRecords]:
        room = self._individual.room if self._individual else lambda _: records_max
        try:
            parts = supply.take(records_max, room, may_raise=is_first)
        except RecordsUnreadable as error:
            self._network.apply(event_types.Seek(error.partition, error.offset, error.flow))
            raise
        return parts if self._individual is None else self._individual.delivered(parts)
