"""Settings of a topic, all of those of a broker of Kafka 4.3, parsed as there (LogConfig, ConfigDef.parseType)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from kafka_share_proxy.wire.records import compression

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
CODECS = {
    "uncompressed": compression.NONE,
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}
"""Codecs by their names in compression.type."""
COMPACTION_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")
TIERED = "remote.storage.enable"

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_THROTTLED = re.compile(r"(?:[0-9]+:[0-9]+)(?:,[0-9]+:[0-9]+)*|\*|")


class ConfigKind(IntEnum):
    """Types of settings in DescribeConfigs (DescribeConfigsResponse.ConfigType)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


Parse = Callable[[str], str]
"""Returns a value in the form in which it is described. Raises ValueError with the reason."""


@dataclass(frozen=True)
class ConfigKey:
    """One setting."""

    name: str
    kind: ConfigKind
    default: str
    parse: Parse


def _whole(
    kind: ConfigKind, name: str, default: int, low: int, high: int | None = None, other: int | None = None
) -> ConfigKey:
    """Return a setting with a whole number from `low` to `high`, or `other`."""
    largest = INT_MAX if kind is ConfigKind.INT else LONG_MAX

    def parse(text: str) -> str:
        value = int(text) if _INTEGER.fullmatch(text) else largest + 1
        if not -largest - 1 <= value <= largest:
            raise ValueError(f"Not a number of type {kind.name}")
        if value == other:
            return str(value)
        if other is not None and not low <= value <= (high or largest):
            raise ValueError(f"Value must be between {low} and {high} or equal to {other}")
        return _bounded(value, low, high)

    return ConfigKey(name, kind, str(default), parse)


def _bounded(value: float, low: float, high: float | None) -> str:
    if value < low:
        raise ValueError(f"Value must be at least {low}")
    if high is not None and value > high:
        raise ValueError(f"Value must be no more than {high}")
    return str(value)


def _int(name: str, default: int, low: int, high: int | None = None, other: int | None = None) -> ConfigKey:
    return _whole(ConfigKind.INT, name, default, low, high, other)


def _long(name: str, default: int, low: int) -> ConfigKey:
    return _whole(ConfigKind.LONG, name, default, low)


def _ratio(name: str, default: str) -> ConfigKey:
    def parse(text: str) -> str:
        number = _DECIMAL.fullmatch(text)
        if number is None:
            raise ValueError("Not a number of type DOUBLE")
        return _bounded(float(number[1]), 0, 1)

    return ConfigKey(name, ConfigKind.DOUBLE, default, parse)


def _boolean(name: str) -> ConfigKey:
    def parse(text: str) -> str:
        if text.lower() not in ("true", "false"):
            raise ValueError("Expected value to be either true or false")
        return text.lower()

    return ConfigKey(name, ConfigKind.BOOLEAN, "false", parse)


def _choice(name: str, default: str, *names: str) -> ConfigKey:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"String must be one of: {', '.join(names)}")
        return text

    return ConfigKey(name, ConfigKind.STRING, default, parse)


def _choices(name: str, default: str, *names: str) -> ConfigKey:
    def parse(text: str) -> str:
        values = list(dict.fromkeys(each.strip() for each in text.split(","))) if text else []
        if "" in values:
            raise ValueError("Values must not be empty")
        if not set(values) <= set(names):
            raise ValueError(f"String must be one of: {', '.join(names)}")
        return ",".join(values)

    return ConfigKey(name, ConfigKind.LIST, default, parse)


def _replicas(name: str) -> ConfigKey:
    def parse(text: str) -> str:
        replica_list = ",".join(each.strip() for each in text.split(",")).removesuffix(",")
        if not _THROTTLED.fullmatch(replica_list):
            raise ValueError("It must be the literal '*' or a list of replicas, [partitionId]:[brokerId],...")
        return replica_list

    return ConfigKey(name, ConfigKind.LIST, "", parse)


