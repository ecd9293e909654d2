"""What a member holds, what is said of it, what becomes of that (consumer/share_consumers.md rules 5, 10 and 12).

Theory of operation. A record is held from its delivery until an answer about it: `Hold`. What is said of it waits in
its session (`due`), is sent with a request (`under_way`), and is answered for each partition. A renewed record stays
held. A hold whose lock is known to be gone is lost: it stays, so that whoever still works on the record is told so, and
is forgotten when something was said of it, when the record is delivered again, or when there are LOST_MAX of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from proxy.consumer.events import BrokerRefused, ConsumerError
from proxy.consumer.share_acknowledgements import AcknowledgeType, Said
from proxy.consumer.share_session import Acknowledgements, ShareSession
from proxy.wire.errors import ErrorCode
from proxy.wire.values import TopicPartition

LOST_MAX = 10_000
"""Lost holds that are remembered; of older ones nothing is known any more."""
RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""The broker could not store what was said: it is said again for as long as the locks last."""


class LockLostError(ConsumerError):
    """The acquisition lock has ended: the record is delivered again, or was, perhaps to another member."""


class AcknowledgementResult(NamedTuple):
    """What became of acknowledgements of one partition (AcknowledgementCommitCallback of KIP-932)."""

    partition: TopicPartition
    said: Said
    error: ConsumerError | None
    """None: the broker has taken them; INVALID_RECORD_STATE as the code: the locks had ended."""
    renewals: int = 0
    """How often, at most, one of the records has been renewed so far."""


@dataclass(slots=True, eq=False)
class Hold:
    """One record that was delivered and not finally acknowledged."""

    session: ShareSession
    delivery: int
    """Tells it from other deliveries of the same record."""
    lock_until: float
    said: AcknowledgeType | None = None
    """The acknowledgement that is to be sent."""
    sent: AcknowledgeType | None = None
    """The acknowledgement that was sent and is not answered yet."""
    renewals: int = 0
    again: Any = None
    """What the next poll returns once it is renewed; None: nothing."""
    on_lost: Callable[[], None] | None = None
    """Whom to tell once the lock is gone: somebody works on it."""
    lost: ConsumerError | None = None

    @property
    def is_settled(self) -> bool:
        """Whether what was said of it is final and under way, so that nothing else can be said."""
        return self.sent not in (None, AcknowledgeType.RENEW)


