"""Settings of share groups: the broker's (`group.share.*`) and each group's (`share.*` on a GROUP resource).

Pure tables and checks. Names, defaults and bounds are those of Kafka 4.3 (GroupConfig, ShareGroupConfig and
GroupCoordinatorConfig; KIP-932, KIP-1240): a proxy that serves the groups itself takes the same settings under the
same names, so a group moves to brokers that serve it natively without a change.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from proxy.errors import ConfigError

EARLIEST_TIMESTAMP = -2
"""ListOffsets: the log start offset."""
LATEST_TIMESTAMP = -1
"""ListOffsets: the end of the log."""

INT_MAX = 2**31 - 1


class ResetKind(enum.Enum):
    """Where a share partition without stored state begins."""

    LATEST = "latest"
    EARLIEST = "earliest"
    BY_DURATION = "by_duration"


_DURATION = re.compile(
    r"P(?:(?P<days>[-+]?\d+)D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?(?:(?P<seconds>[-+]?\d+)(?:[.,](?P<part>\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """`share.auto.offset.reset`: latest, earliest, or records not older than a duration."""

    kind: ResetKind
    duration_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> OffsetReset:
        """Read `latest`, `earliest` or `by_duration:<PnDTnHnMn.nS>`; ValueError otherwise."""
        if text == ResetKind.LATEST.value:
            return cls(ResetKind.LATEST)
        if text == ResetKind.EARLIEST.value:
            return cls(ResetKind.EARLIEST)
        name, colon, duration = text.partition(":")
        if name != ResetKind.BY_DURATION.value or not colon:
            raise ValueError(f"unknown offset reset {text!r}")
        return cls(ResetKind.BY_DURATION, parse_duration_ms(duration))

    def timestamp_ms(self, wall_ms: int) -> int:
        """The timestamp a ListOffsets request asks for; a duration before 1970 asks for everything."""
        if self.kind is ResetKind.LATEST:
            return LATEST_TIMESTAMP
        if self.kind is ResetKind.EARLIEST:
            return EARLIEST_TIMESTAMP
        return max(0, wall_ms - self.duration_ms)


def parse_duration_ms(text: str) -> int:
    """Read an ISO-8601 duration of days to seconds as java.time.Duration does, in milliseconds; not negative."""
    sign = -1 if text.startswith("-") else 1
    match = _DURATION.fullmatch(text[1:] if text[:1] in ("-", "+") else text)
    if match is None or match["time"] in ("T", "t") or (match["days"] is None and match["time"] is None):
        raise ValueError(f"{text!r} is no ISO-8601 duration (PnDTnHnMn.nS)")
    seconds = match["seconds"] or "0"
    nanos = int((match["part"] or "").ljust(9, "0")) * (-1 if seconds.startswith("-") else 1)
    whole = 86_400 * int(match["days"] or 0) + 3600 * int(match["hours"] or 0) + 60 * int(match["minutes"] or 0)
    total_nanos = sign * ((whole + int(seconds)) * 10**9 + nanos)
    if total_nanos < 0:
        raise ValueError(f"{text!r} is negative")
    if total_nanos >= 2**63 * 10**9:
        raise ValueError(f"{text!r} is too long")
    return total_nanos // 10**6


# --- the broker's own settings -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Smallest and largest value Kafka accepts."""

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
    """Every `group.share.*` setting of a broker, dots written as underscores; times in milliseconds as there."""

    group_share_session_timeout_ms: int = 45_000
    group_share_min_session_timeout_ms: int = 45_000
    group_share_max_session_timeout_ms: int = 60_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_min_heartbeat_interval_ms: int = 5_000
    group_share_max_heartbeat_interval_ms: int = 15_000
    group_share_max_size: int = 200
    """Members of one group."""
    group_share_assignors: str = "simple"
    """The one assignor there is."""
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
    """Share sessions on one broker, here on the listener of one broker."""
    group_share_assignment_interval_ms: int = 1_000
    group_share_min_assignment_interval_ms: int = 0
    group_share_max_assignment_interval_ms: int = 15_000

    @classmethod
    def check(cls, values: Mapping[str, object]) -> BrokerShareLimits:
        """Build from Kafka's names (`group.share.max.size`: 200 or "200"); ConfigError names every mistake at once."""
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
        raise ConfigError("\n".join(mistakes))

    def value(self, name: str) -> int | str:
        """The value of a setting by Kafka's name."""
        found: int | str = getattr(self, _attribute(name))
        return found

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
    """Kafka's names of the broker settings."""
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