KEYS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        _choices("cleanup.policy", "delete", "compact", "delete"),
        _int("compression.gzip.level", -1, 1, 9, other=-1),
        _int("compression.lz4.level", 9, 1, 17),
        _choice("compression.type", "producer", *CODECS, "producer"),
        _int("compression.zstd.level", 3, -131_072, 22),
        _long("delete.retention.ms", 86_400_000, 0),
        _long("file.delete.delay.ms", 60_000, 0),
        _long("flush.messages", LONG_MAX, 1),
        _long("flush.ms", LONG_MAX, 0),
        _replicas("follower.replication.throttled.replicas"),
        _int("index.interval.bytes", 4096, 0),
        _replicas("leader.replication.throttled.replicas"),
        _long("local.retention.bytes", -2, -2),
        _long("local.retention.ms", -2, -2),
        _long("max.compaction.lag.ms", LONG_MAX, 1),
        _int("max.message.bytes", 1_048_588, 0),
        _long("message.timestamp.after.max.ms", 3_600_000, 0),
        _long("message.timestamp.before.max.ms", LONG_MAX, 0),
        _choice("message.timestamp.type", "CreateTime", "CreateTime", "LogAppendTime"),
        _ratio("min.cleanable.dirty.ratio", "0.5"),
        _long("min.compaction.lag.ms", 0, 0),
        _int("min.insync.replicas", 1, 1),
        _boolean("preallocate"),
        _boolean("remote.log.copy.disable"),
        _boolean("remote.log.delete.on.disable"),
        _boolean(TIERED),
        _long("retention.bytes", -1, -LONG_MAX - 1),
        _long("retention.ms", 604_800_000, -1),
        _int("segment.bytes", 1_073_741_824, 1 << 20),
        _int("segment.index.bytes", 10_485_760, 4),
        _long("segment.jitter.ms", 0, 0),
        _long("segment.ms", 604_800_000, 1),
        _boolean("unclean.leader.election.enable"),
    )
}
"""Settings by name. Those about retention, compaction, segments, flushes, replication and elections are kept and
described, and change nothing in memory.
"""


def mistake_in(configs: Mapping[str, str]) -> str | None:
    """Return the error text of the first setting that is unknown or has an invalid value, or of a conflict."""
    parsed = {}
    for name, value in configs.items():
        if name not in KEYS:
            return f"Unknown topic config name: {name}"
        try:
            parsed[name] = KEYS[name].parse(value.strip())
        except ValueError as reason:
            return f"Invalid value {value} for configuration {name}: {reason}"
    if parsed.get(TIERED) == "true":
        return "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with it."
    low, high = (int(parsed.get(name, KEYS[name].default)) for name in COMPACTION_LAGS)
    return (
        f"conflict topic config setting {COMPACTION_LAGS[0]} ({low}) > {COMPACTION_LAGS[1]} ({high})"
        if low > high
        else None
    )


class TopicConfigs:
    """Settings of one topic, which are valid."""

    def __init__(self, stored: Mapping[str, str] | None = None) -> None:
        self.stored: dict[str, str] = {}
        self.replace(stored or {})

    def replace(self, stored: Mapping[str, str]) -> None:
        """Replace all settings."""
        self.stored = {name: KEYS[name].parse(value.strip()) for name, value in stored.items()}

    def value(self, name: str) -> str:
        return self.stored.get(name, KEYS[name].default)

    @property
    def max_message_bytes(self) -> int:
        return int(self.value("max.message.bytes"))

    @property
    def min_insync_replicas(self) -> int:
        return int(self.value("min.insync.replicas"))

    @property
    def log_append_time(self) -> bool:
        return self.value("message.timestamp.type") == "LogAppendTime"

    @property
    def codec(self) -> int | None:
        """Codec of the log, None if it is the producer's."""
        return CODECS.get(self.value("compression.type"))

    @property
    def compacts(self) -> bool:
        """True if records need keys. Nothing is compacted."""
        return "compact" in self.value("cleanup.policy")

    @property
    def timestamp_after_max_ms(self) -> int:
        return int(self.value("message.timestamp.after.max.ms"))

    @property
    def timestamp_before_max_ms(self) -> int:
        return int(self.value("message.timestamp.before.max.ms"))