class ShareHolds:
    """Of one share consumer."""

    def __init__(self, on_result: Callable[[AcknowledgementResult], None]) -> None:
        """`on_result`: hears what became of everything that was said, gaps left out."""
        self.lock_s: float | None = None
        """How long acquisition locks last, as a broker said last; None: none has."""
        self.count = 0
        """Records that are held and not lost."""
        self._on_result = on_result
        self._of: dict[TopicPartition, dict[int, Hold]] = {}
        self._lost: deque[tuple[TopicPartition, int, Hold]] = deque()
        self._again: dict[tuple[TopicPartition, int], Hold] = {}
        self._deliveries = 0

    # Deliveries

    def deliver(
        self, partition: TopicPartition, offsets: Iterable[int], session: ShareSession, lock_until: float
    ) -> int:
        """The application is given these. Returns: the number of the delivery."""
        self._deliveries += 1
        held = self._of.setdefault(partition, {})
        for offset in offsets:
            before = held.get(offset)
            if before is not None and before.lost is None:
                self._lose(partition, offset, before, _too_late(partition))
            held[offset] = Hold(session, self._deliveries, lock_until)
            self.count += 1
        return self._deliveries

    def settle(
        self, session: ShareSession, partition: TopicPartition, offsets: Iterable[int], kind: AcknowledgeType
    ) -> None:
        """Say something of offsets that the application was never given."""
        said = dict.fromkeys(offsets, kind)
        if said:
            session.due.setdefault(partition, {}).update(said)

    def taken_away(self, partition: TopicPartition, first: int, last: int) -> None:
        """These were acquired anew, or can be: whoever held them has lost them."""
        held = self._of.get(partition, {})
        acquired = range(first, last + 1)
        taken = [each for each in held if each in acquired] if len(held) < len(acquired) else acquired
        for offset in taken:
            hold = held.get(offset)
            if hold is not None and hold.lost is None:
                self._lose(partition, offset, hold, _too_late(partition))

    def find(self, partition: TopicPartition, offset: int, delivery: int) -> Hold:
        """The hold of a delivered record; it may be lost.

        Raises:
            ValueError: it was not delivered here, or is acknowledged already.
        """
        hold = self._of.get(partition, {}).get(offset)
        if hold is None or delivery > hold.delivery or (delivery == hold.delivery and hold.is_settled):
            raise ValueError(f"{partition} at offset {offset} is not held: it was acknowledged, or never returned here")
        if delivery < hold.delivery:
            return Hold(hold.session, delivery, -math.inf, lost=_too_late(partition))
        return hold

    # What is said

    def say(
        self, partition: TopicPartition, offset: int, hold: Hold, kind: AcknowledgeType, *, again: Any = None
    ) -> bool:
        """Say what becomes of a held record; what was said before and not sent does not count any more.

        Args:
            partition: of the record.
            offset: of the record.
            hold: what `find` returned.
            kind: anything but GAP.
            again: what the next poll is to return once the record is renewed.

        Returns: False where the lock is lost; the result says so, too.
        """
        if hold.lost is not None:
            held = self._of.get(partition, {})
            if held.get(offset) is hold:
                del held[offset]
            self._answered(partition, {offset: kind}, hold.lost)
            return False
        if kind is AcknowledgeType.RENEW and not hold.session.can_renew:
            self._answered(partition, {offset: kind}, renewals_unsupported(hold.session))
            return True
        self._again.pop((partition, offset), None)
        hold.said, hold.again = kind, again
        hold.session.due.setdefault(partition, {})[offset] = kind
        return True

    def accept_all(self, but: Container[tuple[TopicPartition, int]] = ()) -> None:
        """Whatever the application has been given is processed (the implicit mode), but for these offsets."""
        for partition, held in self._of.items():
            for offset, hold in held.items():
                if (partition, offset) in but:
                    continue
                if hold.lost is None and hold.said is None and hold.sent is None:
                    self.say(partition, offset, hold, AcknowledgeType.ACCEPT)

    # Requests

    def take_due(self, session: ShareSession, now: float) -> Acknowledgements:
        """What the next request is to say; it is under way from now on.

        What our clock says is too late is kept for a request of its own: a broker refuses all that is said of a
        partition where one of its locks has ended.
        """
        fresh: Acknowledgements = {}
        late: Acknowledgements = {}
        for partition, said in session.due.items():
            held = self._of.get(partition, {})
            for offset, kind in said.items():
                hold = held.get(offset)
                is_late = hold is not None and hold.session is session and hold.lock_until <= now
                (late if is_late else fresh).setdefault(partition, {})[offset] = kind
        taken, session.due = (fresh, late) if fresh else (late, {})
        session.under_way, session.is_urgent = taken, session.is_urgent and bool(session.due)
        for partition, said in taken.items():
            for offset, hold in self._holds(session, partition, said):
                hold.sent, hold.said = said[offset], None
        return taken

    def not_sent(self, session: ShareSession) -> None:
        """What was under way has changed nothing: it is due again, where nothing else was said meanwhile."""
        under_way, session.under_way = session.under_way, {}
        for partition, said in under_way.items():
            self._due_again(session, partition, said)

    def refuse_renewals(self, session: ShareSession) -> None:
        """The broker does not speak the version in which locks are renewed (KIP-1222)."""
        session.can_renew = False
        self.drop_renewals(session, renewals_unsupported(session))

    def drop_renewals(self, session: ShareSession, error: ConsumerError) -> None:
        """Renewals that are due are not sent; the records stay held."""
        for partition, said in list(session.due.items()):
            renewing = {offset: kind for offset, kind in said.items() if kind is AcknowledgeType.RENEW}
            for offset, hold in self._holds(session, partition, renewing):
                hold.said = None
                del said[offset]
            if renewing:
                self._answered(partition, renewing, error)

    def answered(
        self, session: ShareSession, partition: TopicPartition, code: ErrorCode, lock_from: float, now: float
    ) -> None:
        """A broker said what became of what was sent of a partition.

        Args:
            session: of the request.
            partition: of which it said something.
            code: 0, or why nothing of it was done; of renewals some may be.
            lock_from: when locks that are renewed begin at the earliest; seconds, monotonic.
            now: seconds, monotonic.
        """
        said = session.under_way.pop(partition, {})
        holds = self._holds(session, partition, said)
        if code in RETRIABLE and any(hold.lock_until > now for _, hold in holds):
            self._due_again(session, partition, said)
            return
        error = BrokerRefused("ShareAcknowledge", code, str(partition)) if code else None
        renewals = 0
        for offset, hold in holds:
            kind, hold.sent = said[offset], None
            if kind is not AcknowledgeType.RENEW:
                self._drop(partition, offset, hold)
            elif error is None:
                self._renewed(partition, offset, hold, lock_from)
                renewals = max(renewals, hold.renewals)
            else:
                self._lose(partition, offset, hold, LockLostError(f"the lock could not be renewed: {error}"))
        self._answered(partition, said, error, renewals)

    def lose(self, session: ShareSession, error: ConsumerError, partition: TopicPartition | None = None) -> None:
        """The locks taken under a session are gone, all or those of a partition; what was said of them has no effect.

        What is under way counts among it, unless it was answered before.
        """
        for waiting in (session.under_way, session.due):
            for each in [found for found in waiting if partition in (None, found)]:
                said = waiting.pop(each)
                for offset, hold in self._holds(session, each, said):
                    hold.said = hold.sent = None
                    if said[offset] is not AcknowledgeType.RENEW:
                        self._drop(each, offset, hold)
                self._answered(each, said, error)
        for each in [found for found in self._of if partition in (None, found)]:
            for offset, hold in self._holds(session, each, list(self._of[each])):
                self._lose(each, offset, hold, LockLostError(f"{each} at offset {offset}: {error}"))

    # Renewed records

    def returnable(self) -> list[Any]:
        """Renewed records that the next poll returns, each once (KIP-1222)."""
        found, self._again = self._again, {}
        return [hold.again for hold in found.values() if hold.lost is None]

    @property
    def has_returnable(self) -> bool:
        """Whether there are any."""
        return bool(self._again)

    # Inside

    def _holds(
        self, session: ShareSession, partition: TopicPartition, offsets: Iterable[int]
    ) -> list[tuple[int, Hold]]:
        """Holds of these offsets that were taken under the session, and are not lost."""
        held = self._of.get(partition, {})
        found = ((offset, held.get(offset)) for offset in offsets)
        return [
            (offset, hold) for offset, hold in found if hold is not None and hold.session is session and not hold.lost
        ]

    def _due_again(self, session: ShareSession, partition: TopicPartition, said: Said) -> None:
        due = session.due.setdefault(partition, {})
        due.update({offset: kind for offset, kind in said.items() if offset not in due})
        session.is_urgent = True
        for offset, hold in self._holds(session, partition, said):
            hold.sent, hold.said = None, due[offset]

    def _renewed(self, partition: TopicPartition, offset: int, hold: Hold, lock_from: float) -> None:
        hold.renewals += 1
        hold.lock_until = lock_from + (self.lock_s or 0.0)
        if hold.again is not None and hold.said is None:
            self._again[partition, offset] = hold

    def _drop(self, partition: TopicPartition, offset: int, hold: Hold) -> None:
        """It is not held any more."""
        del self._of[partition][offset]
        if not self._of[partition]:
            del self._of[partition]
        self._again.pop((partition, offset), None)
        if hold.lost is None:
            self.count -= 1

    def _lose(self, partition: TopicPartition, offset: int, hold: Hold, error: ConsumerError) -> None:
        hold.lost, hold.on_lost, on_lost = error, None, hold.on_lost
        self.count -= 1
        self._again.pop((partition, offset), None)
        said = hold.session.due.get(partition, {})
        if hold.said is not None and offset in said:
            self._answered(partition, {offset: said.pop(offset)}, error)
        self._lost.append((partition, offset, hold))
        while len(self._lost) > LOST_MAX:
            self._forget(*self._lost.popleft())
        if on_lost is not None:
            on_lost()

    def _forget(self, partition: TopicPartition, offset: int, hold: Hold) -> None:
        if self._of.get(partition, {}).get(offset) is hold:
            self._drop(partition, offset, hold)

    def _answered(self, partition: TopicPartition, said: Said, error: ConsumerError | None, renewals: int = 0) -> None:
        told = {offset: kind for offset, kind in said.items() if kind is not AcknowledgeType.GAP}
        if told:
            self._on_result(AcknowledgementResult(partition, told, error, renewals))


def _too_late(partition: TopicPartition) -> LockLostError:
    return LockLostError(f"{partition}: the acquisition lock has ended; the record is delivered again, or was")


def renewals_unsupported(session: ShareSession) -> ConsumerError:
    """What becomes of a renewal where the broker speaks version 1 only (R003-6)."""
    about = f"node {session.node_id}"
    return BrokerRefused("ShareAcknowledge", ErrorCode.UNSUPPORTED_VERSION, about, "no KIP-1222")
