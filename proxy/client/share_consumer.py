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

from proxy.client.arguments import named_topics
from proxy.client.consumer import WokenUp
from proxy.client.network_task import ConsumerClosed, NetworkLoop
from proxy.client.share_records import ShareRecord, share_records
from proxy.consumer import events as told
from proxy.consumer.events import ConsumerError
from proxy.consumer.options import ConfigurationError
from proxy.consumer.partitions import Partitions
from proxy.consumer.share_acknowledgements import AcknowledgeType
from proxy.consumer.share_core import ShareCore
from proxy.consumer.share_events import AwaitAcknowledgements
from proxy.consumer.share_holds import AcknowledgementResult, LockLostError, renewals_unsupported
from proxy.consumer.share_membership import ShareMemberState
from proxy.consumer.states import CoordinatorState
from proxy.wire.errors import ProxyError
from proxy.wire.values import TopicPartition

RESULTS_MAX = 10_000
"""Results that wait for the callback; the oldest are dropped, for an application that neither polls nor commits."""

OnAcknowledged = Callable[[AcknowledgementResult], None]
"""Called in poll, commit, unsubscribe and close, in the task of the caller, which gets what it raises."""

KINDS = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW)


class ShareConsumerState(NamedTuple):
    """For logs and tests."""

    coordinator: CoordinatorState
    member: ShareMemberState
    held: int
    """Records that were returned and are not acknowledged."""
    troubles: Mapping[int, str]
    """Node -> why it could not be reached lately; -1 stands for the bootstrap servers."""


