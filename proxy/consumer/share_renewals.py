"""Records that are worked on: their locks are renewed until the work ends (consumer/share_consumers.md rule 11)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from proxy.consumer.share_acknowledgements import AcknowledgeType
from proxy.consumer.share_holds import Hold, ShareHolds
from proxy.consumer.share_session import ShareSession
from proxy.wire.values import TopicPartition

RENEW_AFTER = 0.4
"""Of the lock's duration: when it is renewed. That leaves room for a fetch under way, and for a second attempt."""
RENEW_TOGETHER = 0.2
"""Of the lock's duration: what is due so soon is renewed with what is due now."""
FETCH_WAIT = 0.2
"""Of the lock's duration: how long a fetch may wait at the broker, for nothing is sent while it does."""


@dataclass(slots=True, eq=False)
class ShareJob:
    """Somebody works on a record."""

    partition: TopicPartition
    offset: int
    hold: Hold


class ShareRenewals:
    """Of one share consumer."""

    def __init__(self, held: ShareHolds) -> None:
        self._held = held
        self._jobs: dict[ShareSession, set[ShareJob]] = {}
        self._next: dict[ShareSession, float] = {}
        """When the first of a session is due; it may be earlier than that."""

    def begin(
        self, partition: TopicPartition, offset: int, delivery: int, on_lost: Callable[[], None], now: float
    ) -> ShareJob:
        """Renew the lock of a record from now on.

        Args:
            partition: of the record.
            offset: of the record.
            delivery: of the record.
            on_lost: called once if the lock is lost meanwhile; must not raise.
            now: seconds, monotonic.

        Raises:
            ValueError: it is acknowledged, was never delivered, or is worked on already. LockLostError: it is too late.
        """
        hold = self._held.find(partition, offset, delivery)
        if hold.lost is None and hold.lock_until <= now:
            self._held.taken_away(partition, offset, offset)
        if hold.lost is not None:
            raise hold.lost
        if hold.on_lost is not None:
            raise ValueError(f"{partition} at offset {offset} is worked on already")
        hold.on_lost = on_lost
        job = ShareJob(partition, offset, hold)
        self._jobs.setdefault(hold.session, set()).add(job)
        self._next[hold.session] = min(self._next.get(hold.session, math.inf), self._due_at(hold))
        return job

    def end(self, job: ShareJob, kind: AcknowledgeType) -> bool:
        """The work has ended; unless something final was said meanwhile, this is said of the record, at once.

        Returns: False where the lock is lost.
        """
        hold = job.hold
        hold.on_lost = None
        self._forget(job)
        if hold.lost is not None:
            return False
        hold.session.is_urgent = True
        if hold.is_settled or hold.said not in (None, AcknowledgeType.RENEW):
            return True
        return self._held.say(job.partition, job.offset, hold, kind)

    def renew_due(self, now: float) -> None:
        """Have renewed what is due, and what is due soon."""
        soon = now + RENEW_TOGETHER * (self._held.lock_s or 0.0)
        for session in [each for each, at in self._next.items() if at <= now]:
            for job in list(self._jobs.get(session, ())):
                if job.hold.lost is not None:
                    self._forget(job)
                elif self._due_at(job.hold) <= soon:
                    self._held.say(job.partition, job.offset, job.hold, AcknowledgeType.RENEW)
                    session.is_urgent = True
            self._plan(session)

    def answered(self, session: ShareSession) -> None:
        """A broker answered a request of the session: what was renewed is due later."""
        self._plan(session)

    def wake_at(self) -> float:
        """When something is due."""
        return min(self._next.values(), default=math.inf)

    def fetch_wait_s(self, session: ShareSession, most_s: float, now: float) -> float:
        """How long a fetch may wait at the broker, so that what is due meanwhile is not renewed too late."""
        if self._held.lock_s is None or not self._held.count:
            return most_s
        until_due = self._next.get(session, math.inf) - now
        return max(0.0, min(most_s, FETCH_WAIT * self._held.lock_s, until_due))

    def _due_at(self, hold: Hold) -> float:
        """Never while a renewal is due or under way, or where the broker does not renew."""
        if hold.said is not None or hold.sent is not None or not hold.session.can_renew:
            return math.inf
        return hold.lock_until - (1 - RENEW_AFTER) * (self._held.lock_s or 0.0)

    def _plan(self, session: ShareSession) -> None:
        jobs = self._jobs.get(session)
        if not jobs:
            self._next.pop(session, None)
            self._jobs.pop(session, None)
        else:
            self._next[session] = min(self._due_at(job.hold) for job in jobs)

    def _forget(self, job: ShareJob) -> None:
        jobs = self._jobs.get(job.hold.session, set())
        jobs.discard(job)
        if not jobs:
            self._plan(job.hold.session)
