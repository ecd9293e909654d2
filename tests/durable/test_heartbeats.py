"""Heartbeats that the loop repeats: a member in a reactor, at a coordinator on a real socket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.durable import heartbeat_pace
from kafka_share_proxy.durable.ownership import OwnershipEvents
from kafka_share_proxy.durable.ownership_group import Membership
from kafka_share_proxy.durable.ownership_rules import GROUP
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.boot_clock import boot_time
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.durable.proxy_members import ALL, SESSION_S
from tests.support.conditions import until
from tests.support.target_brokers import NODE, TargetBrokers

PER_SESSION = 120
"""Heartbeats in one session timeout, so that the tests are short."""


class Members:
    """Members of one group, and the heartbeats that the coordinator received."""

    def __init__(self, reactor: Reactor, nursery: trio.Nursery) -> None:
        self.nursery, self.brokers = nursery, TargetBrokers(nursery, nodes=1)
        self.brokers.target.move_coordinator(CoordinatorKind.GROUP, GROUP, NODE)
        self.renewed: list[float] = []
        self._settings = ClusterClientSettings(reactor=reactor)

    async def join(self, name: str) -> Membership:
        address = self.brokers.address(NODE)
        client = ClusterClient([address], self._settings)
        member = Membership(client, lambda _event, **_context: None, name, SESSION_S, boot_time)
        self.nursery.start_soon(member.run, OwnershipEvents(renewed=self._note_renewal))
        return member

    def _note_renewal(self) -> None:
        self.renewed.append(trio.current_time())

    @property
    def heartbeats(self) -> int:
        return self.brokers.requested.count(ApiKey.HEARTBEAT)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Members], Awaitable[None]]], None]:
    monkeypatch.setattr(heartbeat_pace, "PER_SESSION", PER_SESSION)

    def run(test: Callable[[Members], Awaitable[None]]) -> None:
        reactor = Reactor(new_pump)

        async def main() -> None:
            with trio.fail_after(20):
                async with trio.open_nursery() as nursery:
                    members = Members(reactor, nursery)
                    await members.brokers.listen()
                    await test(members)
                    nursery.cancel_scope.cancel()

        try:
            reactor.run(main)
        finally:
            reactor.shut()

    return run


Run = Callable[[Callable[[Members], Awaitable[None]]], None]


def test_the_lease_is_renewed_by_each_heartbeat_without_a_task(run: Run) -> None:
    async def test(members: Members) -> None:
        a = await members.join("a")
        await until(a.is_valid)
        steps: list[str] = []

        class Steps(trio.abc.Instrument):
            def before_task_step(self, task: trio.lowlevel.Task) -> None:
                if "Membership" in task.name:
                    steps.append(task.name)

        await until(lambda: members.heartbeats > 2)
        trio.lowlevel.add_instrument(Steps())
        began, renewed, ends = members.heartbeats, len(members.renewed), a._lease.ends
        await until(lambda: members.heartbeats >= began + 10)
        assert not steps
        assert len(members.renewed) >= renewed + 9
        assert a._lease.ends > ends
        assert a._lease.ends == pytest.approx(a._repeated.sent + 0.75 * SESSION_S, abs=0.2)

    run(test)


def test_a_rebalance_is_noticed_by_a_repeated_heartbeat(run: Run) -> None:
    async def test(members: Members) -> None:
        a = await members.join("a")
        await until(lambda: members.heartbeats > 5)
        b = await members.join("b")
        await until(lambda: "another proxy (a)" in b.trouble)
        generation = a.generation
        assert (a.assigned, b.assigned) == (ALL, frozenset())
        before = members.heartbeats
        await until(lambda: members.heartbeats > before + 10)
        assert (a.generation, b.generation) == (generation, generation), "each heartbeat names the new generation"

    run(test)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_refused_heartbeat_ends_the_ownership(run: Run, code: ErrorCode) -> None:
    async def test(members: Members) -> None:
        a = await members.join("a")
        await until(lambda: members.heartbeats > 5)
        members.brokers.refuse(ApiKey.HEARTBEAT, code)
        await until(lambda: not a.assigned)
        assert not a.is_valid()
        members.brokers.faults.clear()
        await until(a.is_valid)

    run(test)


def test_heartbeats_are_retried_while_the_coordinator_loads_the_group(run: Run) -> None:
    async def test(members: Members) -> None:
        a = await members.join("a")
        await until(lambda: members.heartbeats > 5)
        members.brokers.refuse(ApiKey.HEARTBEAT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        before = members.heartbeats
        await until(lambda: members.heartbeats > before + 2)
        members.brokers.faults.clear()
        renewed = len(members.renewed)
        await until(lambda: len(members.renewed) > renewed)
        assert a.is_valid()
        assert members.brokers.requested.count(ApiKey.JOIN_GROUP) <= 2

    run(test)


def test_a_silent_coordinator_is_noticed_as_by_a_task(run: Run) -> None:
    """After 1 s brokers are queried for another one."""

    async def test(members: Members) -> None:
        a = await members.join("a")
        await until(lambda: members.heartbeats > 5)
        lookups = members.brokers.requested.count(ApiKey.FIND_COORDINATOR)
        silent: list[trio.Event] = []

        async def before(key: int, _node_id: int, _client_id: str) -> None:
            if key == ApiKey.HEARTBEAT and not silent:
                silent.append(trio.Event())
                await silent[0].wait()

        members.brokers.served.before_request.append(before)
        await until(lambda: silent)
        began = trio.current_time()
        await until(lambda: members.brokers.requested.count(ApiKey.FIND_COORDINATOR) > lookups)
        assert 0.9 < trio.current_time() - began < 2.5
        silent[0].set()
        renewed = len(members.renewed)
        await until(lambda: len(members.renewed) > renewed + 3)
        assert a.is_valid()

    run(test)


def test_a_rejoin_does_not_wait_for_the_end_of_the_pause(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_pace, "PER_SESSION", 0.1)

    async def test(members: Members) -> None:
        a = await members.join("a")
        await until(lambda: members.heartbeats == 1)
        await trio.sleep(0.05)
        joins = members.brokers.requested.count(ApiKey.JOIN_GROUP)
        a._rejoin_soon()  # as `retire` in a fleet
        await until(lambda: members.brokers.requested.count(ApiKey.JOIN_GROUP) > joins)

    run(test)


def test_a_closed_connection_is_noticed_during_the_pause(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_pace, "PER_SESSION", 0.1)

    async def test(members: Members) -> None:
        a = await members.join("a")
        await until(lambda: members.heartbeats == 1)
        await trio.sleep(0.05)
        for connection in list(members.brokers._connections):
            members.nursery.start_soon(connection._stream.aclose)
        await until(lambda: members.heartbeats == 2)
        assert a.is_valid()

    run(test)
