"""Metadata and assignments of classic consumers as bytes (ConsumerProtocol of Kafka)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from kafka_share_proxy.conformance.target.topics import HostedTopic
from kafka_share_proxy.wire.codec import numbered
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.values import TopicIdPartition

CONSUMER = "consumer"
"""Protocol type of consumers."""
HIGHEST_VERSION = 3

M = TypeVar("M", bound=Message)


class Topics(Protocol):
    """Topics by name and id."""

    def with_name(self, name: str) -> HostedTopic | None: ...
    def with_id(self, topic_id: bytes) -> HostedTopic | None: ...


class _Named(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partitions(self) -> Iterable[int]: ...


def read_subscription(metadata: bytes) -> messages.ConsumerProtocolSubscription | None:
    """Return what a member subscribes to. None if the bytes cannot be read."""
    return _read(messages.ConsumerProtocolSubscription, metadata)


def read_assignment(assignment: bytes) -> messages.ConsumerProtocolAssignment | None:
    """Return the assignment of a member. None if the bytes cannot be read."""
    return _read(messages.ConsumerProtocolAssignment, assignment)


def _read(kind: type[M], data: bytes) -> M | None:
    version = _version(data)
    if version < 0:
        return None
    try:
        return numbered.decode_body(kind, data, version)
    except RemoteProtocolError:
        return None


def _version(data: bytes) -> int:
    """Return the version of the bytes. A later one than the last known is read as that one."""
    return min(numbered.number_in(data), HIGHEST_VERSION)


def existing_partitions(entries: Iterable[_Named], topics: Topics) -> set[TopicIdPartition]:
    """Return partitions with the ids of their topics, without topics that do not exist."""
    known = [(topics.with_name(entry.topic), entry.partitions) for entry in entries]
    return {TopicIdPartition(topic.topic_id, each) for topic, indexes in known if topic is not None for each in indexes}


def write_assignment(partitions: Iterable[TopicIdPartition], topics: Topics, metadata: bytes) -> bytes:
    """Return an assignment in the version of the metadata of its member."""
    by_name: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        topic = topics.with_id(partition.topic_id)
        if topic is not None:
            by_name.setdefault(topic.name, []).append(partition.partition)
    kind, version = messages.ConsumerProtocolAssignment, max(_version(metadata), 0)
    entries = [kind.TopicPartition(topic=name, partitions=indexes) for name, indexes in by_name.items()]
    return numbered.encode(kind(assigned_partitions=entries, user_data=None), version)
