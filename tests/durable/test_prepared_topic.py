"""Lookup of a state's topic before a takeover, and facts that require another one."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from kafka_share_proxy.brokers.topic_settings import TopicSettings
from kafka_share_proxy.durable import state_producer
from kafka_share_proxy.durable.hosted_state import HostedState
from kafka_share_proxy.durable.prepared_topic import PREPARING_S, PreparedTopic
from kafka_share_proxy.durable.state_producer import BATCH_BYTES_MAX
from kafka_share_proxy.durable.topic_guard import CHECK_S
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from trio.testing import MockClock

from tests.support.small_state import TEST_STATE, HeldTexts, text_gate
from tests.support.state_cluster import Loop, StateCluster, host_in
from tests.support.target_brokers import COMPACTED


class World:
    """A state whose topic exists, or is created, and its knowledge of it."""

    def __init__(self, nursery: trio.Nursery, *, exists: bool = True) -> None:
        self.cluster = StateCluster(nursery)
        if exists:
            self.cluster.make(TEST_STATE.topic, 8, COMPACTED)
        loop: Any = Loop(nursery)
        notes: Any = lambda _event, **_context: None  # noqa: E731
        self.held = HeldTexts()
        self.state = HostedState(TEST_STATE, self.held, text_gate(), host_in(self.cluster, loop, notes))
        self.topic: PreparedTopic = self.state._topic
        self.troubles: list[str] = []

    def on_trouble(self, error: ProxyError) -> None:
        self.troubles.append(str(error))


@pytest.fixture
def world(nursery: trio.Nursery) -> World:
    return World(nursery)


async def test_prepared_topic_is_not_looked_up_by_the_takeover(world: World, autojump_clock: MockClock) -> None:
    assert not world.topic.is_known
    await world.topic.prepare()
    assert world.topic.is_known
    looked_up = len(world.cluster.requested)
    await world.topic.require(world.on_trouble)
    assert len(world.cluster.requested) == looked_up


async def test_topic_that_is_created_first_is_not_looked_up_by_the_takeover(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World(nursery, exists=False)
    await world.topic.prepare()
    assert world.topic.is_known
    looked_up = len(world.cluster.requested)
    await world.topic.require(world.on_trouble)
    assert len(world.cluster.requested) == looked_up
    assert world.cluster.requested.count(ApiKey.CREATE_TOPICS) == 1


async def test_coordinators_are_looked_up_until_brokers_have_some(
    world: World, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The first lookup makes brokers create __transaction_state."""
    fault = world.cluster.refuse(ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    nursery.start_soon(world.state.run)
    nursery.start_soon(world.topic.prepare)
    await trio.sleep(0.5)
    assert not world.state.journal.coordinators
    world.cluster.faults.remove(fault)
    await trio.sleep(1)
    assert len(world.state.journal.coordinators) == 8
    nursery.cancel_scope.cancel()


async def test_coordinators_that_never_appear_are_left_to_the_takeover(
    world: World, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    world.cluster.refuse(ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    nursery.start_soon(world.state.run)
    await world.topic.prepare()
    assert world.topic.is_known
    await trio.sleep(1)
    assert world.cluster.requested.count(ApiKey.FIND_COORDINATOR) == len(PREPARING_S)
    nursery.cancel_scope.cancel()


async def test_failed_takeover_and_old_metadata_require_another(world: World, autojump_clock: MockClock) -> None:
    await world.topic.prepare()
    world.topic.forget()
    assert not world.topic.is_known
    await world.topic.require(world.on_trouble)
    await trio.sleep(2 * CHECK_S)
    assert not world.topic.is_known, "nothing follows the topic here"


async def test_unsafe_topic_is_waited_for(world: World, autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    world.cluster.configure(TEST_STATE.topic, {"cleanup.policy": "delete"})
    await world.topic.prepare()
    assert not world.topic.is_known
    nursery.start_soon(world.topic.require, world.on_trouble)
    await trio.sleep(3)
    assert world.troubles
    assert "cleanup.policy=delete" in world.troubles[0]
    world.cluster.configure(TEST_STATE.topic, COMPACTED)
    await trio.sleep(6)
    assert world.topic.is_known


async def test_topic_is_followed_before_this_proxy_owns_a_partition(
    world: World, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A standby does so, and its takeover must not wait for a lookup."""
    nursery.start_soon(world.state.run)
    await world.topic.prepare()
    await trio.sleep(5 * CHECK_S)
    assert world.topic.is_known
    world.cluster.configure(TEST_STATE.topic, {"cleanup.policy": "delete"})
    await trio.sleep(2 * CHECK_S)
    assert not world.topic.is_known
    nursery.cancel_scope.cancel()


async def test_sizes_follow_the_settings_and_connections_are_opened_before_a_takeover(
    world: World, autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[int, str]] = []
    channels = world.state.journal._channels
    monkeypatch.setattr(channels, "get", lambda *key: opened.append(key))
    nursery.start_soon(world.state.run)
    await world.topic.prepare()
    assert world.held.message_bytes > 20_000
    world.cluster.configure(TEST_STATE.topic, COMPACTED | {"max.message.bytes": "20000"})
    await trio.sleep(2 * CHECK_S)
    assert world.held.message_bytes == 20_000
    assert {purpose for _, purpose in opened} == set(world.state.journal._purposes.values())
    assert len(opened) == len(set(opened)), "once"
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("configured", "batch_bytes"), [(1 << 20, BATCH_BYTES_MAX), (20_000, 20_000)])
async def test_sizes_are_those_of_the_topic(world: World, configured: int, batch_bytes: int) -> None:
    """Sizes of batches, also of later writers, and of the feature's values."""

    class Topic:
        def message_bytes(self, _settings: Any, _notes: Any) -> int:
            return configured

    topic: Any = Topic()
    journal = world.state.journal
    journal.take_over([0])
    world.topic._learn_sizes(topic, TopicSettings(topic=TEST_STATE.topic, server="b1:9092", values={}))
    journal.take_over([1])
    assert [journal._producers[partition].batch_bytes_max for partition in (0, 1)] == [batch_bytes] * 2
    assert world.held.message_bytes == configured
    assert batch_bytes <= state_producer.BATCH_BYTES_MAX
