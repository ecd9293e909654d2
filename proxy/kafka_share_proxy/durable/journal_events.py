"""Receivers of what a journal finds out about the partitions of its topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafka_share_proxy.durable.producer_requests import TakenOver
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
