"""Looking at the cluster: at start, again and again, and when something is missing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing
from kafka_share_proxy.brokers import cluster_watch
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings, Identity
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot, ClusterWatch
from kafka_share_proxy.wire.values import Address

from tests.support.small_broker import Broker, Net

A, B1, B2 = Address("a", 1), Address("b1", 9092), Address("b2", 9092)


@dataclass
class World:
    """A watch, its brokers, and what it said."""

    watch: ClusterWatch
    net: Net
    brokers: dict[Address, Broker | None]
    log_events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.log_events]


@asynccontextmanager
async def world(
    brokers: dict[Address, Broker | None], identity: Identity | None = None, nodes: dict[int, Address] | None = None
) -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        net = Net(nursery, brokers)
        client = ClusterClient([A], ClusterClientSettings(connect=net, identity=identity))
        reported: list[tuple[str, dict[str, Any]]] = []

        def notes(event: str, /, **context: Any) -> None:
            reported.append((event, context))

        watch = ClusterWatch(client, nodes=nodes or {}, bootstrap=[A], interval_s=30, notes=notes)
        yield World(watch, net, brokers, reported)
        await client.aclose()
        nursery.cancel_scope.cancel()


def two_brokers() -> dict[Address, Broker | None]:
    first, second = Broker(1), Broker(2)
    first.metadata_brokers = {1: B1, 2: B2}
    return {A: first, B1: first, B2: second}


async def test_first_waits_until_every_broker_has_reported_its_versions(autojump_clock: trio.testing.MockClock) -> None:
    """A broker that is still starting is waited for, so that the decision about share groups is about all."""
    brokers = two_brokers()
    late, brokers[B2] = brokers[B2], None
    async with world(brokers) as w, trio.open_nursery() as nursery:

        async def start_late() -> None:
            await trio.sleep(5)
            brokers[B2] = late

        nursery.start_soon(start_late)
        snapshot = await w.watch.first()
        assert trio.current_time() >= 5
        assert (dict(snapshot.brokers), set(snapshot.versions), dict(snapshot.silent)) == ({1: B1, 2: B2}, {1, 2}, {})
        assert w.events[0] == "upstream-reached"
        assert w.events[1:] == ["share-groups-undecided", "share-groups-decided"]


async def test_brokers_of_the_settings_are_dialled_there(autojump_clock: trio.testing.MockClock) -> None:
    """What they advertise may not be reachable from here."""
    brokers = two_brokers()
    elsewhere = Address("gateway", 1)
    brokers[elsewhere] = brokers.pop(B2)
    async with world(brokers, nodes={2: elsewhere}) as w:
        snapshot = await w.watch.first()
    assert (dict(snapshot.brokers), set(snapshot.versions), dict(snapshot.silent)) == (
        {1: B1, 2: elsewhere},
        {1, 2},
        {},
    )


async def test_a_broker_that_never_responds_is_not_waited_for_for_ever(autojump_clock: trio.testing.MockClock) -> None:
    """After the limit the responses of the other brokers are used, and the silent one is reported."""
    brokers = two_brokers()
    brokers[B2] = None
    async with world(brokers) as w:
        began = trio.current_time()
        snapshot = await w.watch.first()
        waited = trio.current_time() - began
        assert cluster_watch.UNDECIDED_MAX_S <= waited <= cluster_watch.UNDECIDED_MAX_S + cluster_watch.RETRY_MAX_S
        assert (set(snapshot.versions), list(snapshot.silent)) == ({1}, [2])


async def test_upstream_that_is_down_is_tried_until_it_is_there(autojump_clock: trio.testing.MockClock) -> None:
    """One clear line, then reminders; readiness can say the reason."""
    brokers: dict[Address, Broker | None] = {A: None}
    async with world(brokers) as w, trio.open_nursery() as nursery:
        snapshots: list[ClusterSnapshot] = []

        async def run() -> None:
            snapshots.append(await w.watch.first())

        nursery.start_soon(run)
        await trio.sleep(45)
        assert (w.watch.reachable, w.watch.trouble) == (False, "a:1: Connection refused")
        assert w.events == ["upstream-not-reachable"]
        await trio.sleep(60)
        assert w.events == ["upstream-not-reachable"] * 2
        brokers[A] = brokers[B1] = Broker(1)
        await trio.sleep(cluster_watch.RETRY_MAX_S + 1)
        assert set(snapshots[0].versions) == {1}
        assert (w.watch.reachable, w.watch.trouble) == (True, "")


async def test_follow_reports_changes_and_retries_soon_after_trouble(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Every interval while all is well; a cluster that was away is seen within the retry time."""
    broker = Broker(1)
    brokers: dict[Address, Broker | None] = {A: broker, B1: broker}
    async with world(brokers) as w, trio.open_nursery() as nursery:
        snapshots: list[tuple[float, ClusterSnapshot]] = []
        began = trio.current_time()
        nursery.start_soon(w.watch.follow, lambda snapshot: snapshots.append((trio.current_time() - began, snapshot)))
        await trio.sleep(61)
        assert [round(when) for when, _ in snapshots] == [30, 60]
        brokers[A] = brokers[B1] = None
        broker.cut()
        await trio.sleep(60)
        assert len(snapshots) == 2
        brokers[A] = brokers[B1] = broker
        await trio.sleep(cluster_watch.RETRY_MAX_S + 1)
        assert len(snapshots) == 3
        nursery.cancel_scope.cancel()


