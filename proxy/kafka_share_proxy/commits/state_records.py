"""Encoding and decoding of the records in `__individual_commit_offsets` (commits/README.md rule 20).

A commit may have 10,000 ranges and a topic 1,000,000, and the generated codecs take three to four times as long as this
code. The part of a key before its offsets is the same for all ranges of a partition: it is decoded once and cached. All
ranges of one commit have the same value, which is also decoded once.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple, TypeAlias, TypeVar

from kafka_share_proxy.durable import ownership_rules
from kafka_share_proxy.durable.described_state import DescribedState, unknown_type
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.values import ZERO_UUID

M = TypeVar("M", bound=Message)

TOPIC = "__individual_commit_offsets"
PARTITIONS = ownership_rules.PARTITIONS
"""Part of the format."""

RANGE, GROUP, TAKEOVER, KEEP_ALIVE = range(4)
BINDING = "text"
"""Metadata of a record that is no finished range, but the topic id of the broker's text (commits/README.md rule 32)."""
VERSION = 0

REMEMBERED = 10_000
VALUES_REMEMBERED = 1_000
REMEMBERED_LENGTH_MAX = 512
"""Maximum length of cached keys and values."""

_OFFSETS = Struct(">qq")
_VALUE_NUMBERS = Struct(">h16siqqB")
"""Version, topic id, leader epoch, committed offset, time, length of the member id."""
_NO_METADATA_NO_TAGS = b"\0\0"
SHORT_MAX = 126
"""Maximum bytes of a member id with a length of one byte."""
_INT16 = 2
RANGE_PREFIX = RANGE.to_bytes(_INT16, "big")
_VERSION_PREFIX = VERSION.to_bytes(_INT16, "big")


class RangeKey(NamedTuple):
    """Key of one range of offsets that a group has finished in a partition."""

    group_id: str
    topic: str
    partition: int
    first: int
    last: int
    """Last offset, inclusive."""


class GroupKey(NamedTuple):
    """Key of the record that a group commits ranges."""

    group_id: str


CommitKey: TypeAlias = RangeKey | GroupKey


class RangeValue(NamedTuple):
    """Circumstances in which a range was finished."""

    topic_id: bytes = ZERO_UUID
    leader_epoch: int = -1
    committed_offset: int = -1
    time_ms: int = -1
    member_id: str = ""
    metadata: str | None = None


class RangePartition(NamedTuple):
    """A topic-partition of a group, to which ranges belong."""

    group_id: str
    topic: str
    partition: int


def _partition_of(key: CommitKey) -> int:
    return state_partition(key.group_id)


# Keys


def encode_key(key: CommitKey) -> bytes:
    if isinstance(key, RangeKey):
        group_id, topic, partition, first, last = key
        is_short = len(group_id) + len(topic) <= REMEMBERED_LENGTH_MAX
        return (_known_prefix if is_short else range_prefix)(group_id, topic, partition) + _OFFSETS.pack(first, last)
    return _typed(GROUP, messages.CommittingGroupKey(group_id=key.group_id))


def range_prefix(group_id: str, topic: str, partition: int) -> bytes:
    key = messages.CommittedRangeKey(group_id=group_id, topic=topic, partition=partition, first=0, last=0)
    return _typed(RANGE, key)[: -_OFFSETS.size]


_known_prefix = lru_cache(maxsize=REMEMBERED)(range_prefix)


def decode_key(key: bytes) -> CommitKey:
    """Raises RemoteProtocolError, also for the types that all states share."""
    if key[:_INT16] == RANGE_PREFIX:
        partition, first, last = split_range_key(key)
        return RangeKey(*partition, first, last)
    kind = int.from_bytes(key[:_INT16], "big", signed=True)
    if kind != GROUP or len(key) < _INT16:
        raise unknown_type(key)
    return GroupKey(registry.codec_of(messages.CommittingGroupKey, VERSION).decode(key, _INT16).group_id)


def is_range_key(key: bytes) -> bool:
    return key[:_INT16] == RANGE_PREFIX


def split_range_key(key: bytes) -> tuple[RangePartition, int, int]:
    """Return topic-partition, first offset and last offset. Raises RemoteProtocolError.

    The same object is returned for all ranges of a partition, to save strings.
    """
    prefix = key[: -_OFFSETS.size]
    partition = _known_partition(prefix) if len(prefix) <= REMEMBERED_LENGTH_MAX else _partition(prefix)
    first, last = _OFFSETS.unpack_from(key, len(prefix))
    if not 0 <= first <= last:
        raise RemoteProtocolError(f"a range from {first} to {last} is none")
    return partition, first, last


def _partition(prefix: bytes) -> RangePartition:
    stored = registry.codec_of(messages.CommittedRangeKey, VERSION).decode(prefix + bytes(_OFFSETS.size), _INT16)
    return RangePartition(stored.group_id, stored.topic, stored.partition)


_known_partition = lru_cache(maxsize=REMEMBERED)(_partition)


# Values


def range_value(value: RangeValue) -> bytes:
    topic_id, leader_epoch, committed_offset, time_ms, member_id, metadata = value
    name = member_id.encode()
    if metadata is None and len(name) <= SHORT_MAX and len(topic_id) == len(ZERO_UUID):
        numbers = _VALUE_NUMBERS.pack(VERSION, topic_id, leader_epoch, committed_offset, time_ms, len(name) + 1)
        return numbers + name + _NO_METADATA_NO_TAGS
    stored = messages.CommittedRangeValue(
        topic_id=topic_id,
        leader_epoch=leader_epoch,
        committed_offset=committed_offset,
        time_ms=time_ms,
        member_id=member_id,
        metadata=metadata,
    )
    return _versioned(stored)


def decode_range_value(value: bytes) -> RangeValue:
    """Raises RemoteProtocolError."""
    return (_known_value if len(value) <= REMEMBERED_LENGTH_MAX else _range_value)(value)


def _range_value(value: bytes) -> RangeValue:
    stored = _read(messages.CommittedRangeValue, value)
    return RangeValue(
        bytes(stored.topic_id),
        stored.leader_epoch,
        stored.committed_offset,
        stored.time_ms,
        stored.member_id,
        stored.metadata,
    )


_known_value = lru_cache(maxsize=VALUES_REMEMBERED)(_range_value)


def group_value(time_ms: int) -> bytes:
    return _versioned(messages.CommittingGroupValue(time_ms=time_ms))


def group_time_ms(value: bytes) -> int:
    """Raises RemoteProtocolError."""
    return _read(messages.CommittingGroupValue, value).time_ms


def _typed(kind: int, key: Message) -> bytes:
    body = registry.codec_of(type(key), VERSION).encode(key)
    return kind.to_bytes(_INT16, "big") + body


def _versioned(value: Message) -> bytes:
    return _VERSION_PREFIX + registry.codec_of(type(value), VERSION).encode(value)


def _read(kind: type[M], value: bytes) -> M:
    version = int.from_bytes(value[:_INT16], "big", signed=True)
    if version != VERSION or len(value) < _INT16:
        raise RemoteProtocolError(f"{kind.__name__} of version {version} is not known here")
    return registry.codec_of(kind, version).decode(value, _INT16)


INDIVIDUAL_COMMITS: DescribedState[CommitKey] = DescribedState(
    name="commit state",
    serves="individual commits",
    setting="commits.state",
    topic=TOPIC,
    partitions=PARTITIONS,
    transactional_prefix="__proxy-commits-",
    record_types=frozenset({RANGE, GROUP}),
    takeover_type=TAKEOVER,
    keep_alive_type=KEEP_ALIVE,
    encode_key=encode_key,
    partition_of=_partition_of,
)
