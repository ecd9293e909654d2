"""What happened, for logs and metrics of the application: one hook is called with a name and the facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from proxy.consumer.events import CatchUpChanged, PartitionsLost
from proxy.consumer.partitions import shown
from proxy.consumer.states import StateChange

COORDINATOR_STATE = "coordinator state"
"""before, after, reason"""
REBALANCE_STATE = "rebalance state"
"""before, after, reason"""
REVOKE_DELAYED = "revoke delayed"
"""partitions, granted, remaining_s: until the first of them is given up as lost"""
PARTITIONS_LOST = "partitions lost"
"""partitions, reason"""

POLLED = "polled"
"""main, child: records of each flow that a poll returned; took_s: with the waiting"""
COMMITTED = "committed"
"""partitions, took_s, refused: partitions that were not committed"""
INTERCEPTOR_FAILED = "interceptor failed"
"""interceptor, method, error: what it raised"""
CATCH_UP = "catch-up"
"""partition, token: offsets that a second flow reads, remaining: of them (a metric), finished, reason"""


class ConsumerNote(NamedTuple):
    """Something that a consumer tells a log or a metric."""

    event: str
    """One of the constants here."""
    facts: Mapping[str, Any]


Observe = Callable[[ConsumerNote], None]
"""Called in the midst of things: it must be quick, and must not raise, for that would end the consumer."""


def ignore(_: ConsumerNote) -> None:
    """Where nobody wants to know."""


def note_of(event: PartitionsLost | CatchUpChanged) -> ConsumerNote:
    """What the network side found out."""
    if isinstance(event, PartitionsLost):
        return ConsumerNote(PARTITIONS_LOST, {"partitions": shown(event.partitions), "reason": event.reason})
    facts = {
        "partition": str(event.partition),
        "token": str(event.token),
        "remaining": event.remaining,
        "finished": not event.remaining,
        "reason": event.reason,
    }
    return ConsumerNote(CATCH_UP, facts)


def on_state(event: str, observe: Observe) -> Callable[[StateChange[Any]], None]:
    """An observer of transitions that makes notes of them."""

    def note(change: StateChange[Any]) -> None:
        facts = {"before": change.before.value, "after": change.after.value, "reason": change.reason}
        observe(ConsumerNote(event, facts))

    return note
