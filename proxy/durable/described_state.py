"""What tells one state from another: its topic, its records, and what its records are loaded into.

Theory of operation. A *state* is what a feature keeps in one compacted topic: the latest value of each key. A
`DescribedState` is constant and says how it is stored; journal, replay, takeover and tail go by it and know nothing
else of the feature. Two kinds of object hold records in memory: a `HeldState` where this proxy owns the partitions
they are in, a `Follower` where it only reads them.

Every record has a key that begins with its record type (int16), as in Kafka's own coordinator records. Two types are
not the feature's: a *takeover* begins the time of an owner (`partition_log`), a *keep-alive* says nothing and keeps a
broker from forgetting who writes. Whoever finds a type that is not listed must not own that partition: a newer proxy
has written what this one would lose.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from proxy.brokers.internal_topics import COMPACTED, MESSAGE_BYTES
from proxy.durable.ownership_rules import PARTITIONS
from proxy.durable.partition_log import Reign
from proxy.wire import messages, registry
from proxy.wire.errors import RemoteProtocolError
from proxy.wire.messages import Message
from proxy.wire.records import Record

K = TypeVar("K")

_VERSION = 0
"""Of takeover keys and values."""
_INT16 = 2


@dataclass(frozen=True, kw_only=True)
class DescribedState(Generic[K]):
    """How a state is stored. `K` is what names one piece of it: the key of a record, decoded."""

    name: str
    """For people, "share state"; events of the log begin with it, "share-state-loaded"."""
    serves: str
    """What cannot be served without it, in the plural: "share groups"; events again, "share-groups-off"."""
    setting: str
    """The setting that says where it is kept."""
    topic: str
    transactional_prefix: str
    """Writers identify themselves as this and the number of the partition."""
    record_types: frozenset[int]
    """Those of the feature's own records."""
    takeover_type: int
    keep_alive_type: int
    encode_key: Callable[[K], bytes]
    """The bytes of a key, record type included. Values come as bytes: only the feature knows when to make them."""
    partition_of: Callable[[K], int]
    """Where a key is stored."""
    partitions: int = PARTITIONS
    """Of the topic, part of the format: another count would look for every key elsewhere. At most
    `ownership_rules.PARTITIONS`: partition n of every state belongs to the owner of number n. Members of a fleet own
    runs of numbers: a state with fewer partitions than numbers is at few of them."""
    record_bytes: int = MESSAGE_BYTES // 2
    """The largest value that the feature would like to write."""
    message_bytes: int = MESSAGE_BYTES
    """`max.message.bytes` of the topic when it is created, and what it is taken to allow where that cannot be read."""

    def __post_init__(self) -> None:
        own = {self.takeover_type, self.keep_alive_type}
        if len(own) < 2 or own & self.record_types:
            raise ValueError(f"{self.name}: each type of record needs a number of its own")
        if not 0 < self.partitions <= PARTITIONS:
            raise ValueError(f"{self.name}: {self.partitions} partitions; owners share {PARTITIONS} numbers")

    @property
    def all(self) -> range:
        """The number of every state partition."""
        return range(self.partitions)

    @cached_property
    def configs(self) -> Mapping[str, str]:
        """Settings that the topic is created with, but for what depends on the brokers."""
        return {**COMPACTED, "max.message.bytes": str(self.message_bytes)}

    def event(self, what: str) -> str:
        """An event of the log about the state: "loaded" -> "share-state-loaded"."""
        return f"{self.name.replace(' ', '-')}-{what}"

    def served_event(self, what: str) -> str:
        """An event of the log about what is served by it: "off" -> "share-groups-off"."""
        return f"{self.serves.replace(' ', '-')}-{what}"

    def transactional_id(self, partition: int) -> str:
        """The identity of whoever writes to a partition."""
        return f"{self.transactional_prefix}{partition}"

    # Records that every state has

    def takeover(self, owner: str, time_ms: int, producer_id: int, producer_epoch: int) -> Record:
        """The record that begins an owner's time."""
        key = messages.TakeoverKey(producer_id=producer_id, producer_epoch=producer_epoch)
        value = messages.TakeoverValue(
            producer_id=producer_id, producer_epoch=producer_epoch, owner=owner, time_ms=time_ms
        )
        return Record(
            _typed(self.takeover_type, _encoded(key)),
            _typed(_VERSION, _encoded(value)),
            timestamp=time_ms,
        )

    def keep_alive(self) -> Record:
        """A record that says nothing."""
        return Record(self._keep_alive_prefix, None)

    def is_keep_alive(self, key: bytes) -> bool:
        """Whether a record with this key says nothing."""
        return key[:_INT16] == self._keep_alive_prefix

    def reign_of(self, key: bytes) -> Reign | None:
        """The owner's time that a record with this key begins; None for all others.

        Raises:
            RemoteProtocolError: the record is of a type that is not listed.
        """
        if key[:_INT16] != self._takeover_prefix:
            if key[:_INT16] not in self._known_prefixes:
                raise unknown_type(key)
            return None
        stored = registry.codec_of(messages.TakeoverKey, _VERSION).decode(key, _INT16)
        return Reign(stored.producer_id, stored.producer_epoch)

    @cached_property
    def _takeover_prefix(self) -> bytes:
        return _typed(self.takeover_type)

    @cached_property
    def _keep_alive_prefix(self) -> bytes:
        return _typed(self.keep_alive_type)

    @cached_property
    def _known_prefixes(self) -> frozenset[bytes]:
        return frozenset(map(_typed, (*self.record_types, self.takeover_type, self.keep_alive_type)))


class HeldState(Protocol):
    """What is in memory of a state's partitions while this proxy owns them."""

    async def load(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Hold what is stored in one partition: the last value of each key, in the order of the log.

        How records are merged into what is held is the feature's; keep-alives may be among them. A large partition is
        loaded in slices, with a checkpoint between two of them.

        Raises:
            RemoteProtocolError: something cannot be read here. The partition is not served then.
        """

    async def forget(self, partitions: Collection[int]) -> None:
        """Hold nothing of these partitions any more: somebody else owns them, or they are loaded anew."""

    def limit_records(self, message_bytes: int) -> None:
        """The topic takes record batches of so many bytes (`max.message.bytes`)."""

    def figures(self) -> Mapping[str, Any]:
        """What is held, in numbers: for the line of the log that says that it was loaded."""


class Follower(Protocol):
    """What is in memory of a state that this proxy reads without owning it."""

    def apply(self, key: bytes, value: bytes | None) -> None:
        """A record, in the order of its partition; None deletes the key. Keep-alives come as well.

        Raises:
            RemoteProtocolError: it cannot be read here. Nothing more of that partition is read.
        """

    def forget(self, partitions: Collection[int]) -> None:
        """These partitions are read anew from their start: their topic was deleted, or its log was cut."""


def unknown_type(key: bytes) -> RemoteProtocolError:
    """What is raised for a record that a newer proxy has written."""
    return RemoteProtocolError(f"a record of type {int.from_bytes(key[:_INT16], 'big', signed=True)} is not known here")


def _typed(number: int, body: bytes = b"") -> bytes:
    return number.to_bytes(_INT16, "big", signed=True) + body


def _encoded(message: Message) -> bytes:
    return registry.codec_of(type(message), _VERSION).encode(message)
