"""Leaders are looked up when one is missing, and every waiter is notified."""

from __future__ import annotations

import trio
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.internal_topics import TopicLeaders
from kafka_share_proxy.durable.leader_watch import PATIENCE_S, LeaderWatch
from kafka_share_proxy.durable.state_topic import StateTopic

from tests.support.small_state import TEST_STATE
from tests.support.target_brokers import NODE, TargetBrokers


class Watched:
    """A watch that runs."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.cluster, self.notes = TargetBrokers(nursery), list[str]()
        self.reported, self.missing, self.trouble = list[TopicLeaders](), list[int](), list[str]()
        self.watch = LeaderWatch(
            TEST_STATE.topic,
            8,
            ClusterClientSettings(),
            lambda event, **_: self.notes.append(event),
            on_leaders=self.reported.append,
            on_missing=lambda: self.missing.append(1),
            on_trouble=lambda error: self.trouble.append(str(error)),
        )
        nursery.start_soon(self.watch.run, StateTopic(self.cluster.client(), TEST_STATE))


async def test_two_waiters_are_both_notified(nursery: trio.Nursery, autojump_clock: trio.testing.MockClock) -> None:
    """Also if the second waits while the first does."""
    watched = Watched(nursery)
    watched.cluster.make(TEST_STATE.topic, 8)
    with trio.fail_after(5):
        async with trio.open_nursery() as both:
            both.start_soon(watched.watch.refresh)
            both.start_soon(watched.watch.refresh)
    assert watched.watch.source.leaders == dict.fromkeys(range(8), NODE)
    assert watched.watch.source.by_leader([2, 3]) == {NODE: [2, 3]}
    assert watched.reported


async def test_topic_that_is_missing_is_distinguished_from_trouble(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    watched = Watched(nursery)
    await watched.watch.refresh()
    assert (watched.missing, watched.trouble, watched.reported) == ([1], [], [])
    watched.cluster.leave()
    for _ in range(3):
        await watched.watch.refresh()
        await trio.sleep(PATIENCE_S)
    assert [each.split(";")[0] for each in watched.trouble] == ["b1:9092: Connection refused"] * 3
    watched.cluster.come_back()
    await watched.watch.refresh()
    assert watched.notes == ["state-view-failed", "state-view-found"]
