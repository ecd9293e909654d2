"""Settings of one share group (`share.*` on a GROUP resource). Pure tables and checks.

Names, defaults and bounds are those of Kafka 4.3 (GroupConfig; KIP-932, KIP-1240), so that a group can move unchanged
to brokers that serve it natively. Defaults and bounds come from the broker's settings (`broker_limits`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from kafka_share_proxy.sharegroups.model import queue_settings
from kafka_share_proxy.sharegroups.model.broker_limits import BrokerShareLimits as BrokerShareLimits
from kafka_share_proxy.sharegroups.model.broker_limits import broker_names as broker_names
from kafka_share_proxy.sharegroups.model.broker_limits import parse_int
from kafka_share_proxy.sharegroups.model.offset_reset import EARLIEST_TIMESTAMP as EARLIEST_TIMESTAMP
from kafka_share_proxy.sharegroups.model.offset_reset import LATEST_TIMESTAMP as LATEST_TIMESTAMP
from kafka_share_proxy.sharegroups.model.offset_reset import OffsetReset as OffsetReset
from kafka_share_proxy.sharegroups.model.offset_reset import ResetKind as ResetKind
from kafka_share_proxy.sharegroups.model.queue_settings import QueueSettings as QueueSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Effective settings of one group: stored values clamped to the broker's bounds, defaults for the rest."""

    lock_duration_s: float
    session_timeout_s: float
    heartbeat_interval_s: float
    offset_reset: OffsetReset
    read_committed: bool
    delivery_count_limit: int
    max_record_locks: int
    renew_enabled: bool
    assignment_interval_s: float
    queue: QueueSettings | None = None
    """Settings that Kafka 4.3 does not have. None if none of them has an effect."""


WINDOW_CLOSED, NOTHING_ACQUIRED = 0, -1
"""`max_record_locks` of a group that is handed over: first no window grows, then nothing at all is acquired."""


class ConfigType(enum.IntEnum):
    """Type codes of DescribeConfigs responses (DescribeConfigsResponse.ConfigType)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    DOUBLE = 6


class GroupConfigKey(NamedTuple):
    """One `share.*` setting of a GROUP resource."""

    name: str
    type: ConfigType
    synonym: str | None
    """Broker setting with its default and, as group.share.min.* / max.*, its bounds."""
    documentation: str
    default: str = ""
    low: int = 0
    """Smallest number accepted, even if the broker's bounds are lower."""

    def default_value(self, limits: BrokerShareLimits) -> str:
        return self.default if self.synonym is None else str(limits.value(self.synonym))

    def bounds(self, limits: BrokerShareLimits) -> tuple[int, int]:
        """Return the smallest and largest value that the broker allows."""
        low, high = (limits.value(name) for name in self.bound_names())
        return int(low), int(high)

    def bound_names(self) -> tuple[str, str]:
        """Return the broker settings with its bounds. Raises KeyError for settings without a synonym."""
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
        documentation="Minimum time, in milliseconds, between two computations of the group's assignment.",
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
        documentation="Maximum number of deliveries of a record before it is archived.",
    ),
    GroupConfigKey(
        name=HEARTBEAT_INTERVAL,
        type=ConfigType.INT,
        synonym="group.share.heartbeat.interval.ms",
        low=1,
        documentation="Time, in milliseconds, between the heartbeats of a member.",
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
        documentation="Maximum number of records of one partition that the group has in flight.",
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
        documentation="True if members may renew the lock of a record they hold.",
    ),
    GroupConfigKey(
        name=SESSION_TIMEOUT,
        type=ConfigType.INT,
        synonym="group.share.session.timeout.ms",
        low=1,
        documentation="Time, in milliseconds, without heartbeat after which a member is removed from the group.",
    ),
)

"""Settings of Kafka 4.3, by name."""

QUEUE_CONFIGS: tuple[GroupConfigKey, ...] = tuple(
    GroupConfigKey(
        name=name, type=kind, synonym=None, default=queue_settings.DEFAULTS[name], documentation=documentation
    )
    for name, kind, documentation in (
        (
            queue_settings.DEAD_LETTER_COPIES,
            ConfigType.BOOLEAN,
            "True if key and value of a record are copied to its dead letter (KIP-1191).",
        ),
        (
            queue_settings.DEAD_LETTER_TOPIC,
            ConfigType.STRING,
            "Topic for records that are rejected or whose deliveries are used up (KIP-1191). Empty: they are archived.",
        ),
        (
            queue_settings.ORDERING,
            ConfigType.STRING,
            "key: the records of each key are delivered one after the other. none: in any order.",
        ),
        (
            queue_settings.SCAN_RECORDS,
            ConfigType.INT,
            "Maximum number of offsets that an ordered group looks at after records whose keys are blocked.",
        ),
        (
            queue_settings.DELAY_MAX,
            ConfigType.INT,
            "Maximum time, in milliseconds, between two deliveries of a record.",
        ),
        (
            queue_settings.DELAY,
            ConfigType.INT,
            "Time, in milliseconds, until a record that was released, or whose lock expired, is available again.",
        ),
        (
            queue_settings.DELAY_MULTIPLIER,
            ConfigType.DOUBLE,
            "Factor by which the time until the next delivery grows with each delivery.",
        ),
    )
)
"""Settings that only the proxy has, by name."""

GROUP_CONFIGS_BY_NAME: Mapping[str, GroupConfigKey] = MappingProxyType(
    {key.name: key for key in (*GROUP_CONFIGS, *QUEUE_CONFIGS)}
)


def effective(stored: Mapping[str, str], limits: BrokerShareLimits) -> GroupSettings:
    """Return the effective settings of a group: stored numbers clamped to the broker's present bounds, as in Kafka 4.3.

    `stored` passed `check_stored` when it was written. The bounds may have changed since.
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
        queue=queue_settings.effective(stored),
    )


def without_counterpart(stored: Mapping[str, str], *, all_: bool = False) -> list[str]:
    """Return the stored settings that no release of Kafka has and that have an effect. `all_`: or have none."""
    only_here = (key.name for key in QUEUE_CONFIGS if key.name.startswith("share."))
    return [
        name
        for name in only_here
        if name in stored and (all_ or stored[name].strip() != GROUP_CONFIGS_BY_NAME[name].default)
    ]


def check_stored(stored: Mapping[str, str], limits: BrokerShareLimits) -> str | None:
    """Return the error text if these settings of one group are invalid or inconsistent, else None.

    A request that changes several settings of a group is checked by its result, as on a broker.
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
    if name in queue_settings.DEFAULTS:
        return queue_settings.mistake(name, value)
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
