"""Requests of handlers under the proxy's own identity."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from kafka_share_proxy.brokers import cluster_queries
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.cluster_queries import ClusterClientQueries
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import UpstreamLost
from kafka_share_proxy.wire.values import Address

from tests.support.small_broker import Broker, Net

A, B = Address("a", 1), Address("b", 2)

Test = Callable[[ClusterClientQueries], Awaitable[None]]


def query():
    return registry.message("MetadataRequest")(topics=[], allow_auto_topic_creation=False)


async def with_queries(brokers: dict[Address, Broker | None], test: Test) -> None:
    """Run a test with brokers 1 and 2."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery, brokers)
        asking = ClusterClientQueries(nursery, ClusterClientSettings(connect=net), {1: A, 2: B}.get)
        with trio.fail_after(60):
            await test(asking)
        assert asking.under_way == 0
        nursery.cancel_scope.cancel()


async def settled(promise):
    arrived = trio.Event()
    promise.on_settled(arrived.set)
    await arrived.wait()
    return promise.result()


async def test_the_named_broker_is_queried(autojump_clock: trio.testing.MockClock) -> None:
    async def test(asking: ClusterClientQueries) -> None:
        response = await settled(asking.send_request(1, ApiKey.METADATA, query()))
        assert [broker.node_id for broker in response.brokers] == [1]

    await with_queries({A: Broker(), B: None}, test)


async def test_a_broker_that_cannot_be_queried_is_an_error(autojump_clock: trio.testing.MockClock) -> None:
    """Not reached, not known: the promise fails, nothing else does."""

    async def test(asking: ClusterClientQueries) -> None:
        for node_id in (2, 3):
            with pytest.raises(UpstreamLost):
                await settled(asking.send_request(node_id, ApiKey.METADATA, query()))

    await with_queries({A: Broker(), B: None}, test)


@pytest.mark.parametrize("lost", ["answers", "dials"])
async def test_broker_lost_without_a_word_is_not_waited_for_long(
    autojump_clock: trio.testing.MockClock, lost: str
) -> None:
    async with trio.open_nursery() as nursery:
        broker = Broker()
        net = Net(nursery, {A: broker})
        asking = ClusterClientQueries(nursery, ClusterClientSettings(connect=net), {1: A}.get)
        broker.silent = lost == "answers"
        net.black_holes = {A} if lost == "dials" else set()
        began = trio.current_time()
        with pytest.raises(UpstreamLost, match="did not respond within 5 s"):
            await settled(asking.send_request(1, ApiKey.METADATA, query()))
        assert trio.current_time() - began == pytest.approx(cluster_queries.RESPONSE_S)
        assert asking.under_way == 0
        nursery.cancel_scope.cancel()


async def test_one_too_many_fails_immediately(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_queries, "QUERIES_MAX", 1)

    async def test(asking: ClusterClientQueries) -> None:
        first, second = (
            asking.send_request(1, ApiKey.METADATA, query()),
            asking.send_request(1, ApiKey.METADATA, query()),
        )
        with pytest.raises(UpstreamLost, match="in flight"):
            second.result()
        await settled(first)

    await with_queries({A: Broker(), B: None}, test)
