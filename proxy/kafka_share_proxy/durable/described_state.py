"""Description of a state: its topic, its records, and the objects that its records are loaded into.

A *state* is what a feature keeps in one compacted topic: the latest value of each key. Every key begins with its record
type (int16), as in Kafka's coordinator records. Two types do not belong to the feature: a *takeover* begins the period
of an owner (`partition_log`), and a *keep-alive* has no content and keeps a broker from forgetting the producer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from kafka_share_proxy.brokers.internal_topics import COMPACTED, MESSAGE_BYTES
from kafka_share_proxy.durable.ownership_rules import PARTITIONS
from kafka_share_proxy.durable.partition_log import OwnerEpoch, Replay
from kafka_share_proxy.loop.log_levels import ERROR, INFO, WARNING, EventLevels
from kafka_share_proxy.wire.codec import numbered
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records.records import Record

K = TypeVar("K")

_STATE_LEVELS: EventLevels = {
    "loaded": INFO,
    "lost": ERROR,
    "ignored": WARNING,
    "unreadable": ERROR,
    "old-owner": WARNING,
    "given-up": INFO,
    "topic-lost": ERROR,
    "restored": WARNING,
    "not-followed": WARNING,
    "followed": INFO,
    "read-anew": INFO,
}
"""Level of each event that `DescribedState.event` names."""
_SERVED_LEVELS: EventLevels = {"off": ERROR, "on": INFO, "standby": INFO}
"""Level of each event that `DescribedState.served_event` names."""

_VERSION = 0


@dataclass(frozen=True, kw_only=True)
class DescribedState(Generic[K]):
    """`K` is the decoded key of a record."""

    name: str
    """Name for people ("share state"), and prefix of log events."""
    serves: str
    """Services that need the state, in the plural ("share groups"), and prefix of log events."""
    setting: str
    """Setting that defines where the state is kept."""
    topic: str
    transactional_prefix: str
    """The partition number follows."""
    record_types: frozenset[int]
    """Types of the feature's own records."""
    takeover_type: int
    keep_alive_type: int
    encode_key: Callable[[K], bytes]
    """Values are passed as bytes: only the feature knows when to encode them."""
    partition_of: Callable[[K], int]
    partitions: int = PARTITIONS
    """Number of partitions of the topic, at most `ownership_rules.PARTITIONS`. Part of the format. Members of a fleet
    own runs of numbers, so that few of them own a state with fewer partitions than numbers.
    """
    record_bytes: int = MESSAGE_BYTES // 2
    """Maximum value size in bytes that the feature would like to write."""
    message_bytes: int = MESSAGE_BYTES
    """`max.message.bytes` at creation, and if the setting cannot be read."""
    is_of_share_groups: bool = False
    """True if it is the state of the groups that proxies announce to each other (fleet/README.md rule 13)."""

    def __post_init__(self) -> None:
        own = {self.takeover_type, self.keep_alive_type}
        if len(own) < 2 or own & self.record_types:
            raise ValueError(f"{self.name}: each type of record needs a separate number")
        if not 0 < self.partitions <= PARTITIONS:
            raise ValueError(f"{self.name}: {self.partitions} partitions; owners share {PARTITIONS} numbers")

    @property
    def all(self) -> range:
        return range(self.partitions)

    @cached_property
    def configs(self) -> Mapping[str, str]:
        return {**COMPACTED, "max.message.bytes": str(self.message_bytes)}

    def event(self, suffix: str) -> str:
        """Return the name of a log event: "loaded" -> "share-state-loaded"."""
        return f"{self.name.replace(' ', '-')}-{suffix}"

    def served_event(self, suffix: str) -> str:
        """Return the name of a log event: "off" -> "share-groups-off"."""
        return f"{self.serves.replace(' ', '-')}-{suffix}"

    @cached_property
    def levels(self) -> EventLevels:
        levels = {self.event(suffix): level for suffix, level in _STATE_LEVELS.items()}
        return levels | {self.served_event(suffix): level for suffix, level in _SERVED_LEVELS.items()}

    def transactional_id(self, partition: int) -> str:
        return f"{self.transactional_prefix}{partition}"

    # Records that every state has

    def takeover(self, owner: str, time_ms: int, producer_id: int, producer_epoch: int) -> Record:
        key = messages.TakeoverKey(producer_id=producer_id, producer_epoch=producer_epoch)
        value = messages.TakeoverValue(
            producer_id=producer_id, producer_epoch=producer_epoch, owner=owner, time_ms=time_ms
        )
        return Record(
            numbered.encode(key, _VERSION, self.takeover_type),
            numbered.encode(value, _VERSION),
            timestamp=time_ms,
        )

    def keep_alive(self) -> Record:
        return Record(self._keep_alive_prefix, None)

    def is_keep_alive(self, key: bytes) -> bool:
        return key[: numbered.NUMBER_BYTES] == self._keep_alive_prefix

    def owner_epoch_of(self, key: bytes) -> OwnerEpoch | None:
        """Return the owner epoch of a takeover record, or None for records of other types.

        Raises:
            RemoteProtocolError: the record type is not listed.
        """
        if key[: numbered.NUMBER_BYTES] != self._takeover_prefix:
            if key[: numbered.NUMBER_BYTES] not in self._known_prefixes:
                raise unknown_type(key)
            return None
        stored = numbered.decode_body(messages.TakeoverKey, key, _VERSION)
        return OwnerEpoch(stored.producer_id, stored.producer_epoch)

    def replay(self, until: int) -> Replay:
        """Return the replay of one partition up to this offset, before anything was read."""
        return Replay(self.owner_epoch_of, until, plain=self.plain_types)

    @cached_property
    def plain_types(self) -> bytes:
        """Return the types of the feature's own records, two bytes each (see Replay)."""
        return b"".join(map(_prefix, sorted(self.record_types)))

    @cached_property
    def _takeover_prefix(self) -> bytes:
        return _prefix(self.takeover_type)

    @cached_property
    def _keep_alive_prefix(self) -> bytes:
        return _prefix(self.keep_alive_type)

    @cached_property
    def _known_prefixes(self) -> frozenset[bytes]:
        return frozenset(map(_prefix, (*self.record_types, self.takeover_type, self.keep_alive_type)))


class HeldState(Protocol):
    """Records of a state in memory, of partitions that this proxy owns."""

    async def load(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Load the last value of each key of one partition, in log order, with checkpoints. Keep-alives may be among
        them.

        Raises:
            RemoteProtocolError: a record cannot be read here. The partition is not served then.
        """

    async def forget(self, partitions: Collection[int]) -> None:
        """Drop partitions that are read anew: their topic was deleted, or its log was cut."""

    def stored(self, partitions: Collection[int], time_ms: int) -> Iterator[tuple[Any, bytes]]:
        """Yield keys and values, each value as it is when it is yielded. `time_ms`: now, since 1970."""

    def limit_records(self, message_bytes: int) -> None: ...

    def figures(self) -> Mapping[str, Any]:
        """Figures for the log line that reports the load."""


class Follower(Protocol):
    """Records of a state that this proxy reads without owning it."""

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Apply the next record of its partition. None deletes the key.

        Raises:
            RemoteProtocolError: the record cannot be read here. The rest of that partition is not read.
        """

    def forget(self, partitions: Collection[int]) -> None: ...


def unknown_type(key: bytes) -> RemoteProtocolError:
    return RemoteProtocolError(f"a record of type {numbered.number_in(key)} is not known here")


def _prefix(record_type: int) -> bytes:
    return record_type.to_bytes(numbered.NUMBER_BYTES, "big", signed=True)
