"""How soon a proxy retries after its group's coordinator was away; by a clock that jumps."""

from __future__ import annotations

import pytest
import trio
from kafka_share_proxy.durable import group_coordinator, heartbeat_pace, ownership_group
from kafka_share_proxy.durable.ownership import OwnershipEvents
from kafka_share_proxy.durable.ownership_group import Membership

from tests.support.target_brokers import TargetBrokers

SESSION_S = 6.0
NAME = "one:1"


class Brokers(TargetBrokers):
    """Brokers that are away at first."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery, nodes=1)
        self.dialled_at: list[float] = []
        self.leave()

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        self.dialled_at.append(trio.current_time())
        return await super().connect(host, port)


@pytest.fixture
def brokers(nursery: trio.Nursery) -> Brokers:
    return Brokers(nursery)


def _member(brokers: Brokers) -> Membership:
    return Membership(brokers.client(), lambda _event, **_context: None, NAME, SESSION_S, trio.current_time)


async def _run(member: Membership, scope: trio.CancelScope) -> None:
    with scope:
        await member.run(OwnershipEvents())


async def test_coordinator_is_found_immediately_after_a_crash_and_soon_after_a_long_outage(
    brokers: Brokers, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """The lease has ended by then: nothing is served until it responds."""
    for away_s, found_s in ((9.7, group_coordinator.RETRY_SOON_S), (60, ownership_group.RETRY_MAX_S)):
        member = _member(brokers)
        brokers.leave()
        scope = trio.CancelScope()
        nursery.start_soon(_run, member, scope)
        await trio.sleep(away_s)
        brokers.come_back()
        back = trio.current_time()
        while not member.is_valid():  # noqa: ASYNC110 - of another task's doing
            await trio.sleep(0.005)
        assert trio.current_time() - back <= found_s + 0.01
        scope.cancel()


async def test_retry_delays_are_reset_once_the_coordinator_has_responded(
    brokers: Brokers, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """The next time it is away, it is looked up immediately."""
    member = _member(brokers)
    nursery.start_soon(member.run, OwnershipEvents())
    await trio.sleep(60)
    brokers.come_back()
    await trio.sleep(60)
    assert member.is_valid()
    before = len(brokers.dialled_at)
    brokers.leave()
    lost = trio.current_time()
    await trio.sleep(SESSION_S)
    heartbeat = SESSION_S / heartbeat_pace.PER_SESSION
    assert brokers.dialled_at[before] - lost <= heartbeat + 0.11
