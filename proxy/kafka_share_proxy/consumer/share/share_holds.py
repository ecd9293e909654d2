"""Records that a member holds, their acknowledgements and the results (consumer/share_consumers.md rules 5, 10 and 12).

A record is held (`Hold`) until the broker has responded to its final acknowledgement, which waits in its session
(`due`) and is sent with a request (`in_flight`). A hold whose lock is gone is lost. It is kept, so that a worker that
still processes the record gets an error, until the record is acknowledged or delivered again, or more than LOST_MAX
holds are lost.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka_share_proxy.consumer.events import BrokerRefused, ConsumerError
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType, NamedDelays, TypesByOffset
from kafka_share_proxy.consumer.share.share_session import Acknowledgements, ShareSession
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

LOST_MAX = 10_000
"""Maximum number of lost holds kept. Beyond it, the oldest one is removed."""
RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Codes after which acknowledgements are sent again while the locks last."""


class LockLostError(ConsumerError):
    """The acquisition lock has ended."""

    code = ErrorCode.INVALID_RECORD_STATE


class AcknowledgementResult(NamedTuple):
    """Outcome of sent acknowledgements (AcknowledgementCommitCallback of KIP-932)."""

    partition: TopicPartition
    types: TypesByOffset
    error: ConsumerError | None
    """None if the broker accepted."""
    renewals: int = 0
    is_delay_ignored: bool = False
    """True if a delay was named for a record, and the broker did not confirm it."""

    @property
    def said(self) -> TypesByOffset:
        """Earlier name of `types`."""
        return self.types


@dataclass(slots=True, eq=False)
class Hold:
    """One record that was delivered and not finally acknowledged."""

    session: ShareSession
    delivery: int
    lock_until: float
    unsent: AcknowledgeType | None = None
    sent: AcknowledgeType | None = None
    delay_ms: int | None = None
    """Named delay of its release."""
    renewals: int = 0
    renewed_record: Any = None
    """Returned by the next poll after the renewal."""
    on_lost: Callable[[], None] | None = None
    """Function to call if the lock is lost, set while the application processes the record."""
    lost: ConsumerError | None = None

    @property
    def is_settled(self) -> bool:
        """True if no other acknowledgement can be made."""
        return self.sent not in (None, AcknowledgeType.RENEW)

    @property
    def is_final(self) -> bool:
        """True if the last acknowledgement is final. The broker decides whether it is in time."""
        return self.is_settled or self.unsent not in (None, AcknowledgeType.RENEW)