# --- the settings of one group -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What holds for one group now: its stored settings, clamped to the broker's bounds, defaults for the rest."""

    lock_duration_s: float
    session_timeout_s: float
    heartbeat_interval_s: float
    offset_reset: OffsetReset
    read_committed: bool
    delivery_count_limit: int
    max_record_locks: int
    renew_enabled: bool
    assignment_interval_s: float


class ConfigType(enum.IntEnum):
    """Type codes of DescribeConfigs answers (DescribeConfigsResponse.ConfigType)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigKey:
    """One `share.*` setting of a GROUP resource."""

    name: str
    type: ConfigType
    synonym: str | None
    """The broker setting that gives its default and, as group.share.min.* / max.*, its bounds."""
    documentation: str
    default: str = ""
    """The default where no broker setting gives one."""
    low: int = 0
    """Smallest number that is accepted whatever the broker's bounds are."""

    def default_value(self, limits: BrokerShareLimits) -> str:
        """Its value in a group that does not set it."""
        return self.default if self.synonym is None else str(limits.value(self.synonym))

    def bounds(self, limits: BrokerShareLimits) -> tuple[int, int]:
        """Smallest and largest value the broker allows a group."""
        low, high = (limits.value(name) for name in self.bound_names())
        return int(low), int(high)

    def bound_names(self) -> tuple[str, str]:
        """The broker settings that bound it; only for those with a synonym."""
        if self.synonym is None:
            raise KeyError(self.name)
        rest = self.synonym.removeprefix("group.share.")
        return f"group.share.min.{rest}", f"group.share.max.{rest}"


SESSION_TIMEOUT = "share.session.timeout.ms"
HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"
LOCK_DURATION = "share.record.lock.duration.ms"
DELIVERY_COUNT_LIMIT = "share.delivery.count.limit"
MAX_RECORD_LOCKS = "share.partition.max.record.locks"
OFFSET_RESET = "share.auto.offset.reset"
ISOLATION_LEVEL = "share.isolation.level"
RENEW_ENABLE = "share.renew.acknowledge.enable"
ASSIGNMENT_INTERVAL = "share.assignment.interval.ms"

_ISOLATION_LEVELS = ("read_committed", "read_uncommitted")

GROUP_CONFIGS: tuple[GroupConfigKey, ...] = (
    GroupConfigKey(
        name=ASSIGNMENT_INTERVAL,
        type=ConfigType.INT,
        synonym="group.share.assignment.interval.ms",
        documentation="Least time, in milliseconds, between two computations of the group's assignment.",
    ),
    GroupConfigKey(
        name=OFFSET_RESET,
        type=ConfigType.STRING,
        synonym=None,
        default="latest",
        documentation=(
            "Where reading a partition begins for a group that has no state for it: latest, earliest, or "
            "by_duration:PnDTnHnMn.nS for records not older than that."
        ),
    ),
    GroupConfigKey(
        name=DELIVERY_COUNT_LIMIT,
        type=ConfigType.INT,
        synonym="group.share.delivery.count.limit",
        low=2,
        documentation="How often a record may be delivered before it is archived.",
    ),
    GroupConfigKey(
        name=HEARTBEAT_INTERVAL,
        type=ConfigType.INT,
        synonym="group.share.heartbeat.interval.ms",
        low=1,
        documentation="Time, in milliseconds, between the heartbeats members are asked for.",
    ),
    GroupConfigKey(
        name=ISOLATION_LEVEL,
        type=ConfigType.STRING,
        synonym=None,
        default="read_uncommitted",
        documentation=(
            "read_committed: transactional records are delivered only once committed. read_uncommitted: all records."
        ),
    ),
    GroupConfigKey(
        name=MAX_RECORD_LOCKS,
        type=ConfigType.INT,
        synonym="group.share.partition.max.record.locks",
        low=100,
        documentation="How many records of one partition the group may have in flight.",
    ),
    GroupConfigKey(
        name=LOCK_DURATION,
        type=ConfigType.INT,
        synonym="group.share.record.lock.duration.ms",
        low=1000,
        documentation="Time, in milliseconds, for which an acquired record is locked; then it is available again.",
    ),
    GroupConfigKey(
        name=RENEW_ENABLE,
        type=ConfigType.BOOLEAN,
        synonym=None,
        default="true",
        documentation="Whether members may renew the lock of a record they hold.",
    ),
    GroupConfigKey(
        name=SESSION_TIMEOUT,
        type=ConfigType.INT,
        synonym="group.share.session.timeout.ms",
        low=1,
        documentation="Time, in milliseconds, without heartbeat after which a member is removed from the group.",
    ),
)

GROUP_CONFIGS_BY_NAME: Mapping[str, GroupConfigKey] = MappingProxyType({key.name: key for key in GROUP_CONFIGS})


