"""The broker's own share group settings (`group.share.*`), which the proxy has under the same names.

Names, defaults and bounds are those of Kafka 4.3 (ShareGroupConfig, GroupCoordinatorConfig; KIP-932, KIP-1240).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, NamedTuple

from kafka_share_proxy.wire.errors import ProxyError

INT_MAX = 2**31 - 1


class InvalidShareLimits(ProxyError):
    """Invalid `group.share.*` settings. The text has one line per mistake, which begins with the setting."""


def parse_int(text: str) -> int | None:
    """Parse a 32-bit number as Java does, ignoring surrounding blanks. None if it is invalid."""
    stripped = text.strip()
    if not re.fullmatch(r"[-+]?[0-9]{1,32}", stripped):
        return None
    number = int(stripped)
    return number if -INT_MAX - 1 <= number <= INT_MAX else None


class _Bounds(NamedTuple):
    low: int
    high: int = INT_MAX


_BROKER_BOUNDS: Mapping[str, _Bounds] = MappingProxyType(
    {
        "group.share.session.timeout.ms": _Bounds(1),
        "group.share.min.session.timeout.ms": _Bounds(1),
        "group.share.max.session.timeout.ms": _Bounds(1),
        "group.share.heartbeat.interval.ms": _Bounds(1),
        "group.share.min.heartbeat.interval.ms": _Bounds(1),
        "group.share.max.heartbeat.interval.ms": _Bounds(1),
        "group.share.max.size": _Bounds(1, 1000),
        "group.share.record.lock.duration.ms": _Bounds(1000, 3_600_000),
        "group.share.min.record.lock.duration.ms": _Bounds(1000, 30_000),
        "group.share.max.record.lock.duration.ms": _Bounds(30_000, 3_600_000),
        "group.share.delivery.count.limit": _Bounds(2, 10),
        "group.share.min.delivery.count.limit": _Bounds(2, 5),
        "group.share.max.delivery.count.limit": _Bounds(5, 25),
        "group.share.partition.max.record.locks": _Bounds(100, 10_000),
        "group.share.min.partition.max.record.locks": _Bounds(100, 2000),
        "group.share.max.partition.max.record.locks": _Bounds(2000, 10_000),
        "group.share.max.share.sessions": _Bounds(1),
        "group.share.assignment.interval.ms": _Bounds(0),
        "group.share.min.assignment.interval.ms": _Bounds(0),
        "group.share.max.assignment.interval.ms": _Bounds(0),
    }
)

_BOUNDED = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "record.lock.duration.ms",
    "delivery.count.limit",
    "partition.max.record.locks",
    "assignment.interval.ms",
)
_ORDERED: tuple[tuple[str, str], ...] = (
    *((f"group.share.min.{name}", f"group.share.{name}") for name in _BOUNDED),
    *((f"group.share.{name}", f"group.share.max.{name}") for name in _BOUNDED),
    ("group.share.max.size", "group.share.max.share.sessions"),
)
"""(lower, upper): the first may not be greater than the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerShareLimits:
    """All `group.share.*` settings of a broker, with underscores for dots; times in milliseconds as there."""

    group_share_session_timeout_ms: int = 45_000
    group_share_min_session_timeout_ms: int = 45_000
    group_share_max_session_timeout_ms: int = 60_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_min_heartbeat_interval_ms: int = 5_000
    group_share_max_heartbeat_interval_ms: int = 15_000
    group_share_max_size: int = 200
    group_share_assignors: str = "simple"
    group_share_record_lock_duration_ms: int = 30_000
    group_share_min_record_lock_duration_ms: int = 15_000
    group_share_max_record_lock_duration_ms: int = 60_000
    group_share_delivery_count_limit: int = 5
    group_share_min_delivery_count_limit: int = 2
    group_share_max_delivery_count_limit: int = 10
    group_share_partition_max_record_locks: int = 2000
    group_share_min_partition_max_record_locks: int = 100
    group_share_max_partition_max_record_locks: int = 4000
    group_share_max_share_sessions: int = 2000
    """Maximum number of share sessions on one broker; here on the listener of one broker."""
    group_share_assignment_interval_ms: int = 1_000
    group_share_min_assignment_interval_ms: int = 0
    group_share_max_assignment_interval_ms: int = 15_000

    @classmethod
    def check(cls, values: Mapping[str, object]) -> BrokerShareLimits:
        """Build from Kafka's names (`group.share.max.size`: 200 or "200"). Raises InvalidShareLimits."""
        parsed: dict[str, Any] = {}
        mistakes: list[str] = []
        known = set(broker_names())
        for name, value in values.items():
            if name not in known:
                mistakes.append(f"{name}: no such setting")
            elif name == "group.share.assignors":
                mistakes += _assignor_mistakes(name, value)
            else:
                number, mistake = _bounded(name, value, _BROKER_BOUNDS[name])
                parsed[_attribute(name)] = number
                mistakes += [mistake] if mistake else []
        if not mistakes:
            limits = cls(**parsed)
            mistakes = limits._order_mistakes()
            if not mistakes:
                return limits
        raise InvalidShareLimits("\n".join(mistakes))

    def value(self, name: str) -> int | str:
        value: int | str = getattr(self, _attribute(name))
        return value

    def _order_mistakes(self) -> list[str]:
        mistakes = [
            f"{lower}: {self.value(lower)} must be less than or equal to {upper} ({self.value(upper)})"
            for lower, upper in _ORDERED
            if self.value(lower) > self.value(upper)  # type: ignore[operator]  # ordered settings are numbers
        ]
        if self.group_share_heartbeat_interval_ms >= self.group_share_session_timeout_ms:
            mistakes.append(
                f"group.share.heartbeat.interval.ms: {self.group_share_heartbeat_interval_ms} must be less than "
                f"group.share.session.timeout.ms ({self.group_share_session_timeout_ms})"
            )
        return mistakes


def broker_names() -> tuple[str, ...]:
    return tuple(field.name.replace("_", ".") for field in fields(BrokerShareLimits))


def _attribute(name: str) -> str:
    return name.replace(".", "_")


def _assignor_mistakes(name: str, value: object) -> list[str]:
    names = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, (list, tuple)) else [value]
    if [str(entry).strip() for entry in names] == ["simple"]:
        return []
    return [f"{name}: {value!r} must be exactly one assignor, and there is only `simple`"]


def _bounded(name: str, value: object, bounds: _Bounds) -> tuple[int, str | None]:
    number = value if isinstance(value, int) and not isinstance(value, bool) else parse_int(str(value))
    if number is None:
        return 0, f"{name}: {value!r} is not a whole number"
    if not bounds.low <= number <= bounds.high:
        return 0, f"{name}: {number} must be between {bounds.low} and {bounds.high}"
    return number, None
