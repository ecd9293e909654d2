"""The topic `__proxy_views`: made as it must be, written and read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.internal_topics import TopicRefused
from kafka_share_proxy.brokers.replaced import SILENT_S, Replaced
from kafka_share_proxy.views.state_records import TOPIC
from kafka_share_proxy.views.state_topic import ViewTopic
from kafka_share_proxy.wire.errors import UpstreamLost
from kafka_share_proxy.wire.values import Address

from tests.support.small_broker import Net
from tests.support.view_log import LEADER, ViewsBroker, client

OTHER = Address("b2", 9092)


def there() -> ViewsBroker:
    made = ViewsBroker()
    made.topics = {TOPIC: 1}
    return made


async def test_it_is_made_compacted_and_led(nursery: trio.Nursery) -> None:
    """Replicated as `__consumer_offsets` would be, with one replica less in sync."""
    broker = ViewsBroker()
    topic = ViewTopic(client(nursery, broker))
    assert await topic.leader() is None
    await topic.create()
    assert await topic.leader() == LEADER
    configs = {config.name: config.value for config in broker.created.configs}
    assert (broker.created.name, broker.created.num_partitions, broker.created.replication_factor) == (TOPIC, 1, 1)
    assert (configs["cleanup.policy"], configs["min.insync.replicas"]) == ("compact", "1")


async def test_what_is_appended_is_read(nursery: trio.Nursery) -> None:
    """Records keep their order, each once, deletions included."""
    topic = ViewTopic(client(nursery, there()))
    await topic.append(LEADER, [(b"a", b"1"), (b"b", b"2")])
    await topic.append(LEADER, [(b"a", None)])
    assert await topic.end(LEADER) == 3
    assert await topic.all() == [(b"a", b"1"), (b"b", b"2"), (b"a", None)]


async def test_reading_goes_on_where_it_was_and_waits(nursery: trio.Nursery, autojump_clock: object) -> None:
    """A batch that begins before the position gives only what is new; nothing new is an empty response in time."""
    broker = there()
    topic = ViewTopic(client(nursery, broker))
    broker.log = [(b"a", b"1"), (b"b", b"2")]
    async with topic.reading(LEADER, 1) as reading:
        assert await reading.next(1000) == [(b"b", b"2")]
        assert reading.position == 2
        assert await reading.next(1000) == []


async def test_records_that_are_gone_are_left_out(nursery: trio.Nursery) -> None:
    """After records were deleted, the remaining ones count."""
    broker = there()
    broker.log, broker.first = [(b"c", b"3")], 7
    topic = ViewTopic(client(nursery, broker))
    assert await topic.all() == [(b"c", b"3")]
    async with topic.reading(LEADER) as reading:
        reading.position = 2
        assert await reading.next(0) == []
        assert await reading.next(0) == [(b"c", b"3")]


async def test_a_missing_topic_has_nothing_in_it(nursery: trio.Nursery) -> None:
    """It is made with the first fact."""
    assert await ViewTopic(client(nursery, ViewsBroker())).all() == []


async def test_leader_lost_without_a_word_is_given_up_once_there_is_another(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    """Reading, asking and writing alike; until then, and for a slow one, it is waited for."""
    lost, other = there(), there()
    net = Net(nursery, {LEADER: lost, OTHER: other})
    topic = ViewTopic(ClusterClient([OTHER, LEADER], ClusterClientSettings(connect=net)))
    other.named = {1: LEADER, 2: OTHER}
    other.node_id = 1
    async with topic.reading(LEADER) as reading:
        lost.silent = True
        for send_request in (
            lambda: topic.append(LEADER, [(b"k", b"v")]),
            lambda: topic.end(LEADER),
            lambda: reading.next(0),
        ):
            other.node_id, outcome = 1, list[str]()
            nursery.start_soon(_until_replaced, send_request, outcome)
            await trio.sleep(9.5)
            assert outcome == []
            other.node_id = 2
            await trio.sleep(2 * SILENT_S)
            assert outcome == ["replaced"]


async def _until_replaced(send_request: Callable[[], Awaitable[object]], outcome: list[str]) -> None:
    with pytest.raises(Replaced):
        await send_request()
    outcome.append("replaced")


async def test_what_the_proxy_may_not_do_is_said(nursery: trio.Nursery) -> None:
    """With the right that is missing."""
    broker = there()
    topic = ViewTopic(client(nursery, broker))
    for key, right in ((0, "WRITE"), (1, "READ"), (2, "DESCRIBE")):
        broker.codes = {key: 29}
        with pytest.raises(TopicRefused, match=right):
            await (topic.append(LEADER, [(b"k", b"v")]) if key == 0 else _read(topic))
    broker.codes = {3: 29}
    with pytest.raises(TopicRefused, match="DESCRIBE"):
        await topic.leader()
    broker.codes = {19: 29}
    with pytest.raises(TopicRefused, match="created"):
        await topic.create()


async def _read(topic: ViewTopic) -> None:
    async with topic.reading(LEADER) as reading:
        await reading.next(0)


async def test_another_number_of_partitions_is_refused(nursery: trio.Nursery) -> None:
    """Facts would be in two logs."""
    broker = ViewsBroker()
    broker.topics = {TOPIC: 2}
    with pytest.raises(TopicRefused, match="2 partitions"):
        await ViewTopic(client(nursery, broker)).leader()


async def test_trouble_that_passes_is_told_from_refusal(nursery: trio.Nursery) -> None:
    """NOT_LEADER: the leader is looked for again."""
    broker = there()
    broker.codes = {0: 6}
    with pytest.raises(UpstreamLost, match="NOT_LEADER"):
        await ViewTopic(client(nursery, broker)).append(LEADER, [(b"k", b"v")])