class ShareConsumer:
    """One share consumer; `open_share_consumer` makes it. Several tasks of one Trio run may use it, one may poll."""

    def __init__(self, network: NetworkLoop[ShareCore], on_acknowledged: OnAcknowledged | None = None) -> None:
        """`on_acknowledged`: hears what became of every acknowledgement."""
        self._network = network
        self._core = network.core
        self._options = network.core.options
        self._on_acknowledged = on_acknowledged
        self._results: deque[AcknowledgementResult] = deque(maxlen=RESULTS_MAX)
        self._errors: dict[str, ProxyError] = {}
        """That wait for a poll to raise them, by their text: what is said again and again is told once."""
        self._is_subscribed = self._is_polling = False
        self._iterated: Iterator[ShareRecord] = iter(())

    def came(self, result: AcknowledgementResult) -> None:
        """Something became of acknowledgements; for the core."""
        if self._on_acknowledged is not None:
            self._results.append(result)

    # What is to be read

    def subscribe(self, topics: Iterable[str]) -> None:
        """Belong to the group with these topics, and no others. ValueError: no topic, or a name no topic can have."""
        names = named_topics(topics)
        if not names:
            raise ValueError("subscribe to at least one topic; unsubscribe ends a subscription")
        self._network.tell(told.Subscribe(names))
        self._is_subscribed = True

    async def unsubscribe(self) -> None:
        """Send what was said, release all else that is held, and leave the group."""
        self._is_subscribed = False
        await self._network.call(told.LeaveGroup)
        self._run_callbacks()

    @property
    def assignment(self) -> Partitions:
        """What the group has given to this member; others may read the same."""
        return self._core.membership.assigned

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long records are locked, as a broker said last (KIP-1222); None before the first answer to a fetch."""
        return None if self._core.held.lock_s is None else round(self._core.held.lock_s * 1000)

    # Records

    async def poll(self, timeout_s: float = math.inf) -> list[ShareRecord]:
        """Wait for records.

        In the implicit mode it accepts what the poll before returned. In the explicit mode that stays held; records
        that were renewed by `acknowledge` come alone, before new ones. Cancelled, it loses nothing.

        Args:
            timeout_s: when to give up waiting; 0 asks for what is there.

        Raises:
            ConfigurationError: nothing is subscribed to. trio.BusyResourceError: another task polls.
            ConsumerError: something failed that no other call waits for; polling on may help, unless it comes again.
            WokenUp: by `wakeup`. What the callback raised.
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
            if left := list(self._iterated):
                return left
            return await self._wait_for_records(trio.current_time() + timeout_s)
        finally:
            self._is_polling = self._core.is_polling = False

    def __aiter__(self) -> ShareConsumer:
        """Record by record, for ever. What is left when the loop is left comes first in the next loop, or poll.

        In the implicit mode a commit accepts no more than the loop was given.
        """
        return self

    async def __anext__(self) -> ShareRecord:
        """The next record; other tasks run when a new poll is needed, not between records of the same."""
        while True:
            for record in self._iterated:
                return record
            self._iterated = iter(await self.poll())

    def wakeup(self) -> None:
        """Have the poll that waits raise WokenUp, or else the next one; cancelling it is the better way in Trio."""
        self._network.interrupt(WokenUp("wakeup was called"))
        self._network.nudge()

    # What becomes of them

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> bool:
        """Say what becomes of a record; it is sent with the next poll or commit, and the last word counts.

        Args:
            record: as poll returned it.
            kind: ACCEPT, RELEASE, REJECT or RENEW; a renewed record comes again with the next poll.

        Returns: False where its lock is lost: it is, or was, delivered again. The callback is told so, too.

        Raises:
            ConfigurationError: in the implicit mode. ValueError: it is acknowledged already, or no kind.
        """
        self._needs_explicit("acknowledge")
        if kind not in KINDS:
            raise ValueError(f"{kind!r}: one of {', '.join(each.name for each in KINDS)}")
        again = record if kind is AcknowledgeType.RENEW else None
        return self._core.say(record.origin, record.offset, record.delivery, AcknowledgeType(kind), again=again)

    async def renew(self, *records: ShareRecord) -> None:
        """Begin the locks of these records anew, now (KIP-1222). They do not come again with the next poll.

        Cancelled: they may be renewed all the same.

        Raises:
            LockLostError: a lock has ended. ConsumerError: it was refused; UNSUPPORTED_VERSION: brokers before 4.2.
            ConfigurationError, ValueError: as of `acknowledge`; nothing is sent then.
        """
        self._needs_explicit("renew")
        holds = [self._core.held.find(each.origin, each.offset, each.delivery) for each in records]
        for hold in holds:
            if hold.lost is not None:
                raise hold.lost
            if not hold.session.can_renew:
                raise renewals_unsupported(hold.session)
        only: dict[TopicPartition, set[int]] = {}
        for each in records:
            self._core.say(each.origin, each.offset, each.delivery, AcknowledgeType.RENEW)
            only.setdefault(each.origin, set()).add(each.offset)
        refused = await self._network.call(lambda call_id: AwaitAcknowledgements(call_id, only))
        for error in refused.values():
            if error is not None:
                raise next((hold.lost for hold in holds if hold.lost is not None), error)

    @asynccontextmanager
    async def work(self, record: ShareRecord) -> AsyncIterator[ShareRecord]:
        """Work on a record for as long as it takes: its lock is renewed until the block ends.

        The record is accepted when the block ends, released when it raises or is cancelled; what the block itself said
        of it with `acknowledge` stands. A lock that is lost all the same cancels the block.

        Raises:
            LockLostError: the lock is lost, before the block or within: another member may be working on the record.
            ConfigurationError: in the implicit mode. ValueError: it is acknowledged already, or worked on.
        """
        self._needs_explicit("work")
        with trio.CancelScope() as scope:
            now = trio.current_time()
            job = self._core.begin_work(record.origin, record.offset, record.delivery, scope.cancel, now)
            self._network.nudge()
            ended = AcknowledgeType.RELEASE
            try:
                yield record
                ended = AcknowledgeType.ACCEPT
            finally:
                is_held = self._core.end_work(job, ended)
                self._network.nudge()
        if not is_held:
            raise job.hold.lost or LockLostError(f"{record.origin} at offset {record.offset}: the lock is lost")

    async def commit(self) -> Mapping[TopicPartition, ConsumerError | None]:
        """Send what was said so far and has no answer yet, and wait for what brokers say of it.

        In the implicit mode all that poll has returned, or a loop was given, is accepted. Cancelled: it is sent all
        the same.

        Returns: for each partition None, or why it was refused; INVALID_RECORD_STATE as the error's code: a lock had
        ended, and those records come again. Empty: there was nothing to send.
        """
        self._core.send_at_once({(each.origin, each.offset) for each in copy(self._iterated)})
        results: Mapping[TopicPartition, ConsumerError | None] = await self._network.call(AwaitAcknowledgements)
        self._run_callbacks()
        return results

    def commit_nowait(self) -> None:
        """Send what was said so far, without waiting; what comes of it the callback is told by the next poll."""
        self._core.send_at_once({(each.origin, each.offset) for each in copy(self._iterated)})
        self._network.nudge()

    def state(self) -> ShareConsumerState:
        """Where it stands."""
        connections = self._network.connections
        return ShareConsumerState(
            self._core.coordinator_trace.state,
            self._core.membership.trace.state,
            self._core.held.count,
            {} if connections is None else dict(connections.troubles),
        )

    async def close(self) -> None:
        """Send what was said, and leave; brokers release what is still held. `open_share_consumer` does it."""
        if self._network.closed:
            return
        try:
            await self.unsubscribe()
        except ConsumerClosed:
            return  # the network task has ended on its own

    # Inside

    async def _wait_for_records(self, deadline: float) -> list[ShareRecord]:
        self._core.begin_poll(trio.current_time())
        self._core.is_polling = True
        self._network.nudge()
        while True:
            self._run_callbacks()
            self._raise_errors()
            taken = self._core.take(trio.current_time())
            if taken:
                return [*taken.again, *share_records(taken.parts)]
            if self._core.membership.fatal is not None:
                raise self._core.membership.fatal
            with trio.move_on_at(deadline) as waiting:
                await self._network.wait_until(self._has_news)
            if waiting.cancelled_caught:
                return []

    def _has_news(self) -> bool:
        errors = self._errors or self._network.background.statistics().current_buffer_used
        return bool(self._core.has_news or errors or self._results or self._core.membership.fatal)

    def _run_callbacks(self) -> None:
        while self._results and self._on_acknowledged is not None:
            self._on_acknowledged(self._results.popleft())

    def _raise_errors(self) -> None:
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while True:  # ends: the channel holds so many errors at most
                event = self._network.background.receive_nowait()
                if isinstance(event, told.BackgroundError):
                    self._network.error_taken()
                    self._errors[str(event.error)] = event.error
        for text in self._errors:
            raise self._errors.pop(text)

    def _needs_explicit(self, call: str) -> None:
        if not self._options.is_explicit:
            raise ConfigurationError(f'{call} needs acknowledgement_mode="explicit" when the share consumer is opened')