class ShareHolds:
    """Held records of one share consumer."""

    def __init__(self, on_result: Callable[[AcknowledgementResult], None]) -> None:
        self.lock_s: float | None = None
        """Lock duration as last reported by a broker."""
        self.count = 0
        self._on_result = on_result
        self._holds_by_partition: dict[TopicPartition, dict[int, Hold]] = {}
        self._lost: deque[tuple[TopicPartition, int, Hold]] = deque()
        self._renewed_holds: dict[tuple[TopicPartition, int], Hold] = {}
        self._deliveries = 0

    # Deliveries

    def deliver(
        self, partition: TopicPartition, offsets: Iterable[int], session: ShareSession, lock_until: float
    ) -> int:
        """Hold delivered records until their locks end. Return the number of the delivery."""
        self._deliveries += 1
        holds = self._holds_by_partition.setdefault(partition, {})
        for offset in offsets:
            before = holds.get(offset)
            if before is not None and before.lost is None:
                self._lose(partition, offset, before, _lock_ended(partition))
            holds[offset] = Hold(session, self._deliveries, lock_until)
            self.count += 1
        return self._deliveries

    def settle(
        self, session: ShareSession, partition: TopicPartition, offsets: Iterable[int], kind: AcknowledgeType
    ) -> None:
        """Acknowledge offsets that were never returned to the application."""
        acks = dict.fromkeys(offsets, kind)
        if acks:
            session.due.setdefault(partition, {}).update(acks)

    def lose_reacquired(self, partition: TopicPartition, first: int, last: int) -> None:
        """Lose the holds of records that were acquired again: their old locks have ended."""
        holds = self._holds_by_partition.get(partition, {})
        acquired = range(first, last + 1)
        lost_offsets = [each for each in holds if each in acquired] if len(holds) < len(acquired) else acquired
        for offset in lost_offsets:
            hold = holds.get(offset)
            if hold is not None and hold.lost is None:
                self._lose(partition, offset, hold, _lock_ended(partition))

    def lose_if_expired(self, partition: TopicPartition, offset: int, hold: Hold, now: float) -> bool:
        """Return True if the record is lost, now or before (consumer/share_consumers.md rule 16)."""
        if hold.lost is None and hold.lock_until <= now:
            self._lose(partition, offset, hold, _lock_ended(partition))
        return hold.lost is not None

    def find(self, partition: TopicPartition, offset: int, delivery: int) -> Hold:
        """Return the hold of a delivered record. It may be lost.

        Raises ValueError if the record was not delivered here, or is acknowledged already.
        """
        hold = self._holds_by_partition.get(partition, {}).get(offset)
        if hold is None or delivery > hold.delivery or (delivery == hold.delivery and hold.is_settled):
            raise ValueError(f"{partition} at offset {offset} is not held: it was acknowledged, or never returned here")
        if delivery < hold.delivery:
            return Hold(hold.session, delivery, -math.inf, lost=_lock_ended(partition))
        return hold

    # Acknowledgements

    def acknowledge(
        self,
        partition: TopicPartition,
        offset: int,
        hold: Hold,
        kind: AcknowledgeType,
        *,
        renewed: Any = None,
        delay_ms: int | None = None,
    ) -> bool:
        """Replace an acknowledgement that was not sent yet. Return False if the lock is lost.

        `renewed` is the object that the next poll returns after the record is renewed. `delay_ms`: named for a
        release.
        """
        if hold.lost is not None:
            held = self._holds_by_partition.get(partition, {})
            if held.get(offset) is hold:
                del held[offset]
            self._report(partition, {offset: kind}, hold.lost)
            return False
        if kind is AcknowledgeType.RENEW and not hold.session.can_renew:
            self._report(partition, {offset: kind}, renewals_unsupported(hold.session))
            return True
        self._renewed_holds.pop((partition, offset), None)
        hold.unsent, hold.renewed_record, hold.delay_ms = kind, renewed, delay_ms
        hold.session.due.setdefault(partition, {})[offset] = kind
        return True

    def accept_all(self, but: Container[tuple[TopicPartition, int]] = ()) -> None:
        """Accept all records except `but` (implicit mode)."""
        for partition, holds in self._holds_by_partition.items():
            for offset, hold in holds.items():
                if (partition, offset) in but:
                    continue
                if hold.lost is None and hold.unsent is None and hold.sent is None:
                    self.acknowledge(partition, offset, hold, AcknowledgeType.ACCEPT)

    # Requests

    def take_due(self, session: ShareSession, now: float) -> Acknowledgements:
        """Return acknowledgements for the next request, late ones separately (consumer/share_consumers.md rule 10)."""
        fresh: Acknowledgements = {}
        late: Acknowledgements = {}
        for partition, acks in session.due.items():
            held = self._holds_by_partition.get(partition, {})
            for offset, kind in acks.items():
                hold = held.get(offset)
                is_late = hold is not None and hold.session is session and hold.lock_until <= now
                (late if is_late else fresh).setdefault(partition, {})[offset] = kind
        sent, session.due = (fresh, late) if fresh else (late, {})
        session.in_flight, session.is_urgent = sent, session.is_urgent and bool(session.due)
        for partition, acks in sent.items():
            for offset, hold in self._holds(session, partition, acks):
                hold.sent, hold.unsent = acks[offset], None
        return sent

    def delays_of(self, acks: Acknowledgements) -> NamedDelays:
        """Return the named delays of acknowledgements that were taken."""
        held = self._holds_by_partition
        by_partition = {
            partition: {
                offset: hold.delay_ms
                for offset, kind in kinds.items()
                if kind is AcknowledgeType.RELEASE
                and (hold := held.get(partition, {}).get(offset)) is not None
                and hold.delay_ms is not None
            }
            for partition, kinds in acks.items()
        }
        return {partition: delays for partition, delays in by_partition.items() if delays}

    def requeue(self, session: ShareSession) -> None:
        """Send the acknowledgements in flight again: the broker has not processed them."""
        in_flight, session.in_flight = session.in_flight, {}
        for partition, acks in in_flight.items():
            self._requeue(session, partition, acks)

    def refuse_renewals(self, session: ShareSession) -> None:
        """Drop renewals: the broker lacks their version (KIP-1222)."""
        session.can_renew = False
        self.drop_renewals(session, renewals_unsupported(session))

    def drop_renewals(self, session: ShareSession, error: ConsumerError) -> None:
        """Drop renewals. The records stay held."""
        for partition, acks in list(session.due.items()):
            renewing = {offset: kind for offset, kind in acks.items() if kind is AcknowledgeType.RENEW}
            for offset, hold in self._holds(session, partition, renewing):
                hold.unsent = None
                del acks[offset]
            if renewing:
                self._report(partition, renewing, error)

    def on_response(
        self,
        session: ShareSession,
        partition: TopicPartition,
        code: ErrorCode,
        lock_from: float,
        now: float,
        *,
        is_delayed: bool = False,
    ) -> None:
        """Process a response. `code` is 0, or the reason why the broker did nothing, except perhaps renewals.

        `lock_from`: earliest start of the renewed locks. `is_delayed`: the named delays were confirmed.
        """
        acks = session.in_flight.pop(partition, {})
        holds = self._holds(session, partition, acks)
        if code in RETRIABLE and any(hold.lock_until > now for _, hold in holds):
            self._requeue(session, partition, acks)
            return
        error = BrokerRefused("ShareAcknowledge", code, str(partition)) if code else None
        is_ignored = not (code or is_delayed) and bool(self.delays_of({partition: acks}))
        renewals, renewed = 0, set()
        for offset, hold in holds:
            kind, hold.sent = acks[offset], None
            if kind is not AcknowledgeType.RENEW:
                self._drop(partition, offset, hold)
            elif error is not None:
                self._lose(partition, offset, hold, LockLostError(f"the lock could not be renewed: {error}"))
            elif not self.lose_if_expired(partition, offset, hold, now):
                self._extend_lock(partition, offset, hold, lock_from)
                renewals = max(renewals, hold.renewals)
                renewed.add(offset)
        late = {each for each, kind in acks.items() if kind is AcknowledgeType.RENEW and each not in renewed}
        if error is None and late:
            self._report(partition, {each: acks.pop(each) for each in late}, _lock_ended(partition))
        self._report(partition, acks, error, renewals, is_ignored)

    def lose(self, session: ShareSession, error: ConsumerError, partition: TopicPartition | None = None) -> None:
        """Lose locks. Acknowledgements that are due, or in flight without a result, get the error."""
        for waiting in (session.in_flight, session.due):
            for each in [partitions for partitions in waiting if partition in (None, partitions)]:
                acks = waiting.pop(each)
                for offset, hold in self._holds(session, each, acks):
                    hold.unsent = hold.sent = None
                    if acks[offset] is not AcknowledgeType.RENEW:
                        self._drop(each, offset, hold)
                self._report(each, acks, error)
        for each in [partitions for partitions in self._holds_by_partition if partition in (None, partitions)]:
            for offset, hold in self._holds(session, each, list(self._holds_by_partition[each])):
                self._lose(each, offset, hold, LockLostError(f"{each} at offset {offset}: {error}"))

    # Renewed records

    def returnable(self, now: float) -> list[Any]:
        """Return each renewed record once (KIP-1222)."""
        renewed, self._renewed_holds = self._renewed_holds, {}
        for (partition, offset), hold in renewed.items():
            self.lose_if_expired(partition, offset, hold, now)
        return [hold.renewed_record for hold in renewed.values() if hold.lost is None]

    @property
    def has_returnable(self) -> bool:
        return bool(self._renewed_holds)

    # Internal

    def _holds(
        self, session: ShareSession, partition: TopicPartition, offsets: Iterable[int]
    ) -> list[tuple[int, Hold]]:
        held = self._holds_by_partition.get(partition, {})
        candidates = ((offset, held.get(offset)) for offset in offsets)
        return [
            (offset, hold)
            for offset, hold in candidates
            if hold is not None and hold.session is session and not hold.lost
        ]

    def _requeue(self, session: ShareSession, partition: TopicPartition, acks: TypesByOffset) -> None:
        due = session.due.setdefault(partition, {})
        due.update({offset: kind for offset, kind in acks.items() if offset not in due})
        session.is_urgent = True
        for offset, hold in self._holds(session, partition, acks):
            hold.sent, hold.unsent = None, due[offset]

    def _extend_lock(self, partition: TopicPartition, offset: int, hold: Hold, lock_from: float) -> None:
        hold.renewals += 1
        hold.lock_until = lock_from + (self.lock_s or 0.0)
        if hold.renewed_record is not None and hold.unsent is None:
            self._renewed_holds[partition, offset] = hold

    def _drop(self, partition: TopicPartition, offset: int, hold: Hold) -> None:
        del self._holds_by_partition[partition][offset]
        if not self._holds_by_partition[partition]:
            del self._holds_by_partition[partition]
        self._renewed_holds.pop((partition, offset), None)
        if hold.lost is None:
            self.count -= 1

    def _lose(self, partition: TopicPartition, offset: int, hold: Hold, error: ConsumerError) -> None:
        hold.lost, hold.on_lost, on_lost = error, None, hold.on_lost
        self.count -= 1
        self._renewed_holds.pop((partition, offset), None)
        acks = hold.session.due.get(partition, {})
        if hold.unsent is not None and offset in acks:
            self._report(partition, {offset: acks.pop(offset)}, error)
            if not acks:
                del hold.session.due[partition]
        self._lost.append((partition, offset, hold))
        while len(self._lost) > LOST_MAX:
            self._forget(*self._lost.popleft())
        if on_lost is not None:
            on_lost()

    def _forget(self, partition: TopicPartition, offset: int, hold: Hold) -> None:
        if self._holds_by_partition.get(partition, {}).get(offset) is hold:
            self._drop(partition, offset, hold)

    def _report(
        self,
        partition: TopicPartition,
        acks: TypesByOffset,
        error: ConsumerError | None,
        renewals: int = 0,
        is_delay_ignored: bool = False,
    ) -> None:
        reported = {offset: kind for offset, kind in acks.items() if kind is not AcknowledgeType.GAP}
        if reported:
            self._on_result(AcknowledgementResult(partition, reported, error, renewals, is_delay_ignored))


def _lock_ended(partition: TopicPartition) -> LockLostError:
    return LockLostError(f"{partition}: the acquisition lock has ended; the record is delivered again, or was")


def renewals_unsupported(session: ShareSession) -> ConsumerError:
    """Build the error for a renewal on a broker that speaks only version 1 (R003-6)."""
    about = f"node {session.node_id}"
    return BrokerRefused("ShareAcknowledge", ErrorCode.UNSUPPORTED_VERSION, about, "no KIP-1222")
