"""The topic of share state: its creation, leaders and sizes, and topics that are refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from kafka_share_proxy.brokers.internal_topics import MESSAGE_BYTES, OFFSETS_TOPIC, TopicRefused
from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.durable.state_producer import BATCH_BYTES_MAX
from kafka_share_proxy.durable.state_topic import StateTopic
from kafka_share_proxy.sharegroups.model.coordinator import RECORD_OVERHEAD
from kafka_share_proxy.sharegroups.model.snapshot import SNAPSHOT_BYTES_MAX
from kafka_share_proxy.sharegroups.state.state_records import PARTITIONS, SHARE_STATE, TOPIC
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from kafka_share_proxy.wire.values import Address

from tests.support.target_brokers import TargetBrokers

PINNED = Address("pinned", 1)


def topic_of(brokers: TargetBrokers) -> StateTopic:
    return StateTopic(brokers.client({2: PINNED}), SHARE_STATE)


async def test_missing_topic_is_created_compacted_with_50_partitions_and_3_replicas(nursery: trio.Nursery) -> None:
    brokers = TargetBrokers(nursery, nodes=3)
    assert await topic_of(brokers).leaders() is None
    assert await topic_of(brokers).create()
    created = brokers.topic(TOPIC)
    assert [len(partition.replicas) for partition in created.partitions] == [3] * 50
    configs = created.configs.stored
    assert (configs["cleanup.policy"], configs["min.insync.replicas"]) == ("compact", "2")


@pytest.mark.parametrize(
    ("brokers", "offsets", "replicas", "in_sync"), [(1, 0, 1, 1), (2, 0, 2, 1), (5, 0, 3, 2), (5, 5, 5, 4)]
)
async def test_topic_is_replicated_as_the_offsets_topic_is(
    nursery: trio.Nursery, brokers: int, offsets: int, replicas: int, in_sync: int
) -> None:
    target_brokers = TargetBrokers(nursery, nodes=brokers)
    if offsets:
        target_brokers.target.create_topic(OFFSETS_TOPIC, 50, replication=offsets)
    await topic_of(target_brokers).create()
    created = target_brokers.topic(TOPIC)
    replicas_made = len(created.partitions[0].replicas)
    assert (replicas_made, created.configs.stored["min.insync.replicas"]) == (replicas, str(in_sync))


async def test_view_names_leaders_where_brokers_are_dialled(nursery: trio.Nursery) -> None:
    brokers = TargetBrokers(nursery, nodes=3)
    brokers.target.add_topic(TOPIC, [[3] if index == 7 else [1 + index % 2] for index in range(PARTITIONS)], {})
    brokers.target.take_node_down(3)
    view = await topic_of(brokers).leaders()
    assert view is not None
    assert not view.is_whole
    assert 7 not in view.leaders
    assert view.addresses == {1: Address("b1", 9092), 2: PINNED}
    brokers.target.bring_node_up(3)
    view = await topic_of(brokers).leaders()
    assert view is not None
    assert view.is_whole


async def test_another_number_of_partitions_is_refused(nursery: trio.Nursery) -> None:
    """Every group would be looked for elsewhere."""
    brokers = TargetBrokers(nursery)
    brokers.make(TOPIC, 10)
    with pytest.raises(TopicRefused, match="has 10 partitions and must have 50"):
        await topic_of(brokers).leaders()


async def test_right_that_the_identity_lacks_is_named(nursery: trio.Nursery) -> None:
    brokers = TargetBrokers(nursery)
    for key in (ApiKey.METADATA, ApiKey.CREATE_TOPICS):
        brokers.refuse(key, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    brokers.refuse(ApiKey.FIND_COORDINATOR, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(TopicRefused, match="DESCRIBE"):
        await topic_of(brokers).leaders()
    with pytest.raises(TopicRefused, match="cannot be created"):
        await topic_of(brokers).create()
    with pytest.raises(TopicRefused, match="WRITE and DESCRIBE on transactional ids __proxy-share-"):
        await topic_of(brokers).coordinators(["__proxy-share-0"])


async def test_topic_that_another_proxy_created_meanwhile_is_used(nursery: trio.Nursery) -> None:
    brokers = TargetBrokers(nursery, nodes=3)
    brokers.make(TOPIC, PARTITIONS)
    assert not await topic_of(brokers).create()
    brokers.refuse(ApiKey.CREATE_TOPICS, ErrorCode.NOT_CONTROLLER)
    with pytest.raises(UpstreamLost):
        await topic_of(brokers).create()
    for name in "ab":
        brokers.target.move_coordinator(CoordinatorKind.TRANSACTION, name, 3)
    assert await topic_of(brokers).coordinators(["a", "b"]) == {"a": 3, "b": 3}


LOW, NOT_KNOWN = "state-message-bytes-low", "state-message-bytes-not-known"


@pytest.mark.parametrize(
    ("configured", "limit", "reported"),
    [
        ("2000000", 2_000_000, []),
        ("65536", 65536, [LOW]),
        (None, MESSAGE_BYTES, [NOT_KNOWN]),
        ("", MESSAGE_BYTES, [NOT_KNOWN]),
    ],
)
async def test_batches_are_limited_by_max_message_bytes_of_the_topic(
    nursery: trio.Nursery, configured: str | None, limit: int, reported: list[str]
) -> None:
    """The topic's limit; without the right to read its settings, the limit that the proxy would have set."""
    brokers, notes = TargetBrokers(nursery), list[str]()
    brokers.make(TOPIC, PARTITIONS, {"max.message.bytes": configured} if configured else {})
    if configured == "":
        brokers.handlers[ApiKey.DESCRIBE_CONFIGS] = partial(_without_values, brokers.handlers[ApiKey.DESCRIBE_CONFIGS])
    if configured is None:
        brokers.refuse(ApiKey.DESCRIBE_CONFIGS, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = topic_of(brokers)
    view = await topic.leaders()
    assert view is not None
    assert topic.message_bytes(await topic.settings(view), lambda event, **_: notes.append(event)) == limit
    assert notes == reported


async def _without_values(describe: Any, call: TargetCall[Any]) -> Any:
    response = await describe(call)
    for config in response.results[0].configs:
        config.value = ""
    return response


async def test_created_topic_accepts_the_largest_record_of_the_proxy(nursery: trio.Nursery) -> None:
    """Also where the brokers allow less by default."""
    brokers = TargetBrokers(nursery)
    await topic_of(brokers).create()
    configs = brokers.topic(TOPIC).configs.stored
    largest = SNAPSHOT_BYTES_MAX + RECORD_OVERHEAD + 32767
    assert int(configs["max.message.bytes"]) >= max(largest, BATCH_BYTES_MAX)
