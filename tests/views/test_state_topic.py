"""The topic `__proxy_views`: made as it must be, written and read."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from kafka_share_proxy.brokers.internal_topics import TopicRefused
from kafka_share_proxy.brokers.replaced import SILENT_S, Replaced
from kafka_share_proxy.views.state_records import TOPIC
from kafka_share_proxy.views.state_topic import ViewTopic
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from kafka_share_proxy.wire.records.records import Record
from kafka_share_proxy.wire.values import Address

from tests.support.target_brokers import NODE, OTHER_NODE, TargetBrokers

LEADER = Address("b1", 9092)


def without_topic(nursery: trio.Nursery, nodes: int = 1) -> TargetBrokers:
    return TargetBrokers(nursery, nodes=nodes, wall_ms=time.time_ns() // 1_000_000)


def there(nursery: trio.Nursery, nodes: int = 1) -> TargetBrokers:
    brokers = without_topic(nursery, nodes)
    brokers.make(TOPIC)
    return brokers


async def test_the_topic_is_created_compacted(nursery: trio.Nursery) -> None:
    """Replicated as `__consumer_offsets` would be, with one replica less in sync."""
    brokers = without_topic(nursery)
    topic = ViewTopic(brokers.client())
    assert await topic.leader() is None
    await topic.create()
    assert await topic.leader() == LEADER
    created = brokers.topic(TOPIC)
    assert [partition.replicas for partition in created.partitions] == [[NODE]]
    configs = created.configs.stored
    assert (configs["cleanup.policy"], configs["min.insync.replicas"]) == ("compact", "1")


async def test_appended_records_are_read(nursery: trio.Nursery) -> None:
    """Records keep their order, each once, deletions included."""
    topic = ViewTopic(there(nursery).client())
    await topic.append(LEADER, [(b"a", b"1"), (b"b", b"2")])
    await topic.append(LEADER, [(b"a", None)])
    assert await topic.end(LEADER) == 3
    assert await topic.read_all() == [(b"a", b"1"), (b"b", b"2"), (b"a", None)]


async def test_reading_continues_at_its_position_and_waits(nursery: trio.Nursery, autojump_clock: object) -> None:
    """A batch that begins before the position gives only what is new; nothing new is an empty response in time."""
    brokers = there(nursery)
    topic = ViewTopic(brokers.client())
    brokers.write(TOPIC, 0, [Record(b"a", b"1"), Record(b"b", b"2")])
    async with topic.reading(LEADER, 1) as reading:
        assert await reading.next(1000) == [(b"b", b"2")]
        assert reading.position == 2
        assert await reading.next(1000) == []


async def test_records_that_are_deleted_are_left_out(nursery: trio.Nursery) -> None:
    """After records were deleted, the remaining ones count."""
    brokers = there(nursery)
    brokers.write(TOPIC, 0, [Record(b"deleted", b"0")] * 7)
    brokers.write(TOPIC, 0, [Record(b"c", b"3")])
    brokers.target.delete_records(TOPIC, 0, 7)
    topic = ViewTopic(brokers.client())
    assert await topic.read_all() == [(b"c", b"3")]
    async with topic.reading(LEADER) as reading:
        reading.position = 2
        assert await reading.next(0) == []
        assert await reading.next(0) == [(b"c", b"3")]


async def test_a_missing_topic_has_no_records(nursery: trio.Nursery) -> None:
    """It is made with the first fact."""
    assert await ViewTopic(without_topic(nursery).client()).read_all() == []


async def test_leader_lost_without_a_word_is_given_up_once_there_is_another(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    """Reading, asking and writing alike; until then, and for a slow one, it is waited for."""
    brokers = there(nursery, nodes=2)
    topic = ViewTopic(brokers.client())
    async with topic.reading(LEADER) as reading:
        brokers.lost.add(NODE)
        for send_request in (
            lambda: topic.append(LEADER, [(b"k", b"v")]),
            lambda: topic.end(LEADER),
            lambda: reading.next(0),
        ):
            brokers.move_leaders(NODE)
            outcome = list[str]()
            nursery.start_soon(_until_replaced, send_request, outcome)
            await trio.sleep(9.5)
            assert outcome == []
            brokers.move_leaders(OTHER_NODE)
            await trio.sleep(2 * SILENT_S)
            assert outcome == ["replaced"]


async def _until_replaced(send_request: Callable[[], Awaitable[object]], outcome: list[str]) -> None:
    with pytest.raises(Replaced):
        await send_request()
    outcome.append("replaced")


async def test_missing_rights_are_reported(nursery: trio.Nursery) -> None:
    """With the right that is missing."""
    brokers, denied = there(nursery), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = ViewTopic(brokers.client())
    for key, right in ((ApiKey.PRODUCE, "WRITE"), (ApiKey.FETCH, "READ"), (ApiKey.LIST_OFFSETS, "DESCRIBE")):
        brokers.faults.clear()
        brokers.refuse(key, denied)
        with pytest.raises(TopicRefused, match=right):
            await (topic.append(LEADER, [(b"k", b"v")]) if key == 0 else _read(topic))
    brokers.refuse(ApiKey.METADATA, denied)
    with pytest.raises(TopicRefused, match="DESCRIBE"):
        await topic.leader()
    brokers.faults.clear()
    brokers.refuse(ApiKey.CREATE_TOPICS, denied)
    with pytest.raises(TopicRefused, match="created"):
        await topic.create()


async def _read(topic: ViewTopic) -> None:
    async with topic.reading(LEADER) as reading:
        await reading.next(0)


async def test_another_number_of_partitions_is_refused(nursery: trio.Nursery) -> None:
    """Records would be in two logs."""
    brokers = without_topic(nursery)
    brokers.make(TOPIC, 2)
    with pytest.raises(TopicRefused, match="2 partitions"):
        await ViewTopic(brokers.client()).leader()


async def test_temporary_trouble_is_distinguished_from_refusal(nursery: trio.Nursery) -> None:
    """NOT_LEADER: the leader is looked for again."""
    brokers = there(nursery)
    brokers.refuse(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(UpstreamLost, match="NOT_LEADER"):
        await ViewTopic(brokers.client()).append(LEADER, [(b"k", b"v")])