def effective(stored: Mapping[str, str], limits: BrokerShareLimits) -> GroupSettings:
    """What holds for a group: each stored number clamped to the broker's bounds of today, as Kafka 4.3 does.

    `stored` passed `check_stored` when it was written; the bounds may have moved since.
    """

    def number(name: str) -> int:
        key = GROUP_CONFIGS_BY_NAME[name]
        low, high = key.bounds(limits)
        return min(max(int(stored.get(name) or key.default_value(limits)), low), high)

    def text(name: str) -> str:
        return stored.get(name, GROUP_CONFIGS_BY_NAME[name].default).strip()

    return GroupSettings(
        lock_duration_s=number(LOCK_DURATION) / 1000,
        session_timeout_s=number(SESSION_TIMEOUT) / 1000,
        heartbeat_interval_s=number(HEARTBEAT_INTERVAL) / 1000,
        offset_reset=OffsetReset.parse(text(OFFSET_RESET)),
        read_committed=text(ISOLATION_LEVEL) == "read_committed",
        delivery_count_limit=number(DELIVERY_COUNT_LIMIT),
        max_record_locks=number(MAX_RECORD_LOCKS),
        renew_enabled=text(RENEW_ENABLE).lower() == "true",
        assignment_interval_s=number(ASSIGNMENT_INTERVAL) / 1000,
    )


def check_change(name: str, value: str | None, stored: Mapping[str, str], limits: BrokerShareLimits) -> str | None:
    """The error text (INVALID_CONFIG) when this value may not be set in a group that has stored the others."""
    if value is None:
        return f"{name} needs a value; the operation DELETE brings its default back"
    return check_stored({**stored, name: value}, limits)


def check_stored(stored: Mapping[str, str], limits: BrokerShareLimits) -> str | None:
    """The error text when these settings may not stand together on one group, else None.

    A request that changes several settings of a group is judged by what it leaves, as a broker does.
    """
    for name, value in stored.items():
        mistake = _mistake(name, value, limits)
        if mistake is not None:
            return mistake
    session, heartbeat = (
        int(stored.get(name) or GROUP_CONFIGS_BY_NAME[name].default_value(limits))
        for name in (SESSION_TIMEOUT, HEARTBEAT_INTERVAL)
    )
    if session <= heartbeat:
        return f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}"
    return None


def _mistake(name: str, value: str, limits: BrokerShareLimits) -> str | None:
    key = GROUP_CONFIGS_BY_NAME.get(name)
    if key is None:
        return f"Unknown group config name: {name}"
    if key.synonym is not None:
        return _number_mistake(key, value, limits)
    return _TEXT_CHECKS[name](name, value)


def _number_mistake(key: GroupConfigKey, value: str, limits: BrokerShareLimits) -> str | None:
    number = parse_int(value)
    if number is None:
        return f"Invalid value {value} for configuration {key.name}: Not a number of type INT"
    if number < key.low:
        return f"Invalid value {number} for configuration {key.name}: Value must be at least {key.low}"
    low, high = key.bounds(limits)
    low_name, high_name = key.bound_names()
    if number < low:
        return f"{key.name} must be greater than or equal to {low_name}"
    if number > high:
        return f"{key.name} must be less than or equal to {high_name}"
    return None


def _offset_reset_mistake(name: str, value: str) -> str | None:
    try:
        OffsetReset.parse(value.strip())
    except ValueError:
        return (
            f"Invalid value {value} for configuration {name}: "
            "it must be earliest, latest or by_duration:<PnDTnHnMn.nS>, not negative"
        )
    return None


def _isolation_mistake(name: str, value: str) -> str | None:
    if value.strip() in _ISOLATION_LEVELS:
        return None
    return f"Invalid value {value} for configuration {name}: String must be one of: {', '.join(_ISOLATION_LEVELS)}"


def _renew_mistake(name: str, value: str) -> str | None:
    if value.strip().lower() in ("true", "false"):
        return None
    return f"Invalid value {value} for configuration {name}: Expected value to be either true or false"


_TEXT_CHECKS: Mapping[str, Callable[[str, str], str | None]] = MappingProxyType(
    {OFFSET_RESET: _offset_reset_mistake, ISOLATION_LEVEL: _isolation_mistake, RENEW_ENABLE: _renew_mistake}
)


def parse_int(text: str) -> int | None:
    """A 32-bit number as Java reads it, blanks around it dropped; None when it is none."""
    stripped = text.strip()
    if not re.fullmatch(r"[-+]?[0-9]{1,32}", stripped):
        return None
    number = int(stripped)
    return number if -INT_MAX - 1 <= number <= INT_MAX else None
