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
from kafka_share_proxy.wire.codec import numbered
from kafka_share_proxy.wire.definitions import messages
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
RANGE_PREFIX = RANGE.to_bytes(numbered.NUMBER_BYTES, "big")


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
    return numbered.encode(messages.CommittingGroupKey(group_id=key.group_id), VERSION, GROUP)


def range_prefix(group_id: str, topic: str, partition: int) -> bytes:
    key = messages.CommittedRangeKey(group_id=group_id, topic=topic, partition=partition, first=0, last=0)
    return numbered.encode(key, VERSION, RANGE)[: -_OFFSETS.size]


_known_prefix = lru_cache(maxsize=REMEMBERED)(range_prefix)


def decode_key(key: bytes) -> CommitKey:
    """Raises RemoteProtocolError, also for the types that all states share."""
    if key[: numbered.NUMBER_BYTES] == RANGE_PREFIX:
        partition, first, last = split_range_key(key)
        return RangeKey(*partition, first, last)
    kind = numbered.number_in(key)
    if kind != GROUP or len(key) < numbered.NUMBER_BYTES:
        raise unknown_type(key)
    return GroupKey(numbered.decode_body(messages.CommittingGroupKey, key, VERSION).group_id)


def is_range_key(key: bytes) -> bool:
    return key[: numbered.NUMBER_BYTES] == RANGE_PREFIX


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
    stored = numbered.decode_body(messages.CommittedRangeKey, prefix + bytes(_OFFSETS.size), VERSION)
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
    return numbered.encode(stored, VERSION)


def decode_range_value(value: bytes) -> RangeValue:
    """Raises RemoteProtocolError."""
    return (_known_value if len(value) <= REMEMBERED_LENGTH_MAX else _range_value)(value)


def _range_value(value: bytes) -> RangeValue:
    stored = numbered.decode(messages.CommittedRangeValue, value, (VERSION,))
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
    return numbered.encode(messages.CommittingGroupValue(time_ms=time_ms), VERSION)


def group_time_ms(value: bytes) -> int:
    """Raises RemoteProtocolError."""
    return numbered.decode(messages.CommittingGroupValue, value, (VERSION,)).time_ms


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
