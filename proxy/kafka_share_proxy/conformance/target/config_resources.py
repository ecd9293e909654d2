"""Resources with settings: topics, groups, and nodes, whose settings are fixed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum

from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.cluster_settings import ClusterSettings
from kafka_share_proxy.conformance.target.topic_configs import KEYS, ConfigKind, mistake_in
from kafka_share_proxy.wire.errors import ErrorCode


class ResourceType(IntEnum):
    """Types of resources (ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    """Origins of a value (DescribeConfigsResponse.ConfigSource)."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


@dataclass(frozen=True)
class ConfigResource:
    """One resource."""

    kinds: Mapping[str, ConfigKind]
    """Settings with their types."""
    defaults: Callable[[str], str]
    stored: Mapping[str, str]
    source: ConfigSource
    """Origin of stored values."""
    mistake: Callable[[Mapping[str, str]], str | None]
    """Return the error text of invalid stored settings."""
    store: Callable[[dict[str, str]], None]
    is_read_only: bool = False


@dataclass(frozen=True)
class ConfigRefused:
    """Reason why settings are refused."""

    error: ErrorCode
    text: str


def find_resource(cluster: TargetCluster, kind: int, name: str) -> ConfigResource | ConfigRefused:
    """Return a topic, a group, which need not exist, or a node."""
    if kind == ResourceType.TOPIC:
        return _topic(cluster, name)
    if kind == ResourceType.GROUP:
        return _group(cluster, name)
    if kind == ResourceType.BROKER:
        return _broker(cluster, name)
    return ConfigRefused(ErrorCode.INVALID_REQUEST, f"Settings of resource type {kind} are not served")


def _topic(cluster: TargetCluster, name: str) -> ConfigResource | ConfigRefused:
    topic = cluster.topics.with_name(name)
    if topic is None:
        return ConfigRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")

    def store(stored: dict[str, str]) -> None:
        topic.configs.replace(stored)

    return ConfigResource(
        kinds={key.name: key.kind for key in KEYS.values()},
        defaults=lambda each: KEYS[each].default,
        stored=topic.configs.stored,
        source=ConfigSource.DYNAMIC_TOPIC,
        mistake=mistake_in,
        store=store,
    )


def _group(cluster: TargetCluster, name: str) -> ConfigResource | ConfigRefused:
    if not name:
        return ConfigRefused(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    configs = cluster.group_configs
    return ConfigResource(
        kinds=configs.keys(),
        defaults=configs.default,
        stored=configs.stored(name),
        source=ConfigSource.DYNAMIC_GROUP,
        mistake=configs.mistake,
        store=lambda stored: configs.store(name, stored),
    )


BROKER_NAMES: Mapping[str, str] = {
    "auto_create_topics": "auto.create.topics.enable",
    "default_partitions": "num.partitions",
    "default_replication": "default.replication.factor",
    "group_initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "group_session_timeout_min_ms": "group.min.session.timeout.ms",
    "group_session_timeout_max_ms": "group.max.session.timeout.ms",
    "group_size_max": "group.max.size",
    "consumer_session_timeout_ms": "group.consumer.session.timeout.ms",
    "consumer_heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms",
    "consumer_assignment_interval_ms": "group.consumer.assignment.interval.ms",
    "offset_metadata_max_bytes": "offset.metadata.max.bytes",
    "transaction_timeout_max_ms": "transaction.max.timeout.ms",
    "fetch_max_bytes": "fetch.max.bytes",
    "fetch_session_slots": "max.incremental.fetch.session.cache.slots",
}
"""Kafka's names of the settings of a cluster."""


def _broker(cluster: TargetCluster, name: str) -> ConfigResource | ConfigRefused:
    if not name.isdigit() or int(name) not in cluster.node_ids:
        return ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected 1 to {len(cluster.node_ids)}")
    stored = {BROKER_NAMES[each.name]: str(getattr(cluster.settings, each.name)) for each in fields(ClusterSettings)}
    stored = {key: value.lower() if value in ("True", "False") else value for key, value in stored.items()}
    is_boolean = {"auto.create.topics.enable"}
    return ConfigResource(
        kinds={key: ConfigKind.BOOLEAN if key in is_boolean else ConfigKind.INT for key in stored},
        defaults=stored.__getitem__,
        stored=stored,
        source=ConfigSource.STATIC_BROKER,
        mistake=lambda _: "The settings of a node are fixed when the cluster is created",
        store=lambda _: None,
        is_read_only=True,
    )
