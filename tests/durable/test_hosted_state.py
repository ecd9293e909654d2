"""One state by itself: its topic before partitions are assigned, and partition numbers that it does not have.

What happens to several states together is in test_state_home.
"""

from __future__ import annotations

from typing import Any

import trio
from kafka_share_proxy.brokers.cluster_client import AuthenticationNeeded
from kafka_share_proxy.brokers.cluster_connection import AuthenticationFailed
from kafka_share_proxy.durable.hosted_state import HostedState
from kafka_share_proxy.durable.ownership import lacks_identity
from kafka_share_proxy.wire.errors import UpstreamLost
from trio.testing import MockClock

from tests.support.small_state import TEST_STATE, HeldTexts, text_gate
from tests.support.state_cluster import Loop, StateCluster, host_in


def hosted_in(cluster: StateCluster, nursery: trio.Nursery) -> HostedState:
    notes: Any = lambda _event, **_context: None  # noqa: E731
    loop: Any = Loop(nursery)
    return HostedState(TEST_STATE, HeldTexts(), text_gate(), host_in(cluster, loop, notes))


async def test_topic_is_created_before_partitions_are_assigned(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The group of proxies takes some seconds to form; nothing is taken over meanwhile."""
    cluster = StateCluster(nursery)
    hosted = hosted_in(cluster, nursery)
    await hosted.prepare()
    topic = cluster.topic(TEST_STATE.topic)
    assert len(topic.partitions) == 8
    assert not cluster.target.transactions.producers
    await hosted.prepare()
    assert cluster.topic(TEST_STATE.topic) is topic, "and once"
    cluster.leave()
    await hosted.prepare()
    assert hosted.trouble == "test state is not loaded yet", "trouble is for whoever takes over to tell"


async def test_numbers_beyond_the_partitions_of_the_topic_are_ignored(nursery: trio.Nursery) -> None:
    hosted = hosted_in(StateCluster(nursery), nursery)
    assert hosted.partitions_of(range(50)) == set(range(8))
    hosted.begin([8, 49], nursery)
    assert hosted.owned == set()
    hosted.begin([7, 8], nursery)
    assert hosted.owned == {7}
    await hosted.give_up([7, 8], "moved")
    assert (hosted.owned, hosted.gate.reason) == (set(), "test state is not loaded yet")


def test_lack_of_an_identity_is_reported_separately() -> None:
    assert lacks_identity(AuthenticationNeeded("x"))
    assert lacks_identity(AuthenticationFailed("x"))
    assert not lacks_identity(UpstreamLost("x"))
    assert not lacks_identity(None)
