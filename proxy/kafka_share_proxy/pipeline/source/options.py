"""Options of the data source `keyrange`, validated before a connection is opened (pipeline/README.md rules 1 and 2)."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.pipeline.source.key_ranges import KeyRanges
from kafka_share_proxy.views.model.plans import BadPlan
from kafka_share_proxy.wire.bootstrap import BadServer, servers
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.topic_ids import parse_topic_id
from kafka_share_proxy.wire.values import MIB, Address, TopicPartition

T = TypeVar("T")

EARLIEST, LATEST = "earliest", "latest"
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

STOCK_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""Columns of Spark's Kafka source, in its order."""
OWN_COLUMNS = ("key_hash", "range_id", "record_bytes", "topic_id")
"""Additional columns. `record_bytes` is the size of key and value together."""
COLUMNS = (*STOCK_COLUMNS, "headers", *OWN_COLUMNS)

NAMES = (
    "bootstrap", "topic", "assign", "keyRanges", "rangePlan", "offsetSplits", "offsetRanges", "startingOffsets",
    "endingOffsets", "exceptOffsets", "topicIds", "maxOffsetsPerTrigger", "mirrorGroup", "includeHeaders",
    "includeValue", "includeKeyHash", "includeTopicId",
    "columns", "failOnDataLoss", "fetchBytes", "timeoutMs", "isolationLevel", "clientId", "tls", "tls.ca",
    "tls.cert", "tls.key", "tls.serverName", "sasl.mechanism", "sasl.username", "sasl.password", "sasl.passwordFile",
)  # fmt: skip


class BadOption(ProxyError):
    """An option is invalid. The text names it, and says what is valid."""


class Security(NamedTuple):
    """Security settings of connections. Plain values, because they are sent to executors."""

    tls: bool = False
    ca: str = ""
    """File with trusted certificates; empty for those of the system."""
    cert: str = ""
    key: str = ""
    server_name: str = ""
    """Host name that the certificate must have; empty for the host of the address."""
    mechanism: str = ""
    """SASL mechanism; empty for none."""
    username: str = ""
    password: str = ""
    password_file: str = ""
    """File with the password, read at each authentication on the machine of the task."""

    def __repr__(self) -> str:
        return f"Security(tls={self.tls}, mechanism={self.mechanism!r}, username={self.username!r})"


