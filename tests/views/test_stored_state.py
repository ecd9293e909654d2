"""The stored bindings of views are followed, written, and replaced by memory if necessary."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio
from kafka_share_proxy.durable.topic_guard import CHECK_S as GUARD_LOOK_S
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.views import state_records
from kafka_share_proxy.views.model.catalog import Binding, ViewCatalog
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.views.state_records import TOPIC
from kafka_share_proxy.views.stored_state import WRITES_MAX, ViewState
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.records.records import Record

from tests.support.target_brokers import TargetBrokers

BINDING = Binding(b"v" * 16, b"b" * 16)
RECORD = (state_records.binding_key("v"), state_records.binding_value(BINDING))
LOOK_S = 10.0


class World:
    def __init__(self, brokers: TargetBrokers) -> None:
        self.brokers = brokers
        self.catalog = ViewCatalog()
        self.notes: list[str] = []
        self.state = ViewState(self.catalog, brokers.client, LOOK_S, self._note)
        brokers.nursery.start_soon(self.state.run)

    def _note(self, event: str, /, **context: Any) -> None:
        self.notes.append(event)

    def write(self, *key_values: tuple[bytes | None, bytes | None]) -> None:
        for key, value in key_values:
            self.brokers.write(TOPIC, 0, [Record(key, value)])


def without_topic(nursery: trio.Nursery, users: dict[str, str] | None = None) -> World:
    return World(TargetBrokers(nursery, users, nodes=1, wall_ms=time.time_ns() // 1_000_000))


def there(nursery: trio.Nursery, *key_values: tuple[bytes | None, bytes | None]) -> World:
    world = without_topic(nursery)
    world.brokers.make(TOPIC)
    world.write(*key_values)
    return world


async def settled(promise: Promise[None]) -> None:
    done = trio.Event()
    promise.on_settled(done.set)
    with trio.fail_after(100):
        await done.wait()
    promise.result()


async def test_stored_records_are_in_the_catalog_once_synced(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """Bindings and plans of other proxies."""
    world = there(nursery, RECORD, (state_records.plan_key("hot"), state_records.plan_value(Plan("hot", (0, 9)))))
    await settled(world.state.synced())
    assert world.catalog.binding("v") == BINDING
    assert world.catalog.plan("hot") is not None
    assert not world.state.off


async def test_without_a_topic_there_is_nothing_to_wait_for(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """It is made with the first fact, which everybody then reads."""
    world = without_topic(nursery)
    await settled(world.state.synced())
    assert not world.brokers.target.topics.by_name
    await settled(world.state.store(*RECORD))
    assert world.brokers.key_values(TOPIC) == [RECORD]
    assert "view-topic-created" in world.notes
    assert world.catalog.binding("v") == BINDING


async def test_records_of_other_proxies_are_read_without_a_request(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """The topic is followed; a long wait is one request in five seconds."""
    world = there(nursery)
    await trio.sleep(60)
    assert world.brokers.requested.count(ApiKey.FETCH) <= 60 / 5 + 2
    world.write(RECORD)
    await trio.sleep(1)
    assert world.catalog.binding("v") == BINDING
    world.write((RECORD[0], None))
    await trio.sleep(1)
    assert world.catalog.binding("v") is None


async def test_a_topic_that_another_proxy_made_is_found(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """It is found at the next request, or after a while."""
    world = without_topic(nursery)
    await trio.sleep(1)
    world.brokers.make(TOPIC)
    world.write(RECORD)
    await settled(world.state.synced())
    assert world.catalog.binding("v") == BINDING


async def test_the_store_is_off_without_rights_of_the_identity(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """No request waits for it, records are refused but known; it is tried again at intervals."""
    world = there(nursery)
    world.brokers.refuse(ApiKey.METADATA, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    await settled(world.state.synced())
    assert "DESCRIBE" in world.state.off
    assert world.state.synced().done
    with pytest.raises(ProxyError, match="DESCRIBE"):
        await settled(world.state.store(*RECORD))
    assert world.catalog.binding("v") == BINDING
    world.brokers.faults.clear()
    await trio.sleep(LOOK_S)
    await settled(world.state.synced())
    assert world.state.off == ""
    assert world.notes.count("view-state-off") == 1
    assert "view-state-on" in world.notes


async def test_the_store_is_off_without_an_identity_at_brokers_that_require_one(
    nursery: trio.Nursery, autojump_clock: Any
) -> None:
    """The broker ends the connection at the first request."""
    world = without_topic(nursery, {"proxy": "s3cret"})
    await settled(world.state.synced())
    assert "not stored" in world.state.off


async def test_a_leader_that_changes_is_looked_up(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """A fact is written again until it is."""
    world = there(nursery)
    world.brokers.refuse(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    promise = world.state.store(*RECORD)
    await trio.sleep(2)
    assert not promise.done
    world.brokers.faults.clear()
    await settled(promise)
    assert world.brokers.key_values(TOPIC) == [RECORD]


async def test_callers_wait_while_brokers_are_unreachable(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """Records of other proxies are not guessed."""
    world = there(nursery)
    world.brokers.refuse(ApiKey.LIST_OFFSETS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    promise = world.state.synced()
    await trio.sleep(3)
    assert not promise.done
    world.brokers.faults.clear()
    await settled(promise)


async def test_an_outage_is_one_thing_in_the_log(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """Tried twice a second for five minutes, by two tasks: a line, a reminder each minute, and the end."""
    world = there(nursery)
    await settled(world.state.synced())
    for key in (ApiKey.FETCH, ApiKey.LIST_OFFSETS):
        world.brokers.refuse(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    waiting = world.state.synced()
    await trio.sleep(301)
    world.brokers.faults.clear()
    await settled(waiting)
    await trio.sleep(10)
    assert 5 <= world.notes.count("view-state-not-read") <= 7, world.notes
    assert world.notes.count("view-state-read") == 1
    assert world.notes[-1] == "view-state-read"


async def test_records_that_cannot_be_read_are_passed_over(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """A newer proxy may have written them."""
    world = there(nursery, (b"\0\x63new", b"x"), (None, b"x"), RECORD)
    await settled(world.state.synced())
    assert world.catalog.binding("v") == BINDING
    assert world.notes.count("view-state-ignored") == 2


async def test_records_that_wait_to_be_written_are_bounded(nursery: trio.Nursery) -> None:
    """One more is refused immediately."""
    state = ViewState(ViewCatalog(), TargetBrokers(nursery).client, LOOK_S, lambda *_, **__: None)
    for _ in range(WRITES_MAX):
        assert not state.store(*RECORD).done
    with pytest.raises(ProxyError, match=str(WRITES_MAX)):
        state.store(*RECORD).result()


async def test_settings_of_a_topic_that_is_created_later_are_watched(
    nursery: trio.Nursery, autojump_clock: Any
) -> None:
    """Another proxy creates it with its first fact."""
    world = without_topic(nursery)
    await trio.sleep(2.5 * LOOK_S)
    world.brokers.make(TOPIC)
    await trio.sleep(2 * LOOK_S)
    world.brokers.configure(TOPIC, {"cleanup.policy": "delete"})
    await trio.sleep(GUARD_LOOK_S + 1)
    assert "--add-config cleanup.policy=compact" in world.state.off


async def test_topic_that_is_not_compacted_takes_no_records_until_it_is(
    nursery: trio.Nursery, autojump_clock: Any
) -> None:
    """Also where the policy changes while it is in use."""
    world = there(nursery)
    await settled(world.state.store(*RECORD))
    world.brokers.configure(TOPIC, {"cleanup.policy": "delete"})
    await trio.sleep(GUARD_LOOK_S + 1)
    assert "--add-config cleanup.policy=compact" in world.state.off
    with pytest.raises(ProxyError, match=r"cleanup\.policy=delete"):
        await settled(world.state.store(*RECORD))
    assert world.brokers.key_values(TOPIC) == [RECORD]
    world.brokers.configure(TOPIC, {"cleanup.policy": "compact"})
    await trio.sleep(GUARD_LOOK_S + 1)
    assert world.state.off == ""
    await settled(world.state.store(*RECORD))
    assert world.notes.count("state-topic-unsafe") == world.notes.count("state-topic-safe") == 1
