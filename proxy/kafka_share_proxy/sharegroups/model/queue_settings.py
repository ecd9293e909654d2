"""Settings of queues, which Kafka 4.3 does not have: key order, delay, dead letters (sharegroups/README.md rule 73).

Those of dead letters have the names of Kafka 4.4 (KIP-1191). Without any of them a group behaves as Kafka's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import NamedTuple

from kafka_share_proxy.sharegroups.model.broker_limits import parse_int
from kafka_share_proxy.sharegroups.model.offset_runs import OFFSETS_MAX

ORDERING = "share.ordering"
SCAN_RECORDS = "share.ordering.scan.records"
DELAY = "share.redelivery.delay.ms"
DELAY_MAX = "share.redelivery.delay.max.ms"
DELAY_MULTIPLIER = "share.redelivery.delay.multiplier"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPIES = "errors.deadletterqueue.copy.record.enable"

BY_KEY = "key"
ORDERINGS = ("none", BY_KEY)
SCAN_RECORDS_MIN = 100
LONGEST_DELAY_MS = 900_000
"""15 minutes. A record that waits blocks the start offset of its share partition."""
MULTIPLIER_MAX = 100.0
INTERNAL_PREFIX = "__"
TOPIC_NAME_MAX = 249

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class RedeliveryDelay:
    """Time, in seconds, until a released record or one with an expired lock is delivered again."""

    first_s: float
    max_s: float
    multiplier: float


class DeadLetterTarget(NamedTuple):
    """Topic to which records that are rejected, or whose deliveries are used up, are written."""

    topic: str
    copies_records: bool
    """True if key and value are copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Effective queue settings of one group."""

    is_ordered: bool
    """True if the records of each key are delivered one after the other."""
    scan_records: int
    """Maximum width, in offsets, of an ordered share partition's window."""
    redelivery: RedeliveryDelay | None
    dead_letters: DeadLetterTarget | None


NO_QUEUE = QueueSettings(is_ordered=False, scan_records=OFFSETS_MAX, redelivery=None, dead_letters=None)
"""Settings without effect."""

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        DEAD_LETTER_COPIES: "false",
        DEAD_LETTER_TOPIC: "",
        ORDERING: "none",
        SCAN_RECORDS: "10000",
        DELAY_MAX: str(LONGEST_DELAY_MS),
        DELAY: "0",
        DELAY_MULTIPLIER: "2.0",
    }
)


def effective(stored: Mapping[str, str]) -> QueueSettings | None:
    """Return the queue settings of a group. None if it has neither order, nor delay, nor dead letters.

    `stored` passed `mistake` when it was written.
    """

    def text(name: str) -> str:
        return stored.get(name, DEFAULTS[name]).strip()

    is_ordered, delay_ms, topic = text(ORDERING) == BY_KEY, int(text(DELAY)), text(DEAD_LETTER_TOPIC)
    if not (is_ordered or delay_ms or topic):
        return None
    delay = RedeliveryDelay(delay_ms / 1000, int(text(DELAY_MAX)) / 1000, float(text(DELAY_MULTIPLIER)))
    return QueueSettings(
        is_ordered=is_ordered,
        scan_records=int(text(SCAN_RECORDS)),
        redelivery=delay if delay_ms else None,
        dead_letters=DeadLetterTarget(topic, text(DEAD_LETTER_COPIES).lower() == "true") if topic else None,
    )


def mistake(name: str, value: str) -> str | None:
    """Return the error text if the value of a queue setting is invalid, else None. Raises KeyError for other names."""
    reason = _CHECKS[name](value.strip())
    return None if reason is None else f"Invalid value {value} for configuration {name}: {reason}"


def _ordering_mistake(value: str) -> str | None:
    return None if value in ORDERINGS else f"String must be one of: {', '.join(ORDERINGS)}"


def _boolean_mistake(value: str) -> str | None:
    return None if value.lower() in ("true", "false") else "Expected value to be either true or false"


def _topic_mistake(value: str) -> str | None:
    if not value:
        return None
    if value.startswith(INTERNAL_PREFIX):
        return f"names of topics that begin with {INTERNAL_PREFIX} are reserved"
    if value in (".", "..") or len(value) > TOPIC_NAME_MAX or not _TOPIC_NAME.fullmatch(value):
        return "it is not a valid topic name: at most 249 of the characters a-z, A-Z, 0-9, ., _ and -"
    return None


def _multiplier_mistake(value: str) -> str | None:
    try:
        number = float(value)
    except ValueError:
        return "Not a number of type DOUBLE"
    return None if isfinite(number) and 1 <= number <= MULTIPLIER_MAX else f"it must be 1 to {MULTIPLIER_MAX:g}"


def _between(low: int, high: int) -> Callable[[str], str | None]:
    def reason(value: str) -> str | None:
        number = parse_int(value)
        if number is None:
            return "Not a number of type INT"
        return None if low <= number <= high else f"it must be {low} to {high}"

    return reason


_CHECKS: Mapping[str, Callable[[str], str | None]] = MappingProxyType(
    {
        ORDERING: _ordering_mistake,
        SCAN_RECORDS: _between(SCAN_RECORDS_MIN, OFFSETS_MAX),
        DELAY: _between(0, LONGEST_DELAY_MS),
        DELAY_MAX: _between(1, LONGEST_DELAY_MS),
        DELAY_MULTIPLIER: _multiplier_mistake,
        DEAD_LETTER_TOPIC: _topic_mistake,
        DEAD_LETTER_COPIES: _boolean_mistake,
    }
)
