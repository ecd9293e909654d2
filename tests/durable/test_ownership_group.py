"""Membership in the group of proxies, on a real broker: one owns, others wait, and a name is taken over immediately."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.durable import group_member
from kafka_share_proxy.durable.ownership import OwnershipEvents
from kafka_share_proxy.durable.ownership_group import Membership
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.loop.boot_clock import boot_time
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import Address

from tests.support.conditions import until
from tests.support.raw import address
from tests.support.relay import Relay

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SESSION_S = 6.0
SERVES = ["share groups", "commits"]


class Clock:
    """Goes as the real one, and jumps as a machine that slept."""

    def __init__(self) -> None:
        self.slept = 0.0

    def __call__(self) -> float:
        return boot_time() + self.slept


class Group:
    """Proxies of one cluster, and what they said."""

    def __init__(self, nursery: trio.Nursery, bootstrap: Address) -> None:
        self.nursery, self.bootstrap = nursery, bootstrap
        self.nodes: dict[int, Address] = {}
        self.notes: list[tuple[str, dict[str, object]]] = []

    def join(self, name: str, clock: Callable[[], float] | None = None) -> tuple[Membership, trio.CancelScope]:
        """A member that runs until its scope is cancelled."""
        client = ClusterClient([self.bootstrap], ClusterClientSettings(), self.nodes)
        notes = lambda event, **context: self.notes.append((event, context))  # noqa: E731
        membership = Membership(client, notes, name, SESSION_S, clock or boot_time, serves=SERVES)
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await membership.run(OwnershipEvents())

        self.nursery.start_soon(run)
        return membership, scope


@pytest.fixture
def play(kafka_39: Cluster, monkeypatch: pytest.MonkeyPatch, fresh: Callable[[str], str]) -> Callable[..., None]:
    """Runs a test in Trio with a new group."""
    monkeypatch.setattr(group_member, "GROUP", fresh("owners"))

    def run(test: Callable[[Group], Awaitable[None]]) -> None:
        async def main() -> None:
            async with trio.open_nursery() as nursery:
                await test(Group(nursery, address(kafka_39.bootstrap)))
                nursery.cancel_scope.cancel()

        trio.run(main)

    return run


def test_second_proxy_owns_nothing_until_the_first_leaves(play: Callable[..., None]) -> None:
    async def test(group: Group) -> None:
        first, scope = group.join("one:1")
        await until(first.is_valid)
        assert first.is_valid()
        second, _ = group.join("two:2")
        await until(lambda: "one:1" in second.trouble)
        await trio.sleep(1.5)  # the rebalance that the second brought about is over
        assert first.is_valid()
        assert not second.is_valid()
        scope.cancel()
        await until(second.is_valid)
        assert {event for event, _ in group.notes} >= {"another-proxy", "share-groups-standby", "commits-standby"}

    play(test)


def test_a_member_name_that_returns_is_admitted_immediately(play: Callable[..., None]) -> None:
    """The same as after a crash; if the other proxy is alive, it is notified, stops, and waits."""

    async def test(group: Group) -> None:
        first, _ = group.join("one:1")
        await until(first.is_valid)
        again, _ = group.join("one:1")
        with trio.fail_after(3):
            await until(again.is_valid)
        await until(lambda: not first.assigned)
        assert not first.is_valid()
        await until(lambda: "another proxy" in first.trouble)
        assert again.is_valid()

    play(test)


def test_the_only_member_that_stops_returns_to_the_same_generation(play: Callable[..., None]) -> None:
    """Brokers delay the first join of an empty group, and a rebalance would take time as well."""

    async def test(group: Group) -> None:
        first, scope = group.join("one:1")
        await until(first.is_valid)
        scope.cancel()
        again, _ = group.join("one:1")
        await until(again.is_valid)
        assert again.generation == first.generation

    play(test)


def test_the_only_member_leaves_when_it_stops_while_another_one_joins(play: Callable[..., None]) -> None:
    async def test(group: Group) -> None:
        first, scope = group.join("one:1")
        await until(first.is_valid)
        first._lease.on_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS, boot_time())
        scope.cancel()
        second, _ = group.join("two:2")
        with trio.fail_after(SESSION_S / 2):
            await until(second.is_valid)

    play(test)


def test_member_survives_lost_connections_during_heartbeats_and_rebalances(
    play: Callable[..., None], kafka_39: Cluster
) -> None:
    """Heartbeats and a rebalance under way: the owner stays a member, or becomes one again."""

    async def test(group: Group) -> None:
        with Relay(kafka_39.bootstrap) as relay:
            group.nodes = {1: address(relay.address)}
            first, _ = group.join("one:1")
            await until(first.is_valid)
            for _ in range(3):
                _, scope = group.join("two:2")
                for _ in range(4):
                    await trio.sleep(0.3)
                    relay.cut()
                scope.cancel()
            await until(first.is_valid)

    play(test)


def test_lease_ends_by_the_clock_and_returns_with_the_next_response(play: Callable[..., None]) -> None:
    async def test(group: Group) -> None:
        clock = Clock()
        first, _ = group.join("one:1", clock)
        await until(first.is_valid)
        clock.slept = SESSION_S
        assert not first.is_valid()
        await until(first.is_valid)
        assert not any(event == "share-groups-off" for event, _ in group.notes)

    play(test)
