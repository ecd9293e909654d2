"""The calls of an application that shares partitions with others (client/README.md rules 19-26).

async with open_share_consumer("localhost:9092", group="g", topics=["jobs"], acknowledgement_mode="explicit") as s:
    for record in await s.poll(1):
        async with s.work(record):
            await process(record)
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from copy import copy
from typing import NamedTuple

import trio

from kafka_share_proxy.client.arguments import named_topics
from kafka_share_proxy.client.cluster_calls import ClusterCalls
from kafka_share_proxy.client.deserializers import Deserializers
from kafka_share_proxy.client.network_task import ConsumerClosed, NetworkLoop, WokenUp
from kafka_share_proxy.client.share_records import ShareRecord, share_records
from kafka_share_proxy.consumer import events as event_types
from kafka_share_proxy.consumer.events import AwaitAcknowledgements, ConsumerError
from kafka_share_proxy.consumer.groups.states import CoordinatorState
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_core import ShareCore
from kafka_share_proxy.consumer.share.share_holds import AcknowledgementResult, LockLostError, renewals_unsupported
from kafka_share_proxy.consumer.share.share_membership import ShareMemberState
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.redelivery_delay import DELAY_MS_MAX
from kafka_share_proxy.wire.values import TopicPartition

RESULTS_MAX = 10_000
"""Results that wait for the callback. Beyond it, the oldest are dropped: the application neither polls nor commits."""

OnAcknowledged = Callable[[AcknowledgementResult], None]
"""Called in poll, commit, unsubscribe and close, in the task of the caller. These calls raise its exceptions."""

ACKNOWLEDGE_TYPES = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW)


class ShareConsumerState(NamedTuple):
    """State of a share consumer for logs and tests."""

    coordinator: CoordinatorState
    member: ShareMemberState
    held: int
    troubles: Mapping[int, str]
    """-1 represents the bootstrap servers."""


class ShareConsumer(ClusterCalls):
    """Share consumer of one Trio run; `open_share_consumer` creates it. Several tasks may use it, but only one may
    poll.
    """

    def __init__(
        self,
        network: NetworkLoop[ShareCore],
        on_acknowledged: OnAcknowledged | None = None,
        deserializers: Deserializers | None = None,
    ) -> None:
        self._deserializers = deserializers or Deserializers()
        super().__init__(network)
        self._network = network
        self._topics: frozenset[str] = frozenset()
        self._core = network.core
        self._options = network.core.options
        self._on_acknowledged = on_acknowledged
        self._results: deque[AcknowledgementResult] = deque(maxlen=RESULTS_MAX)
        self._errors: dict[str, ProxyError] = {}
        """Errors by their text, so that a repeated error is raised once."""
        self._is_subscribed = self._is_polling = False
        self._iterated: Iterator[ShareRecord] = iter(())

    def on_result(self, result: AcknowledgementResult) -> None:
        """Called by the core."""
        if self._on_acknowledged is not None:
            self._results.append(result)

    # Subscription and assignment

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group with exactly these topics. Raises ValueError if there is no topic or a topic name is
        invalid.
        """
        names = named_topics(topics)
        if not names:
            raise ValueError("subscribe to at least one topic; unsubscribe ends a subscription")
        self._network.apply(event_types.Subscribe(names))
        self._is_subscribed, self._topics = True, names

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return self._topics if self._is_subscribed else frozenset()

    async def unsubscribe(self) -> None:
        """Send the acknowledgements made so far, release all other held records, and leave the group."""
        self._is_subscribed = False
        self._iterated = iter(())  # brokers release what the loop was not given
        await self._network.call(event_types.LeaveGroup)
        self._run_callbacks()

    @property
    def assignment(self) -> Partitions:
        """Partitions that the group has assigned to this member. Other members may read the same."""
        return self._core.membership.assigned

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """Duration of record locks as last reported by a broker (KIP-1222). None before the first response to a
        fetch.
        """
        return None if self._core.held.lock_s is None else round(self._core.held.lock_s * 1000)

    # Records

    async def poll(self, timeout_s: float = math.inf) -> list[ShareRecord]:
        """Wait for records.

        In the implicit mode it accepts the records of the previous poll. In the explicit mode they stay held, and
        records that were renewed by `acknowledge` are returned alone, before new ones. A cancelled poll loses nothing.

        Args:
            timeout_s: seconds to wait. 0 returns the records that are available.

        Raises:
            ConfigurationError: no topic is subscribed. trio.BusyResourceError: another task polls.
            ConsumerError: a failure that no other call reports. Another poll may succeed, unless the error is repeated.
            WokenUp: `wakeup` was called. Exceptions of the callback.
        """
        if math.isnan(timeout_s) or timeout_s < 0:
            raise ValueError(f"timeout_s {timeout_s}: 0 or more seconds")
        if not self._is_subscribed:
            raise ConfigurationError("poll needs a subscription: call subscribe")
        if self._is_polling:
            raise trio.BusyResourceError("another task polls this consumer")
        self._is_polling = True
        try:
            await trio.lowlevel.checkpoint()
            if remaining := list(self._iterated):
                return remaining
            return await self._wait_for_records(trio.current_time() + timeout_s)
        finally:
            self._is_polling = self._core.is_polling = False

    def __aiter__(self) -> ShareConsumer:
        """Iterate over records without end. After a loop ends, the next loop or poll begins with the remaining records.

        In the implicit mode a commit accepts only records that the loop has received.
        """
        return self

    async def __anext__(self) -> ShareRecord:
        """Return the next record. Other tasks run only when a new poll is needed, not between records of the same
        poll.
        """
        while True:
            for record in self._iterated:
                return record
            self._iterated = iter(await self.poll())

    def wakeup(self) -> None:
        """Make the waiting poll, or else the next one, raise WokenUp. In Trio, prefer to cancel the poll."""
        self._network.interrupt(WokenUp("wakeup was called"))
        self._network.wake()

    # Acknowledgements

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> bool:
        """Acknowledge a record. It is sent with the next poll or commit, and replaces an earlier one that was not sent
        yet.

        Args:
            record: as returned by poll.
            kind: ACCEPT, RELEASE, REJECT or RENEW. The next poll returns a renewed record again.

        Returns: False if its lock is lost: the record is or was delivered again. The callback gets this result too.

        Raises:
            ConfigurationError: in the implicit mode. ValueError: it is acknowledged already, or the kind is invalid.
        """
        self._require_explicit("acknowledge")
        if kind not in ACKNOWLEDGE_TYPES:
            raise ValueError(f"{kind!r}: one of {', '.join(each.name for each in ACKNOWLEDGE_TYPES)}")
        renewed = record if kind is AcknowledgeType.RENEW else None
        kind = AcknowledgeType(kind)
        return self._core.acknowledge(record.origin, record.offset, record.delivery, kind, renewed=renewed)

    def release(self, record: ShareRecord, delay_s: float | None = None) -> bool:
        """Release a record: another delivery follows. Sent as in `acknowledge`.

        Args:
            record: as returned by poll.
            delay_s: seconds until it is available again, 0 to 900, instead of the group's delay. Only the proxy
                supports it: a broker ignores it, which is logged once. For longer waits produce the record to a topic
                for retries, and accept it.

        Returns, Raises: as in `acknowledge`. ValueError: the delay is out of range.
        """
        self._require_explicit("release")
        if delay_s is not None and not 0 <= delay_s <= DELAY_MS_MAX / 1000:
            raise ValueError(f"delay_s {delay_s}: 0 to {DELAY_MS_MAX // 1000} seconds are possible")
        delay_ms = None if delay_s is None else math.ceil(delay_s * 1000)
        return self._core.acknowledge(
            record.origin, record.offset, record.delivery, AcknowledgeType.RELEASE, delay_ms=delay_ms
        )

    async def renew(self, *records: ShareRecord) -> None:
        """Renew the locks of these records now (KIP-1222). The next poll does not return them again.

        If cancelled, they may be renewed all the same.

        Raises:
            LockLostError: a lock has ended. ConsumerError: it was refused; UNSUPPORTED_VERSION: brokers before 4.2.
            ConfigurationError, ValueError: as in `acknowledge`. No request is sent then.
        """
        self._require_explicit("renew")
        holds = [self._core.held.find(each.origin, each.offset, each.delivery) for each in records]
        for hold in holds:
            if hold.lost is not None:
                raise hold.lost
            if not hold.session.can_renew:
                raise renewals_unsupported(hold.session)
        only: dict[TopicPartition, set[int]] = {}
        for each in records:
            self._core.acknowledge(each.origin, each.offset, each.delivery, AcknowledgeType.RENEW)
            only.setdefault(each.origin, set()).add(each.offset)
        refused = await self._network.call(lambda call_id: AwaitAcknowledgements(call_id, only))
        lost = next((hold.lost for hold in holds if hold.lost is not None), None)
        if error := lost or next(filter(None, refused.values()), None):
            raise error

    @asynccontextmanager
    async def work(self, record: ShareRecord) -> AsyncIterator[ShareRecord]:
        """Process a record for any length of time: its lock is renewed until the block ends.

        The record is accepted when the block ends, and released when it raises or is cancelled. An acknowledgement by
        the block itself has precedence. If the lock is lost all the same, the block is cancelled.

        Raises:
            LockLostError: the lock was lost before or in the block. Another member may be processing the record.
            ConfigurationError: in the implicit mode. ValueError: it is acknowledged already, or being processed.
        """
        self._require_explicit("work")
        with trio.CancelScope() as scope:
            now = self._network.clock.now()
            job = self._core.begin_work(record.origin, record.offset, record.delivery, scope.cancel, now)
            self._network.wake()
            ended = AcknowledgeType.RELEASE
            try:
                yield record
                ended = AcknowledgeType.ACCEPT
            finally:
                is_held = self._core.end_work(job, ended, self._network.clock.now())
                self._network.wake()
        if not is_held:
            raise job.hold.lost or LockLostError(f"{record.origin} at offset {record.offset}: the lock is lost")

    async def commit(self) -> Mapping[TopicPartition, ConsumerError | None]:
        """Send the acknowledgements made so far, and wait for the results of all that have none yet.

        In the implicit mode this accepts all records that poll has returned or a loop has received. If cancelled, they
        are sent all the same.

        Returns: partition -> None or the error of the broker. With INVALID_RECORD_STATE as its code, a lock had ended,
        and those records are delivered again. Empty if there was nothing to send.
        """
        self._core.send_now({(each.origin, each.offset) for each in copy(self._iterated)})
        results: Mapping[TopicPartition, ConsumerError | None] = await self._network.call(AwaitAcknowledgements)
        self._run_callbacks()
        return results

    def commit_nowait(self) -> None:
        """Send the acknowledgements made so far without waiting. The next poll calls the callback with the results."""
        self._core.send_now({(each.origin, each.offset) for each in copy(self._iterated)})
        self._network.wake()

    def state(self) -> ShareConsumerState:
        """Return the states of the consumer, for logs and tests."""
        connections = self._network.connections
        return ShareConsumerState(
            self._core.coordinator_trace.state,
            self._core.membership.trace.state,
            self._core.held.count,
            {} if connections is None else dict(connections.troubles),
        )

    async def close(self) -> None:
        """Send the acknowledgements and leave. Brokers release records still held. `open_share_consumer` calls this."""
        if self._network.closed_reason:
            return
        try:
            await self.unsubscribe()
        except ConsumerClosed:
            return  # the network task has ended on its own

    # Internal

    async def _wait_for_records(self, deadline: float) -> list[ShareRecord]:
        self._core.begin_poll(self._network.clock.now())
        self._core.is_polling = True
        self._network.wake()
        while True:
            self._run_callbacks()
            self._raise_errors()
            delivery = self._core.take(self._network.clock.now())
            if delivery and (records := [*delivery.renewed, *self._deserialized(share_records(delivery.parts))]):
                return records
            if self._errors:
                continue
            if self._core.membership.fatal is not None:
                raise self._core.membership.fatal
            with trio.move_on_at(deadline) as waiting:
                await self._network.wait_until(self._has_news)
            if waiting.cancelled_caught:
                return []

    def _deserialized(self, records: list[ShareRecord]) -> list[ShareRecord]:
        """Return the records that can be deserialized. The others are released, and a poll raises the error."""
        if not self._deserializers:
            return records
        deserialized: list[ShareRecord] = []
        for record in records:
            good, error = self._deserializers.deserialized((record,))
            deserialized += good
            if error is not None:
                self._core.acknowledge(record.origin, record.offset, record.delivery, AcknowledgeType.RELEASE)
                self._errors[str(error)] = error
        return deserialized

    def _has_news(self) -> bool:
        errors = self._errors or self._network.background.statistics().current_buffer_used
        return bool(self._core.has_news or errors or self._results or self._core.membership.fatal)

    def _run_callbacks(self) -> None:
        while self._results and self._on_acknowledged is not None:
            self._on_acknowledged(self._results.popleft())

    def _raise_errors(self) -> None:
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while True:  # terminates: the channel holds a limited number of errors
                event = self._network.background.receive_nowait()
                if isinstance(event, event_types.BackgroundError):
                    self._network.on_error_reported()
                    self._errors[str(event.error)] = event.error
        for text in self._errors:
            raise self._errors.pop(text)

    def _require_explicit(self, call: str) -> None:
        if not self._options.is_explicit:
            raise ConfigurationError(f'{call} needs acknowledgement_mode="explicit" when the share consumer is opened')