async def test_trouble_with_a_broker_causes_a_refresh_immediately(autojump_clock: trio.testing.MockClock) -> None:
    """But never more often than every second, however many clients complain."""
    broker = Broker(1)
    async with world({A: broker, B1: broker}) as w, trio.open_nursery() as nursery:
        refresh_times: list[float] = []
        began = trio.current_time()
        nursery.start_soon(w.watch.follow, lambda _sight: refresh_times.append(trio.current_time() - began))
        for _ in range(30):
            await trio.sleep(0.1)
            w.watch.check_soon()
        await trio.sleep(3)
        nursery.cancel_scope.cancel()
    assert [round(when) for when in refresh_times] == [1, 2, 3, 4]


async def test_versions_are_queried_again_in_every_refresh(autojump_clock: trio.testing.MockClock) -> None:
    """A broker upgraded in place does not keep its old versions here."""
    broker = Broker(1)
    async with world({A: broker, B1: broker}) as w:
        for refresh in range(3):
            broker.ranges = {**broker.ranges, 3: (0, 12 + refresh)}
            snapshot = await w.watch.refresh()
            assert snapshot.versions[1].ranges[3] == (0, 12 + refresh)


async def test_a_dead_broker_is_reported_and_reported_again_when_it_is_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """One of two; what it could do is not forgotten, and the cluster is reachable all the time."""
    brokers = two_brokers()
    async with world(brokers) as w, trio.open_nursery() as nursery:
        await w.watch.first()
        dead, brokers[B2] = brokers[B2], None
        nursery.start_soon(w.watch.follow, lambda _sight: None)
        await trio.sleep(125)
        assert (w.watch.reachable, dict(w.watch.silent)) == (True, {2: "b2:9092: Connection refused"})
        lines = [context for event, context in w.log_events if event == "broker-not-answering"]
        assert [(line["node_id"], line.get("times")) for line in lines] == [(2, None), (2, 3)]
        brokers[B2] = dead
        await trio.sleep(31)
        assert (w.events[-1], w.watch.silent) == ("broker-answers", {})
        brokers[B2] = None
        await trio.sleep(31)
        assert w.events[-1] == "broker-not-answering"
        first = brokers[A]
        assert first is not None
        del first.metadata_brokers[2]
        await trio.sleep(31)
        assert w.events[-1] == "broker-not-answering", "it did not come back"
        nursery.cancel_scope.cancel()


async def test_a_broker_that_accepts_and_sends_nothing_does_not_delay_the_refresh(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A process that is stopped: what the others say is known within seconds."""
    brokers = two_brokers()
    async with world(brokers) as w:
        await w.watch.first()
        frozen = brokers[B2]
        assert frozen is not None
        frozen.silent = True
        began = trio.current_time()
        snapshot = await w.watch.refresh()
        assert trio.current_time() - began <= cluster_watch.KNOWN_BROKER_S
        assert snapshot is not None
        assert (set(snapshot.versions), dict(snapshot.silent)) == ({1, 2}, {2: "b2:9092 did not respond within 3 s"})


async def test_without_identity_the_settings_name_the_brokers(autojump_clock: trio.testing.MockClock) -> None:
    """Clients are served under their own identities; what is missing is said once."""
    broker = Broker(1, mechanism="PLAIN")
    async with world({A: broker, B1: broker}, nodes={1: B1}) as w:
        snapshot = await w.watch.first()
        assert (dict(snapshot.brokers), snapshot.metadata, set(snapshot.versions)) == ({1: B1}, (), {1})
        assert w.watch.reachable
        assert not w.watch.refused
        assert "upstream.sasl" in w.watch.trouble
        assert w.events == ["upstream-asks-for-authentication"]


async def test_without_identity_and_settings_the_bootstrap_servers_decide(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The brokers' addresses are unknown, but versions need no authentication."""
    async with world({A: Broker(1, mechanism="PLAIN")}) as w:
        snapshot = await w.watch.first()
        assert (dict(snapshot.brokers), list(snapshot.versions)) == ({}, [-1])
        assert "upstream.nodes" in w.watch.trouble


async def test_an_identity_that_is_refused_is_reported_separately(autojump_clock: trio.testing.MockClock) -> None:
    """The settings are wrong then: clients are served, but the proxy is not ready."""
    identity = Identity(mechanism="PLAIN", username="proxy", password=lambda: "wr0ng")
    async with world({A: Broker(1, mechanism="PLAIN")}, identity) as w:
        await w.watch.first()
        assert w.watch.reachable
        assert w.watch.refused
        assert "wr0ng" not in w.watch.trouble


async def test_topics_that_features_depend_on_are_requested(autojump_clock: trio.testing.MockClock) -> None:
    """Up to a limit, in every look, a few in each request."""
    broker = Broker(1)
    async with world({A: broker, B1: broker}) as w:
        w.watch.topics = lambda: [f"t{number}" for number in range(2 * cluster_watch.TOPICS_MAX)]
        snapshot = await w.watch.refresh()
        requested = [[topic.name for topic in response.topics] for response in snapshot.metadata]
        assert [name for names in requested for name in names] == [
            f"t{number}" for number in range(cluster_watch.TOPICS_MAX)
        ]
        assert {len(names) for names in requested} == {cluster_watch.TOPICS_AT_ONCE}
