"""Views follow their bases without anybody asking."""

from __future__ import annotations

from typing import Any

import trio
from kafka_share_proxy.brokers.cluster_client import AuthenticationNeeded
from kafka_share_proxy.brokers.cluster_client_connection import ClusterClientConnection
from kafka_share_proxy.loop.trio_timers import TrioTimers
from kafka_share_proxy.views import state_records
from kafka_share_proxy.views.base_watch import ViewWatch
from kafka_share_proxy.wire.definitions import registry

from tests.support import view_broker
from tests.support.view_broker import Cluster

V = "__view.r4.orders"


class ClusterClient:
    """The cluster, for the proxy itself."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.is_refused = False
        self.closed = False

    async def send_request(self, key: int, query: Any) -> tuple[Any, None]:
        if self.is_refused:
            raise AuthenticationNeeded("who are you")
        await trio.lowlevel.checkpoint()
        version = registry.versions(key)[1] if key != 3 else 12
        return self._cluster.respond(key, version, query), None

    async def aclose(self) -> None:
        self.closed = True


class World(view_broker.World):
    def __init__(self) -> None:
        super().__init__()
        self.cluster.make("orders", 2)
        self.ensure(V)
        self.own = ClusterClient(self.cluster)
        port = ClusterClientConnection(self.own)  # type: ignore[arg-type]
        self.creation.own = port
        self.watch = ViewWatch(self.creation, port, 30.0, self._note)


async def watch(world: World, seconds: float) -> None:
    async with trio.open_nursery() as nursery:
        world.creation.timers = TrioTimers(nursery)
        with trio.move_on_after(seconds):
            await world.watch.run()
        nursery.cancel_scope.cancel()


async def test_partitions_are_added_within_the_interval(autojump_clock: Any) -> None:
    """Members of KIP-848 groups hear of them from the broker."""
    world = World()
    world.cluster.topics["orders"].partitions = 3
    await watch(world, 29)
    assert world.cluster.topics[V].partitions == 8
    await watch(world, 31)
    assert world.cluster.topics[V].partitions == 12
    assert world.own.closed


async def test_the_view_of_a_recreated_base_is_replaced_without_a_request(autojump_clock: Any) -> None:
    """Also without Metadata requests of clients."""
    world = World()
    before = world.cluster.topics[V].topic_id
    world.cluster.make("orders", 1)
    await watch(world, 31)
    assert world.cluster.topics[V].topic_id != before
    assert world.cluster.topics[V].partitions == 4


async def test_a_deleted_view_is_forgotten_and_not_created(autojump_clock: Any) -> None:
    """With what was stored of it, once it has stayed away: another proxy may just be making it anew."""
    world = World()
    binding = world.catalog.binding(V)
    del world.cluster.topics[V]
    await watch(world, 31)
    assert world.catalog.by_name(V) is None
    assert world.catalog.binding(V) == binding
    await watch(world, 61)
    assert V not in world.cluster.topics
    assert world.catalog.binding(V) is None
    assert world.stored[state_records.binding_key(V)] is None


async def test_a_view_whose_base_is_deleted_stays_bound(autojump_clock: Any) -> None:
    """It is distinguished from a recreated base once that exists."""
    world = World()
    del world.cluster.topics["orders"]
    await watch(world, 31)
    assert world.catalog.binding(V) is not None
    assert V in world.cluster.topics


async def test_views_of_other_proxies_are_watched_too(autojump_clock: Any) -> None:
    """All that are bound."""
    world = World()
    world.catalog.forget(V)
    world.cluster.topics["orders"].partitions = 3
    await watch(world, 31)
    assert world.cluster.topics[V].partitions == 12


async def test_missing_rights_are_reported_once_and_nothing_is_forgotten(autojump_clock: Any) -> None:
    """Clients see it with their own rights."""
    world = World()
    world.cluster.hidden.add("orders")
    await watch(world, 100)
    assert "DESCRIBE" in world.watch.trouble
    assert [line.get("times") for line in world.noted("views-not-watched")] == [None, 3]
    assert world.catalog.by_name(V) is not None
    world.cluster.hidden.clear()
    await watch(world, 31)
    assert world.watch.trouble == ""
    assert len(world.noted("views-watched")) == 1


async def test_without_an_identity_nothing_is_watched(autojump_clock: Any) -> None:
    """And everything else continues."""
    world = World()
    world.own.is_refused = True
    await watch(world, 31)
    assert world.watch.trouble == "who are you"
