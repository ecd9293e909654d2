"""Receivers of what a journal finds out about its appends, and about the partitions of its topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kafka_share_proxy.durable.interfaces import JournalRefused
from kafka_share_proxy.durable.producer_requests import Lost, Outcome, Refused, Stored, TakenOver, WentBack
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.errors import ErrorCode


class JournalEvents(NamedTuple):
    """Callbacks of a journal, for the owner of its partitions."""

    need_view: Callable[[], None] = lambda: None
    """Called when a leader is unknown or may have changed."""
    taken_over: Callable[[int, TakenOver], None] = lambda _partition, _outcome: None
    checking: Callable[[int], None] = lambda _partition: None
    """Called with a partition to check for an earlier owner before `proceed`."""
    lost: Callable[[int, ErrorCode], None] = lambda _partition, _code: None
    """-1: all partitions, after an internal error."""
    denied: Callable[[int, ErrorCode], None] = lambda _partition, _code: None
    went_back: Callable[[int], None] = lambda _partition: None
    """Called with a partition whose log is no longer the one that was taken over."""


NO_EVENTS = JournalEvents()


def report(events: JournalEvents, topic: str, partition: int, outcomes: Iterable[Outcome]) -> None:
    """Report outcomes to the callers of appends, which wait for their tokens if these are promises, and to `events`."""
    for outcome in outcomes:
        if isinstance(outcome, Stored):
            if isinstance(outcome.token, Promise):
                outcome.token.set(None)
        elif isinstance(outcome, Refused):
            refuse(outcome.token, outcome.code, f"topic {topic} refuses it")
        elif isinstance(outcome, TakenOver):
            events.taken_over(partition, outcome)
        elif isinstance(outcome, Lost):
            events.lost(partition, outcome.code)
        elif isinstance(outcome, WentBack):
            events.went_back(partition)


def refuse(token: object, code: ErrorCode, reason: str) -> None:
    """Fail the promise of an append."""
    if isinstance(token, Promise):
        token.fail(JournalRefused(code, reason))
