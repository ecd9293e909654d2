"""Settings of a state's topic that change while it is in use: what is reported, and what happens to requests."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from kafka_share_proxy.brokers.topic_settings import TopicSettings
from kafka_share_proxy.durable.hosted_state import HostedState
from kafka_share_proxy.durable.topic_guard import CHECK_S, RISK_REMIND_S, TopicGuard
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from trio.testing import MockClock

from tests.support.small_state import TEST_STATE, HeldTexts, partition_of, text_gate
from tests.support.state_cluster import Loop, StateCluster, host_in
from tests.support.target_brokers import COMPACTED

UNSAFE = {"cleanup.policy": "delete", "retention.ms": "1000"}


class World:
    """One state to be served here, with a cluster."""

    def __init__(self, nursery: trio.Nursery, cluster: StateCluster | None = None) -> None:
        self.nursery = nursery
        self.cluster = cluster or StateCluster(nursery)
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.held = HeldTexts()
        loop: Any = Loop(nursery)
        host = host_in(self.cluster, loop, self._note)
        self.hosted = HostedState(TEST_STATE, self.held, text_gate(), host)
        self.journal: Any = self.hosted.journal
        nursery.start_soon(self.hosted.run)

    def _note(self, event: str, /, **context: Any) -> None:
        self.notes.append((event, context))

    def events(self, event: str) -> list[dict[str, Any]]:
        return [context for noted, context in self.notes if noted == event]

    def begin(self) -> None:
        self.hosted.begin(TEST_STATE.all, self.nursery)

    async def until_open(self) -> None:
        with trio.fail_after(120):
            while not self.hosted.gate.is_open:  # noqa: ASYNC110 - of another task's doing
                await trio.sleep(0.1)

    async def store(self, key: str, value: str) -> None:
        done = trio.Event()
        promise = self.journal.append([(key, value.encode())])
        promise.on_settled(done.set)
        await done.wait()
        promise.result()
        self.held.values[key] = value


@pytest.fixture
def world(nursery: trio.Nursery) -> World:
    return World(nursery)


async def test_topic_that_is_not_compacted_is_not_taken_over(world: World, autojump_clock: MockClock) -> None:
    """The log says how to correct it; once that is done the state is served without a restart."""
    world.cluster.make(TEST_STATE.topic, TEST_STATE.partitions)
    world.cluster.configure(TEST_STATE.topic, UNSAFE)
    world.begin()
    await trio.sleep(30)
    assert not world.hosted.gate.is_open
    assert world.hosted.gate.refusal == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "--add-config cleanup.policy=compact" in world.hosted.trouble
    assert "--add-config cleanup.policy=compact" in world.events("texts-off")[0]["reason"]
    assert not any(each.log.batches for each in world.cluster.topic(TEST_STATE.topic).partitions), (
        "nothing was appended"
    )
    world.cluster.configure(TEST_STATE.topic, COMPACTED)
    await world.until_open()
    assert world.hosted.trouble == ""


async def test_policy_that_changes_holds_requests_back_until_it_is_corrected(
    world: World, autojump_clock: MockClock
) -> None:
    """Served state is still in memory, and every record is in the log."""
    world.begin()
    await world.until_open()
    await world.store("a", "1")
    world.cluster.configure(TEST_STATE.topic, UNSAFE)
    await trio.sleep(CHECK_S + 1)
    assert world.hosted.gate.refusal == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "cleanup.policy=delete" in world.hosted.trouble
    await trio.sleep(10 * CHECK_S)
    assert 1 <= len(world.events("state-topic-unsafe")) <= 3, "once, and reminders"
    world.cluster.configure(TEST_STATE.topic, COMPACTED)
    await world.until_open()
    assert (world.held.values, world.hosted.trouble) == ({"a": "1"}, "")
    assert len(world.events("state-topic-safe")) == 1
    assert world.held.forgotten == [], "nothing was loaded anew"
    await world.store("b", "2")


async def test_a_proxy_that_serves_no_partition_keeps_its_own_reason(world: World, autojump_clock: MockClock) -> None:
    """A standby sees the settings of the topic, too: they neither replace its refusal nor open its gate."""
    world.begin()
    await world.until_open()
    world.hosted.served.clear()
    world.hosted.close(ErrorCode.NOT_COORDINATOR, "standby")
    refusal = world.hosted.gate.refusal
    assert refusal
    world.cluster.configure(TEST_STATE.topic, UNSAFE)
    await trio.sleep(CHECK_S + 1)
    assert world.events("state-topic-unsafe")
    assert (world.hosted.gate.refusal, world.hosted.trouble) == (refusal, "standby")
    world.cluster.configure(TEST_STATE.topic, COMPACTED)
    await trio.sleep(2 * CHECK_S)
    assert world.events("state-topic-safe")
    assert not world.hosted.gate.is_open
    assert (world.hosted.gate.refusal, world.hosted.trouble) == (refusal, "standby")


@pytest.mark.parametrize("remaining_count", [0, 1])
async def test_records_that_brokers_deleted_meanwhile_are_written_again_from_memory(
    world: World, autojump_clock: MockClock, remaining_count: int
) -> None:
    """With new takeovers: the old ones may be among what is gone. The next owner loads everything."""
    world.begin()
    await world.until_open()
    for number in range(200):
        await world.store(f"k{number}", "1")
    world.cluster.configure(TEST_STATE.topic, UNSAFE)
    await trio.sleep(CHECK_S + 1)
    for hosted in world.cluster.topic(TEST_STATE.topic).partitions:
        world.cluster.target.delete_records(TEST_STATE.topic, hosted.index, hosted.log.end - remaining_count)
    await trio.sleep(CHECK_S)
    assert not world.hosted.gate.is_open
    world.cluster.configure(TEST_STATE.topic, COMPACTED)
    await world.until_open()
    (context,) = world.events("test-state-restored")
    assert "deleted records of 8 partitions" in context["reason"]
    await world.store("later", "2")
    expected = {f"k{number}": "1" for number in range(200)} | {"later": "2"}
    assert world.held.values == expected
    assert world.held.forgotten == []

    next_owner = World(world.nursery, world.cluster)
    next_owner.begin()
    await next_owner.until_open()
    assert next_owner.held.values == expected


async def test_partition_that_cannot_be_read_is_not_restored_from_memory(
    world: World, autojump_clock: MockClock
) -> None:
    """Nothing of it is in memory: it stays refused, and is read again."""
    world.begin()
    await world.until_open()
    for number in range(200):
        await world.store(f"k{number}", "1" if number else "unreadable")
    await world.hosted.give_up(TEST_STATE.all, "it stops")
    later = World(world.nursery, world.cluster)
    unreadable = partition_of("k0")
    later.begin()
    await trio.sleep(30)
    assert set(later.hosted.gate.refused) == {unreadable}
    later.cluster.configure(TEST_STATE.topic, UNSAFE)
    await trio.sleep(CHECK_S + 1)
    for hosted in later.cluster.topic(TEST_STATE.topic).partitions:
        if hosted.index != unreadable:
            later.cluster.target.delete_records(TEST_STATE.topic, hosted.index, hosted.log.end)
    await trio.sleep(CHECK_S)
    later.cluster.configure(TEST_STATE.topic, COMPACTED)
    await trio.sleep(60)
    assert len(later.events("test-state-restored")) == 1
    assert set(later.hosted.gate.refused) == {unreadable}


async def test_takeover_that_ends_while_the_topic_is_unsafe_does_not_open_the_gate(
    world: World, autojump_clock: MockClock
) -> None:
    world.begin()
    await world.until_open()
    world.hosted.guard.unsafe = "not now"
    await world.hosted.give_up([3], "moved")
    world.cluster.configure(TEST_STATE.topic, UNSAFE)
    await trio.sleep(CHECK_S + 1)
    world.hosted.begin([3], world.nursery)
    await trio.sleep(CHECK_S)
    assert 3 not in world.hosted.served
    world.cluster.configure(TEST_STATE.topic, COMPACTED)
    await world.until_open()
    assert world.hosted.served == set(TEST_STATE.all)


async def test_settings_that_cannot_be_read_any_longer_leave_the_verdict_as_it_was(
    world: World, autojump_clock: MockClock
) -> None:
    world.begin()
    await world.until_open()
    world.cluster.configure(TEST_STATE.topic, UNSAFE)
    await trio.sleep(CHECK_S + 1)
    world.cluster.refuse(ApiKey.DESCRIBE_CONFIGS, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    await trio.sleep(2 * CHECK_S)
    assert not world.hosted.gate.is_open
    assert "settings-unknown" in world.hosted.guard.risks


async def test_state_is_served_where_the_settings_may_not_be_read(world: World, autojump_clock: MockClock) -> None:
    """The log and the probes say that the settings are unknown."""
    world.cluster.refuse(ApiKey.DESCRIBE_CONFIGS, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    world.begin()
    await world.until_open()
    (context,) = world.events("state-topic-at-risk")
    assert (context["topic"], context["risk"]) == (TEST_STATE.topic, "settings-unknown")
    assert "DESCRIBE_CONFIGS" in context["reason"]


async def test_partitions_that_are_added_are_reported_and_service_continues(
    world: World, autojump_clock: MockClock
) -> None:
    """Also where a leader moves afterwards."""
    world.begin()
    await world.until_open()
    world.cluster.target.add_partitions(world.cluster.topic(TEST_STATE.topic), [[1, 2]] * 4)
    await trio.sleep(CHECK_S + 1)
    assert list(world.hosted.guard.risks) == ["partitions"]
    assert world.hosted.gate.is_open
    world.cluster.move_leaders(2)
    await trio.sleep(CHECK_S + 1)
    assert set(world.journal.leaders.values()) == {2}
    await world.store("a", "1")


def test_lasting_risk_is_logged_once_an_hour_and_its_end_once() -> None:
    now, notes = [0.0], list[str]()
    guard = TopicGuard("__state", lambda event, **_: notes.append(event), clock=lambda: now[0])
    risky = TopicSettings(topic="__state", server="b", values={"min.insync.replicas": "1"}, replicas=3)
    while now[0] < 2.5 * RISK_REMIND_S:
        assert guard.is_due
        guard.judge(risky)
        assert not guard.is_due
        now[0] += CHECK_S
    assert notes == ["state-topic-at-risk"] * 3
    guard.judge(TopicSettings(topic="__state", server="b", values={"min.insync.replicas": "2"}, replicas=3))
    assert notes[3:] == ["state-topic-risk-ended"]
