"""Settings of a topic that the cluster applies. Others are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


class ConfigKind(IntEnum):
    """Types of settings in DescribeConfigs (DescribeConfigsResponse.ConfigType)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    LIST = 7


def _number(low: int, high: int) -> Callable[[str], bool]:
    def fits(value: str) -> bool:
        try:
            return low <= int(value) <= high
        except ValueError:
            return False

    return fits


def _one_of(*names: str) -> Callable[[str], bool]:
    return lambda value: value in names


def _some_of(*names: str) -> Callable[[str], bool]:
    return lambda value: bool(value) and all(each.strip() in names for each in value.split(","))


@dataclass(frozen=True)
class ConfigKey:
    """One setting."""

    name: str
    kind: ConfigKind
    default: str
    fits: Callable[[str], bool]


KEYS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey("cleanup.policy", ConfigKind.LIST, "delete", _some_of("delete", "compact")),
        ConfigKey("compression.type", ConfigKind.STRING, "producer", _one_of("producer", *CODECS)),
        ConfigKey("delete.retention.ms", ConfigKind.LONG, "86400000", _number(0, LONG_MAX)),
        ConfigKey("flush.messages", ConfigKind.LONG, str(LONG_MAX), _number(1, LONG_MAX)),
        ConfigKey("flush.ms", ConfigKind.LONG, str(LONG_MAX), _number(0, LONG_MAX)),
        ConfigKey("max.message.bytes", ConfigKind.INT, "1048588", _number(0, INT_MAX)),
        ConfigKey("message.timestamp.after.max.ms", ConfigKind.LONG, "3600000", _number(0, LONG_MAX)),
        ConfigKey("message.timestamp.before.max.ms", ConfigKind.LONG, str(LONG_MAX), _number(0, LONG_MAX)),
        ConfigKey("message.timestamp.type", ConfigKind.STRING, "CreateTime", _one_of("CreateTime", "LogAppendTime")),
        ConfigKey("min.insync.replicas", ConfigKind.INT, "1", _number(1, INT_MAX)),
        ConfigKey("retention.bytes", ConfigKind.LONG, "-1", _number(-1, LONG_MAX)),
        ConfigKey("retention.ms", ConfigKind.LONG, "604800000", _number(-1, LONG_MAX)),
        ConfigKey("segment.bytes", ConfigKind.INT, "1073741824", _number(1 << 20, INT_MAX)),
        ConfigKey("segment.ms", ConfigKind.LONG, "604800000", _number(1, LONG_MAX)),
        ConfigKey("unclean.leader.election.enable", ConfigKind.BOOLEAN, "false", _one_of("true", "false")),
    )
}
"""Settings by name. Those about retention, segments, flushes and elections are kept and described, and change nothing
in memory.
"""


def mistake_in(name: str, value: str) -> str | None:
    """Return the error text of a setting that is unknown or has an invalid value."""
    key = KEYS.get(name)
    if key is None:
        return f"Unknown topic config name: {name}"
    return None if key.fits(value) else f"Invalid value {value} for configuration {name}"


@dataclass
class TopicConfigs:
    """Settings of one topic."""

    stored: dict[str, str] = field(default_factory=dict)

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
