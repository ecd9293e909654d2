"""Records of `__proxy_share_state`: encoding and decoding of keys and values, and loading of a coordinator from them.

A key begins with its record type, a value with its version (both int16), as in Kafka's own coordinator records. Layouts
are in schemas/internal. A proxy that reads an unknown type or version must not own that partition: it would lose what a
newer proxy wrote.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import lru_cache
from typing import Literal, NamedTuple

from kafka_share_proxy.durable import ownership_rules
from kafka_share_proxy.durable.described_state import DescribedState, unknown_type
from kafka_share_proxy.durable.gate import StateGate
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.sharegroups.apis.group_configs import settings_of
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator, ShareKey
from kafka_share_proxy.sharegroups.model.snapshot import SNAPSHOT_BYTES_MAX, ShareSnapshot
from kafka_share_proxy.wire.codec import numbered
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.values import ZERO_UUID

TOPIC = "__proxy_share_state"
PARTITIONS = ownership_rules.PARTITIONS
"""Number of partitions. Part of the format: a different count would change the partition of every group."""

PARTITION, GROUP, SETTINGS, TAKEOVER, KEEP_ALIVE = range(5)
_TYPES = frozenset({PARTITION, GROUP, SETTINGS})
"""Record types specific to share state."""
_KEY_VERSION = 0

KEYS_REMEMBERED = 1_000
"""Number of share partition keys kept encoded."""

VALUE_VERSION = 0
"""Version of written group values."""


class StateKey(NamedTuple):
    """Key of one record of share state."""

    kind: Literal["partition", "group", "settings"]
    group_id: str
    topic_id: bytes = ZERO_UUID
    """Topic of a record of kind "partition". ZERO_UUID in others."""
    partition: int = -1
    """Partition of that topic. -1 in others."""


def _partition_of(key: StateKey) -> int:
    return state_partition(key.group_id)


def share_gate() -> StateGate:
    return StateGate(PARTITIONS, state_partition)


@lru_cache(maxsize=KEYS_REMEMBERED)
def encode_key(key: StateKey) -> bytes:
    if key.kind == "group":
        return numbered.encode(messages.ShareGroupKey(group_id=key.group_id), _KEY_VERSION, GROUP)
    if key.kind == "settings":
        return numbered.encode(messages.ShareGroupSettingsKey(group_id=key.group_id), _KEY_VERSION, SETTINGS)
    name = messages.SharePartitionKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return numbered.encode(name, _KEY_VERSION, PARTITION)


def decode_key(key: bytes) -> StateKey:
    """Decode a key. Raises RemoteProtocolError for unknown types and for types that are not specific to share state."""
    kind = numbered.number_in(key)
    if kind not in _TYPES or len(key) < numbered.NUMBER_BYTES:
        raise unknown_type(key)
    if kind == GROUP:
        return StateKey("group", numbered.decode_body(messages.ShareGroupKey, key, _KEY_VERSION).group_id)
    if kind == SETTINGS:
        decoded = numbered.decode_body(messages.ShareGroupSettingsKey, key, _KEY_VERSION)
        return StateKey("settings", decoded.group_id)
    share = numbered.decode_body(messages.SharePartitionKey, key, _KEY_VERSION)
    return StateKey("partition", share.group_id, bytes(share.topic_id), share.partition)


SHARE_STATE: DescribedState[StateKey] = DescribedState(
    name="share state",
    serves="share groups",
    setting="share_groups.state",
    topic=TOPIC,
    partitions=PARTITIONS,
    transactional_prefix="__proxy-share-",
    record_types=_TYPES,
    takeover_type=TAKEOVER,
    keep_alive_type=KEEP_ALIVE,
    encode_key=encode_key,
    partition_of=_partition_of,
    record_bytes=SNAPSHOT_BYTES_MAX,
    is_of_share_groups=True,
)


def group_value(epoch: int) -> bytes:
    return numbered.encode(messages.ShareGroupValue(epoch=epoch), VALUE_VERSION)


def group_epoch(value: bytes) -> int:
    """Decode the epoch of a stored group. Raises RemoteProtocolError."""
    return numbered.decode(messages.ShareGroupValue, value, (VALUE_VERSION,)).epoch


def load(coordinator: ShareCoordinator, values: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """Load replayed records. Return the ids of the groups with settings.

    Raises RemoteProtocolError for a key, group or setting that cannot be decoded. Share partitions stay encoded until
    they are used. Only their version is checked here.
    """
    ids: dict[bytes, bytes] = {}
    names: dict[str, str] = {}
    with_settings: list[str] = []
    for raw, value in values:
        if SHARE_STATE.is_keep_alive(raw):
            continue
        key = decode_key(raw)
        group_id = names.setdefault(key.group_id, key.group_id)  # one string for all its share partitions
        if key.kind == "group":
            group = coordinator.add_group(group_id)
            group.epoch = group.stored_epoch = group_epoch(value)
        elif key.kind == "settings":
            coordinator.store_settings(group_id, settings_of(value))
            with_settings.append(group_id)
        else:
            ShareSnapshot.check_version(value)
            topic_id = ids.setdefault(key.topic_id, key.topic_id)
            coordinator.rest(ShareKey(group_id, topic_id, key.partition), value)
    return with_settings


def groups_in(coordinator: ShareCoordinator, partitions: Container[int]) -> list[str]:
    """Return the ids of all groups in these state partitions that have a group, settings or share partitions here."""
    held = {group_id for group_id, _ in coordinator.topics()}
    held.update(coordinator.groups, coordinator.groups_with_settings())
    return sorted(group_id for group_id in held if state_partition(group_id) in partitions)
