"""Renewal of the locks of records while the application processes them (consumer/share_consumers.md rule 11)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_holds import Hold, ShareHolds
from kafka_share_proxy.consumer.share.share_session import ShareSession
from kafka_share_proxy.wire.values import TopicPartition

RENEW_AFTER = 0.4
"""Fraction of the lock duration after which a lock is renewed. Leaves time for a fetch in flight and one retry."""
RENEW_TOGETHER = 0.2
"""Fraction of the lock duration within which locks are renewed together."""
FETCH_WAIT = 0.2
"""Fraction of the lock duration that a fetch may wait at the broker."""
CHECKED_EVERY_S = 1.0
"""Seconds between two checks of locks: timers stop while the machine is suspended."""


@dataclass(slots=True, eq=False)
class ShareJob:
    """A record that the application is processing."""

    partition: TopicPartition
    offset: int
    hold: Hold


class ShareRenewals:
    """Records of one share consumer whose locks are renewed."""

    def __init__(self, held: ShareHolds) -> None:
        self._held = held
        self._jobs: dict[ShareSession, set[ShareJob]] = {}
        self._next_check_at: dict[ShareSession, float] = {}
        """Time of the next renewal or check of each session; monotonic seconds."""

    def begin(
        self, partition: TopicPartition, offset: int, delivery: int, on_lost: Callable[[], None], now: float
    ) -> ShareJob:
        """Renew the lock of a record from now on. `on_lost` is called once if the lock is lost, and must not raise.

        Raises ValueError if the record is acknowledged, was never delivered, or is already being processed;
        LockLostError if the lock is lost.
        """
        hold = self._held.find(partition, offset, delivery)
        self._held.lose_if_expired(partition, offset, hold, now)
        if hold.lost is not None:
            raise hold.lost
        if hold.on_lost is not None:
            raise ValueError(f"{partition} at offset {offset} is already being processed")
        hold.on_lost = on_lost
        job = ShareJob(partition, offset, hold)
        self._jobs.setdefault(hold.session, set()).add(job)
        self._next_check_at[hold.session] = min(
            self._next_check_at.get(hold.session, math.inf), self._next_check_of(hold)
        )
        return job

    def end(self, job: ShareJob, kind: AcknowledgeType, now: float) -> bool:
        """End the renewals and acknowledge the record. Return False if the lock is lost."""
        hold = job.hold
        hold.on_lost = None
        self._forget(job)
        if hold.lost is not None:
            return False
        if not hold.is_final and self._held.lose_if_expired(job.partition, job.offset, hold, now):
            return False
        hold.session.is_urgent = True
        if hold.is_final:
            return True
        return self._held.acknowledge(job.partition, job.offset, hold, kind)

    def renew_due(self, now: float) -> None:
        """Queue renewals of locks that are due, or will be soon, and forget records whose lock is lost."""
        soon = now + RENEW_TOGETHER * (self._held.lock_s or 0.0)
        for session in [each for each, at in self._next_check_at.items() if at <= now]:
            for job in list(self._jobs.get(session, ())):
                if self._is_lost(job, now):
                    self._forget(job)
                elif self._due_at(job.hold) <= soon:
                    self._held.acknowledge(job.partition, job.offset, job.hold, AcknowledgeType.RENEW)
                    session.is_urgent = True
            self._plan(session)

    def on_response(self, session: ShareSession) -> None:
        self._plan(session)

    def wake_at(self, now: float) -> float:
        return min(*self._next_check_at.values(), now + CHECKED_EVERY_S) if self._next_check_at else math.inf

    def fetch_wait_s(self, session: ShareSession, most_s: float, now: float) -> float:
        """Return the seconds that a fetch may wait at the broker without delaying a renewal, at most `most_s`."""
        if self._held.lock_s is None or not self._held.count:
            return most_s
        until_due = self._next_check_at.get(session, math.inf) - now
        return max(0.0, min(most_s, FETCH_WAIT * self._held.lock_s, until_due))

    def _is_lost(self, job: ShareJob, now: float) -> bool:
        if job.hold.is_final:
            return job.hold.lost is not None
        return self._held.lose_if_expired(job.partition, job.offset, job.hold, now)

    def _next_check_of(self, hold: Hold) -> float:
        return min(self._due_at(hold), math.inf if hold.is_final else hold.lock_until)

    def _due_at(self, hold: Hold) -> float:
        """Return infinity while a renewal is due or in flight, or if the broker cannot renew."""
        if hold.unsent is not None or hold.sent is not None or not hold.session.can_renew:
            return math.inf
        return hold.lock_until - (1 - RENEW_AFTER) * (self._held.lock_s or 0.0)

    def _plan(self, session: ShareSession) -> None:
        jobs = self._jobs.get(session)
        if not jobs:
            self._next_check_at.pop(session, None)
            self._jobs.pop(session, None)
        else:
            self._next_check_at[session] = min(self._next_check_of(job.hold) for job in jobs)

    def _forget(self, job: ShareJob) -> None:
        jobs = self._jobs.get(job.hold.session, set())
        jobs.discard(job)
        if not jobs:
            self._plan(job.hold.session)
