"""Subscriptions and assignments that members of a classic group exchange (ConsumerProtocol.java, KIP-429).

A newer version is read as the newest supported one, and the bytes that follow are ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from kafka_share_proxy.consumer.partitions import by_topic
from kafka_share_proxy.wire.codec import numbered
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.errors import ProxyError, RemoteProtocolError
from kafka_share_proxy.wire.values import TopicPartition

PROTOCOL_TYPE = "consumer"
VERSION_MAX = 3
NO_GENERATION = -1


class MalformedMember(ProxyError):
    """Another member of the group sent a malformed subscription."""


class MalformedAssignment(ProxyError):
    """The leader of the group sent a malformed assignment."""


class GroupSubscription(NamedTuple):
    """Subscription of a member, sent to the group leader (ConsumerPartitionAssignor.Subscription)."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    """Version 1 and later, without partitions to revoke."""
    generation: int = NO_GENERATION
    """Present from version 2 on."""
    rack: str | None = None
    """Present from version 3 on."""
    instance_id: str | None = None
    """Instance id that the member sent with JoinGroup."""


class GroupAssignment(NamedTuple):
    """Assignment of a member, sent by the group leader (ConsumerPartitionAssignor.Assignment)."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


def write_subscription(subscription: GroupSubscription, version: int = VERSION_MAX) -> bytes:
    """Encode a subscription, with topics in ascending order. Fields that the version lacks are omitted."""
    data = messages.ConsumerProtocolSubscription
    message = data(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=_grouped(data.TopicPartition, by_topic(subscription.owned).items()),
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    return _written(message, version)


def read_subscription(member_id: str, metadata: bytes, instance_id: str | None = None) -> GroupSubscription:
    """Decode the subscription of a member. Raises MalformedMember."""
    try:
        data = _read("ConsumerProtocolSubscription", metadata)
    except RemoteProtocolError as error:
        raise MalformedMember(
            f"member {member_id} of the group has sent a malformed subscription ({error}); "
            "it must leave the group, or be fixed, before partitions can be assigned"
        ) from error
    return GroupSubscription(
        topics=tuple(data.topics),
        user_data=None if data.user_data is None else bytes(data.user_data),
        owned=tuple(TopicPartition(each.topic, n) for each in data.owned_partitions for n in each.partitions),
        generation=max(data.generation_id, NO_GENERATION),
        rack=data.rack_id or None,
        instance_id=instance_id,
    )


def write_assignment(assignment: GroupAssignment, version: int = VERSION_MAX) -> bytes:
    """Encode an assignment. Partitions keep their order."""
    data = messages.ConsumerProtocolAssignment
    numbers: dict[str, list[int]] = {}
    for topic, partition in assignment.partitions:
        numbers.setdefault(topic, []).append(partition)
    message = data(assigned_partitions=_grouped(data.TopicPartition, numbers.items()), user_data=assignment.user_data)
    return _written(message, version)


def read_assignment(data: bytes) -> GroupAssignment:
    """Decode an assignment, empty for empty data. Raises MalformedAssignment."""
    if not data:
        return GroupAssignment()
    try:
        message = _read("ConsumerProtocolAssignment", data)
    except RemoteProtocolError as error:
        raise MalformedAssignment(f"the leader of the group has sent a malformed assignment ({error})") from error
    return GroupAssignment(
        partitions=tuple(
            TopicPartition(each.topic, n) for each in message.assigned_partitions for n in each.partitions
        ),
        user_data=None if message.user_data is None else bytes(message.user_data),
    )


def sticky_user_data(partitions: Collection[TopicPartition], generation: int) -> bytes:
    data = messages.StickyUserData
    previous = [
        data.TopicAssignment(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()
    ]
    return bytes(
        registry.codec_of(messages.StickyUserData, 1).encode(data(previous_assignment=previous, generation=generation))
    )


def read_sticky_user_data(data: bytes | None) -> tuple[tuple[TopicPartition, ...], int | None]:
    """Return (previous partitions, generation), None in version 0.

    Malformed data has no partitions and NO_GENERATION, as in Java.
    """
    if not data:
        return (), None
    for version in (1, 0):
        try:
            message, _ = registry.codec_of(messages.StickyUserData, version).decode_prefix(data)
        except RemoteProtocolError:
            continue
        before = tuple(TopicPartition(each.topic, n) for each in message.previous_assignment for n in each.partitions)
        return before, message.generation if version else None
    return (), NO_GENERATION


def cooperative_user_data(generation: int) -> bytes:
    """Return user data for leaders whose CooperativeStickyAssignor reads the generation from there (older clients)."""
    message = messages.CooperativeStickyUserData(generation=generation)
    return bytes(registry.codec_of(messages.CooperativeStickyUserData, 0).encode(message))


def read_cooperative_user_data(data: bytes | None) -> int | None:
    """Return NO_GENERATION if the data cannot be decoded, as in Java."""
    if data is None:
        return None
    try:
        message, _ = registry.codec_of(messages.CooperativeStickyUserData, 0).decode_prefix(data)
    except RemoteProtocolError:
        return NO_GENERATION
    return int(message.generation)


def _grouped(entry: Any, topics: Iterable[tuple[str, list[int]]]) -> list[Any]:
    return [entry(topic=topic, partitions=numbers) for topic, numbers in topics]


def _written(message: Any, version: int) -> bytes:
    return numbered.encode(message, version)


def _read(name: str, data: bytes) -> Any:
    if len(data) < numbered.NUMBER_BYTES:
        raise RemoteProtocolError(f"{len(data)} bytes have no version")
    version = numbered.number_in(data)
    if version < 0:
        raise RemoteProtocolError(f"version {version}")
    return registry.codec(name, min(version, VERSION_MAX)).decode_prefix(data, numbered.NUMBER_BYTES)[0]
