"""Events of a consumer for logs and metrics of the application: one hook is called with a name and the facts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafka_share_proxy.consumer.events import CatchUpChanged, PartitionsLost
from kafka_share_proxy.consumer.groups.states import StateChange
from kafka_share_proxy.consumer.partitions import shown

COORDINATOR_STATE = "coordinator state"
"""before, after, reason"""
REBALANCE_STATE = "rebalance state"
"""before, after, reason"""
REVOKE_DELAYED = "revoke delayed"
"""remaining_s: seconds until the first of the partitions is given up as lost"""
PARTITIONS_LOST = "partitions lost"
"""partitions, reason"""

POLLED = "polled"
"""main, child: number of records of each flow that a poll returned; took_s: duration including the wait"""
COMMITTED = "committed"
"""partitions, took_s, refused: partitions that were not committed, left_out: done offsets that were not stored"""
INTERCEPTOR_FAILED = "interceptor failed"
"""interceptor, method, error: what it raised"""
CATCH_UP = "catch-up"
"""partition, token: offsets that a second flow reads, remaining: of them (a metric), finished, reason"""

LOGGER = logging.getLogger("kafka_share_proxy.states")
"""Logs every state transition at DEBUG."""


class ConsumerNote(NamedTuple):
    """Event of a consumer for a log or a metric."""

    event: str
    """Kind of the event: one of the constants of this module."""
    facts: Mapping[str, Any]


Observe = Callable[[ConsumerNote], None]
"""Receiver of the events. It must be fast and must not raise, because an error would end the consumer."""


def ignore(_: ConsumerNote) -> None:
    """Ignore a note: the default observer."""


def note_of(event: PartitionsLost | CatchUpChanged) -> ConsumerNote:
    """Return the note for an event."""
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
    """Return a callback that reports the transitions of a state machine as notes named `event`."""

    def note(change: StateChange[Any]) -> None:
        facts = {"before": change.before.value, "after": change.after.value, "reason": change.reason}
        LOGGER.debug("%s: %s -> %s (%s)", event, change.before.value, change.after.value, change.reason)
        observe(ConsumerNote(event, facts))

    return note
