"""The proxy's own identity where handlers expect a client's connection."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from kafka_share_proxy.brokers.cluster_client_connection import QUERIES_MAX, ClusterClientConnection, drive
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.views import broker_requests
from kafka_share_proxy.wire.errors import LocalProtocolError, UpstreamLost

from tests.support.target_brokers import TargetBrokers


async def test_a_handler_sends_requests_as_a_client_would(nursery: trio.Nursery) -> None:
    """One request after the other, in the version that the handler names."""
    brokers = TargetBrokers(nursery)
    brokers.make("orders", 3)
    port = ClusterClientConnection(brokers.client())
    nursery.start_soon(port.run)
    for _ in range(2):
        entries = await drive(broker_requests.request_topics(port, ["orders", "nothing"]))
        assert {name: len(entry.partitions) for name, entry in entries.items()} == {"orders": 3, "nothing": 0}


async def test_trouble_reaches_the_handler(nursery: trio.Nursery) -> None:
    """No broker wants to know it."""
    port = ClusterClientConnection(TargetBrokers(nursery, {"proxy": "s3cret"}).client())
    nursery.start_soon(port.run)
    with pytest.raises(UpstreamLost):
        await drive(broker_requests.request_topics(port, ["orders"]))


async def test_waiting_requests_are_bounded(nursery: trio.Nursery) -> None:
    """One more fails immediately."""
    port = ClusterClientConnection(TargetBrokers(nursery).client())
    for _ in range(QUERIES_MAX):
        assert not port.send_request(3, 12, b"").done
    with pytest.raises(UpstreamLost, match=str(QUERIES_MAX)):
        port.send_request(3, 12, b"").result()


async def test_a_cancelled_task_ends_its_handler() -> None:
    """`finally` blocks run."""
    ended: list[Any] = []

    async def handler() -> None:
        try:
            await Promise()
        finally:
            ended.append(1)

    async with trio.open_nursery() as inner:
        inner.start_soon(drive, handler())
        await trio.testing.wait_all_tasks_blocked()
        inner.cancel_scope.cancel()
    assert ended == [1]


async def test_exceptions_and_results_of_a_handler_reach_the_caller() -> None:
    """The result is the same as if it had been awaited."""

    async def gives() -> int:
        return 7

    async def raises() -> int:
        raise LocalProtocolError("no")

    assert await drive(gives()) == 7
    with pytest.raises(LocalProtocolError):
        await drive(raises())
