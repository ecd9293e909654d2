"""The stored bindings of views are followed, written, and replaced by memory if necessary."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from kafka_share_proxy.durable.topic_guard import CHECK_S as GUARD_LOOK_S
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.views import state_records
from kafka_share_proxy.views.model.catalog import Binding, ViewCatalog
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.views.state_records import TOPIC
from kafka_share_proxy.views.stored_state import FACTS_MAX, ViewState
from kafka_share_proxy.wire.errors import ProxyError

from tests.support.view_log import ViewsBroker, client

BINDING = Binding(b"v" * 16, b"b" * 16)
FACT = (state_records.binding_key("v"), state_records.binding_value(BINDING))
LOOK_S = 10.0


class World:
    def __init__(self, nursery: trio.Nursery, broker: ViewsBroker) -> None:
        self.broker = broker
        self.catalog = ViewCatalog()
        self.notes: list[str] = []
        self.state = ViewState(self.catalog, lambda: client(nursery, broker), LOOK_S, self._note)
        nursery.start_soon(self.state.run)

    def _note(self, event: str, /, **context: Any) -> None:
        self.notes.append(event)


def there() -> ViewsBroker:
    made = ViewsBroker()
    made.topics = {TOPIC: 1}
    return made


async def settled(promise: Promise[None]) -> None:
    done = trio.Event()
    promise.on_settled(done.set)
    with trio.fail_after(100):
        await done.wait()
    promise.result()


async def test_what_was_stored_is_known_when_the_store_is_in_step(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """Bindings and plans of other proxies."""
    broker = there()
    broker.log = [FACT, (state_records.plan_key("hot"), state_records.plan_value(Plan("hot", (0, 9))))]
    world = World(nursery, broker)
    await settled(world.state.synced())
    assert world.catalog.binding("v") == BINDING
    assert world.catalog.plan("hot") is not None
    assert not world.state.off


async def test_without_a_topic_there_is_nothing_to_wait_for(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """It is made with the first fact, which everybody then reads."""
    world = World(nursery, ViewsBroker())
    await settled(world.state.synced())
    assert world.broker.created is None
    await settled(world.state.store(*FACT))
    assert world.broker.log == [FACT]
    assert "view-topic-created" in world.notes
    assert world.catalog.binding("v") == BINDING


async def test_facts_of_others_come_by_themselves(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """The topic is followed; a long wait is one request in five seconds."""
    world = World(nursery, there())
    await trio.sleep(60)
    assert world.broker.fetches <= 60 / 5 + 2
    world.broker.log.append(FACT)
    await trio.sleep(1)
    assert world.catalog.binding("v") == BINDING
    world.broker.log.append((FACT[0], None))
    await trio.sleep(1)
    assert world.catalog.binding("v") is None


async def test_a_topic_that_another_proxy_made_is_found(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """It is found at the next request, or after a while."""
    world = World(nursery, ViewsBroker())
    await trio.sleep(1)
    world.broker.topics = {TOPIC: 1}
    world.broker.log.append(FACT)
    await settled(world.state.synced())
    assert world.catalog.binding("v") == BINDING


async def test_where_the_identity_does_not_suffice_the_store_is_off(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """No request waits for it, facts are refused but known; it is tried again at intervals."""
    broker = there()
    broker.codes = {3: 29}
    world = World(nursery, broker)
    await settled(world.state.synced())
    assert "DESCRIBE" in world.state.off
    assert world.state.synced().done
    with pytest.raises(ProxyError, match="DESCRIBE"):
        await settled(world.state.store(*FACT))
    assert world.catalog.binding("v") == BINDING
    broker.codes = {}
    await trio.sleep(LOOK_S)
    await settled(world.state.synced())
    assert world.state.off == ""
    assert world.notes.count("view-state-off") == 1
    assert "view-state-on" in world.notes


async def test_without_an_identity_where_one_is_demanded_it_is_off_too(
    nursery: trio.Nursery, autojump_clock: Any
) -> None:
    """The broker ends the connection at the first request."""
    world = World(nursery, ViewsBroker(mechanism="PLAIN"))
    await settled(world.state.synced())
    assert "not stored" in world.state.off


async def test_a_leader_that_changes_is_looked_for(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """A fact is written again until it is."""
    world = World(nursery, there())
    world.broker.codes = {0: 6}
    promise = world.state.store(*FACT)
    await trio.sleep(2)
    assert not promise.done
    world.broker.codes = {}
    await settled(promise)
    assert world.broker.log == [FACT]


async def test_who_asks_while_brokers_are_away_waits(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """Facts stored by other proxies are not guessed."""
    world = World(nursery, there())
    world.broker.codes = {2: 6}
    promise = world.state.synced()
    await trio.sleep(3)
    assert not promise.done
    world.broker.codes = {}
    await settled(promise)


async def test_an_outage_is_one_thing_in_the_log(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """Tried twice a second for five minutes, by two tasks: a line, a reminder each minute, and the end."""
    world = World(nursery, there())
    await settled(world.state.synced())
    world.broker.codes = {1: 6, 2: 6}
    waiting = world.state.synced()
    await trio.sleep(301)
    world.broker.codes = {}
    await settled(waiting)
    await trio.sleep(10)
    assert 5 <= world.notes.count("view-state-not-read") <= 7, world.notes
    assert world.notes.count("view-state-read") == 1
    assert world.notes[-1] == "view-state-read"


async def test_records_that_cannot_be_read_are_passed_over(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """A newer proxy may have written them."""
    broker = there()
    broker.log = [(b"\0\x63new", b"x"), (None, b"x"), FACT]
    world = World(nursery, broker)
    await settled(world.state.synced())
    assert world.catalog.binding("v") == BINDING
    assert world.notes.count("view-state-ignored") == 2


async def test_waiting_facts_are_bounded(nursery: trio.Nursery) -> None:
    """One more is refused immediately."""
    state = ViewState(ViewCatalog(), lambda: client(nursery, there()), LOOK_S, lambda *_, **__: None)
    for _ in range(FACTS_MAX):
        assert not state.store(*FACT).done
    with pytest.raises(ProxyError, match=str(FACTS_MAX)):
        state.store(*FACT).result()


async def test_settings_of_a_topic_that_is_created_later_are_watched(
    nursery: trio.Nursery, autojump_clock: Any
) -> None:
    """Another proxy creates it with its first fact."""
    broker = ViewsBroker()
    world = World(nursery, broker)
    await trio.sleep(2.5 * LOOK_S)
    broker.topics = {TOPIC: 1}
    await trio.sleep(2 * LOOK_S)
    broker.settings = {"cleanup.policy": "delete"}
    await trio.sleep(GUARD_LOOK_S + 1)
    assert "--add-config cleanup.policy=compact" in world.state.off


async def test_topic_that_is_not_compacted_takes_no_facts_until_it_is(
    nursery: trio.Nursery, autojump_clock: Any
) -> None:
    """Also where the policy changes while it is in use."""
    broker = there()
    world = World(nursery, broker)
    await settled(world.state.store(*FACT))
    broker.settings = {"cleanup.policy": "delete"}
    await trio.sleep(GUARD_LOOK_S + 1)
    assert "--add-config cleanup.policy=compact" in world.state.off
    with pytest.raises(ProxyError, match=r"cleanup\.policy=delete"):
        await settled(world.state.store(*FACT))
    assert broker.log == [FACT]
    broker.settings = {"cleanup.policy": "compact"}
    await trio.sleep(GUARD_LOOK_S + 1)
    assert world.state.off == ""
    await settled(world.state.store(*FACT))
    assert world.notes.count("state-topic-unsafe") == world.notes.count("state-topic-safe") == 1