Offsets = Mapping[TopicPartition, int]
Position = str | Offsets


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Validated options. Spark sends them to executors with each task."""

    bootstrap: tuple[Address, ...]
    topics: tuple[str, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    """Partitions to read; empty for all partitions of the topics."""
    ranges: KeyRanges = field(default_factory=KeyRanges)
    offset_splits: int = 1
    """Number of pieces by offset of each partition and key range."""
    offset_ranges: tuple[tuple[TopicPartition, OffsetSpan], ...] = ()
    """Offsets to read; empty for all from `starting` to `ending`."""
    starting: Position = EARLIEST
    ending: Position = LATEST
    excepted: tuple[tuple[TopicPartition, OffsetSpan], ...] = ()
    """Offsets to leave out."""
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    """Topic name -> id of the topic that the offsets in these options belong to. Empty for any id."""
    max_offsets_per_trigger: int | None = None
    mirror_group: str = ""
    """Group for which the progress of a stream is committed; empty for none."""
    columns: tuple[str, ...] = STOCK_COLUMNS
    fail_on_data_loss: bool = True
    fetch_bytes: int = MIB
    timeout_s: float = 120.0
    """Seconds that a read may continue without any progress."""
    is_committed: bool = True
    """True if `isolationLevel` is read_committed."""
    client_id: str = "kafka-share-proxy-pipeline"
    security: Security = field(default_factory=Security)


def read_options(options: Mapping[str, str]) -> SourceOptions:
    """Validate the options of a reader. Raises BadOption."""
    check_names(options, NAMES)
    values = {name.lower(): str(value) for name, value in options.items()}
    bootstrap = _bootstrap(values.get("bootstrap", ""))
    topics = tuple(dict.fromkeys(each.strip() for each in values.get("topic", "").split(",") if each.strip()))
    no_places: tuple[TopicPartition, ...] = ()
    no_ranges: tuple[tuple[TopicPartition, OffsetSpan], ...] = ()
    no_ids: Mapping[str, bytes] = {}
    earliest: Position = EARLIEST
    latest: Position = LATEST
    assigned = _parsed(values, "assign", _assigned, no_places)
    offset_ranges = _parsed(values, "offsetRanges", _offset_ranges, no_ranges)
    if sum(map(bool, (topics, assigned, offset_ranges))) != 1:
        raise BadOption('say one of topic=orders, assign={"orders": [0, 1]} and offsetRanges=[...]')
    return SourceOptions(
        bootstrap=bootstrap,
        topics=topics
        or tuple(dict.fromkeys(partition.topic for partition in (*assigned, *(p for p, _ in offset_ranges)))),
        assigned=assigned,
        ranges=_ranges(values),
        offset_splits=_number(values, "offsetSplits", 1, 1),
        offset_ranges=offset_ranges,
        starting=_parsed(values, "startingOffsets", _position, earliest),
        ending=_parsed(values, "endingOffsets", _position, latest),
        excepted=_parsed(values, "exceptOffsets", _offset_ranges, no_ranges),
        topic_ids=_parsed(values, "topicIds", _topic_ids, no_ids),
        max_offsets_per_trigger=_number(values, "maxOffsetsPerTrigger", 0, 1) or None,
        mirror_group=values.get("mirrorgroup", ""),
        columns=_columns(values),
        fail_on_data_loss=_flag(values, "failOnDataLoss", True),
        fetch_bytes=_number(values, "fetchBytes", MIB, 1024),
        timeout_s=_number(values, "timeoutMs", 120_000, 1) / 1000,
        is_committed=_isolation(values.get("isolationlevel", READ_COMMITTED)),
        client_id=values.get("clientid", SourceOptions.client_id),
        security=_security(values),
    )


def check_names(option_names: Iterable[str], names: Sequence[str]) -> None:
    """Raise BadOption, which suggests the nearest valid name."""
    known = {name.lower(): name for name in names}
    for name in option_names:
        if name.lower() not in known:
            (near,) = difflib.get_close_matches(name.lower(), known, 1, 0.6) or ("",)
            advice = f"; did you mean {known[near]!r}?" if near else f"; there are {', '.join(names)}"
            raise BadOption(f"no option is called {name!r}{advice}")


def _parsed(values: Mapping[str, str], name: str, parse: Callable[[str], T], default: T) -> T:
    text = values.get(name.lower())
    if text is None:
        return default
    try:
        return parse(text)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise BadOption(f"{name}={text[:80]!r}: {reason}") from None


def _number(values: Mapping[str, str], name: str, default: int, smallest: int) -> int:
    def parse(text: str) -> int:
        value = int(text)
        if value < smallest:
            raise ValueError(f"must be at least {smallest}")
        return value

    return _parsed(values, name, parse, default)


def _flag(values: Mapping[str, str], name: str, default: bool) -> bool:
    def parse(text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("write true or false")
        return text.lower() == "true"

    return _parsed(values, name, parse, default)


def _bootstrap(text: str) -> tuple[Address, ...]:
    try:
        addresses = servers([text])
    except BadServer as error:
        raise BadOption(f"bootstrap={error}: write host:port, with a port of 1 to 65535") from None
    if not addresses:
        raise BadOption("bootstrap names no server: write bootstrap=host:port,host:port (the proxy's, for key ranges)")
    return addresses


def _ranges(values: Mapping[str, str]) -> KeyRanges:
    if "keyranges" in values and "rangeplan" in values:
        raise BadOption("keyRanges and rangePlan exclude each other: a number of even ranges, or a plan file")
    if "rangeplan" in values:
        path = Path(values["rangeplan"])
        try:
            return KeyRanges.of_plan(path.read_bytes())
        except OSError as error:
            raise BadOption(f"rangePlan={str(path)!r}: {error.strerror}") from None
        except BadPlan as error:
            raise BadOption(f"rangePlan={str(path)!r}: {error}") from None
    return _parsed(values, "keyRanges", lambda text: KeyRanges.even(int(text)), KeyRanges())


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    partitions = [TopicPartition(topic, int(each)) for topic, listed in json.loads(text).items() for each in listed]
    if not partitions or any(partition.partition < 0 for partition in partitions):
        raise ValueError('write {"topic": [0, 1]}')
    return tuple(dict.fromkeys(partitions))


def _offset_ranges(text: str) -> tuple[tuple[TopicPartition, OffsetSpan], ...]:
    return tuple(offset_range(each) for each in json.loads(text))


def _topic_ids(text: str) -> Mapping[str, bytes]:
    return {str(topic): parse_topic_id(topic_id) for topic, topic_id in json.loads(text).items()}


def offset_range(entry: Mapping[str, Any]) -> tuple[TopicPartition, OffsetSpan]:
    """Parse one range of `commits --holes --json`.

    Raises ValueError.
    """
    topic, partition, first, last = (entry[name] for name in ("topic", "partition", "first", "last"))
    if not isinstance(topic, str) or not all(type(each) is int for each in (partition, first, last)):
        raise ValueError("topic is a text; partition, first and last are integers")
    if partition < 0 or not 0 <= first <= last:
        raise ValueError(f"{topic}-{partition}: {first}-{last} is no range of offsets")
    return TopicPartition(topic, partition), OffsetSpan(first, last + 1)


def _position(text: str) -> Position:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    offsets = {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }
    if any(type(offset) is not int or offset < -2 for offset in offsets.values()):
        raise ValueError('write earliest, latest or {"topic": {"0": 12}}, with -2 for earliest and -1 for latest')
    return offsets


def _columns(values: Mapping[str, str]) -> tuple[str, ...]:
    if "columns" in values:
        return _parsed(values, "columns", _listed_columns, ())
    chosen = [name for name in STOCK_COLUMNS if name != "value" or _flag(values, "includeValue", True)]
    chosen += ["headers"] * _flag(values, "includeHeaders", False)
    chosen += OWN_COLUMNS[:2] if _flag(values, "includeKeyHash", False) else ()
    chosen += ["topic_id"] * _flag(values, "includeTopicId", False)
    return tuple(chosen)


def _listed_columns(text: str) -> tuple[str, ...]:
    chosen = [each.strip() for each in text.split(",")]
    unknown = [each for each in chosen if each not in COLUMNS]
    if unknown or len(set(chosen)) != len(chosen):
        raise ValueError(f"name each once, of {', '.join(COLUMNS)}")
    return tuple(chosen)


def _isolation(text: str) -> bool:
    if text not in (READ_COMMITTED, READ_UNCOMMITTED):
        raise BadOption(f"isolationLevel={text!r}: write {READ_COMMITTED} or {READ_UNCOMMITTED}")
    return text == READ_COMMITTED


def _security(values: Mapping[str, str]) -> Security:
    security = Security(
        tls=_flag(values, "tls", any(name.startswith("tls.") for name in values)),
        ca=values.get("tls.ca", ""),
        cert=values.get("tls.cert", ""),
        key=values.get("tls.key", ""),
        server_name=values.get("tls.servername", ""),
        mechanism=values.get("sasl.mechanism", ""),
        username=values.get("sasl.username", ""),
        password=values.get("sasl.password", ""),
        password_file=values.get("sasl.passwordfile", ""),
    )
    if security.mechanism and security.mechanism not in MECHANISMS:
        raise BadOption(f"sasl.mechanism={security.mechanism!r}: one of {', '.join(MECHANISMS)}")
    if security.mechanism and not security.username:
        raise BadOption("sasl.username is missing")
    if security.mechanism and bool(security.password) == bool(security.password_file):
        raise BadOption("say one of sasl.passwordFile and sasl.password")
    if security.username and not security.mechanism:
        raise BadOption(f"sasl.mechanism is missing: one of {', '.join(MECHANISMS)}")
    return security
