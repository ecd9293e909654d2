"""Connections that are kept between requests, and those that must not be."""

from __future__ import annotations

import pytest
import trio
from kafka_share_proxy.brokers.idle_connections import IdleConnections
from kafka_share_proxy.wire.errors import UpstreamLost
from trio.testing import MockClock

from tests.support.target_brokers import NODE, OTHER_NODE, TargetBrokers


@pytest.fixture
def brokers(nursery: trio.Nursery) -> TargetBrokers:
    return TargetBrokers(nursery)


async def test_connection_is_kept_for_its_broker(brokers: TargetBrokers) -> None:
    connections = IdleConnections(brokers.settings)
    async with connections.lend(brokers.address(NODE)) as first:
        pass
    async with connections.lend(brokers.address(NODE)) as again, connections.lend(brokers.address(OTHER_NODE)) as other:
        assert again is first
        assert other is not first
    await connections.aclose()
    assert first.closed
    assert other.closed


async def test_concurrent_task_gets_another_connection_and_one_is_kept(brokers: TargetBrokers) -> None:
    connections = IdleConnections(brokers.settings)
    async with connections.lend(brokers.address(NODE)) as first, connections.lend(brokers.address(NODE)) as second:
        assert second is not first
    assert (first.closed, second.closed) == (True, False)
    await connections.aclose()
    assert second.closed


@pytest.mark.parametrize("error", [UpstreamLost("lost"), RuntimeError("any")])
async def test_connection_is_closed_by_an_error_since_a_response_may_be_due(
    brokers: TargetBrokers, error: Exception
) -> None:
    connections = IdleConnections(brokers.settings)
    with pytest.raises(type(error)):
        async with connections.lend(brokers.address(NODE)) as first:
            raise error
    async with connections.lend(brokers.address(NODE)) as second:
        assert (first.closed, second.closed) == (True, False)
    await connections.aclose()


async def test_connection_whose_session_ends_is_replaced(brokers: TargetBrokers, autojump_clock: MockClock) -> None:
    connections = IdleConnections(brokers.settings)
    async with connections.lend(brokers.address(NODE)) as first:
        first.expires = trio.current_time() + 5
    await trio.sleep(5)
    async with connections.lend(brokers.address(NODE)) as second:
        assert (first.closed, second is first) == (True, False)
    await connections.aclose()


@pytest.mark.parametrize(("idle_s", "is_kept"), [(4.0, True), (6.0, False)])
async def test_connection_that_was_idle_for_long_is_replaced(
    brokers: TargetBrokers, autojump_clock: MockClock, idle_s: float, is_kept: bool
) -> None:
    """A firewall may have dropped it unnoticed."""
    connections = IdleConnections(brokers.settings, idle_s=5.0)
    async with connections.lend(brokers.address(NODE)) as first:
        await trio.sleep(10)
    await trio.sleep(idle_s)
    async with connections.lend(brokers.address(NODE)) as second:
        assert (second is first, first.closed) == (is_kept, not is_kept)
    await connections.aclose()


async def test_cancelled_task_closes_all_connections(brokers: TargetBrokers) -> None:
    connections = IdleConnections(brokers.settings)
    async with (
        connections.lend(brokers.address(NODE)) as first,
        connections.lend(brokers.address(OTHER_NODE)) as second,
    ):
        pass
    with trio.CancelScope() as scope:
        scope.cancel()
        await connections.aclose()
    assert (first.closed, second.closed) == (True, True)


async def test_connection_in_use_is_closed_at_the_end_of_its_use(brokers: TargetBrokers) -> None:
    connections = IdleConnections(brokers.settings)
    async with connections.lend(brokers.address(NODE)) as opened:
        await connections.aclose()
        assert not opened.closed
    assert opened.closed
