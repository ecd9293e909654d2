"""Requests of the proxy itself: versions, authentication, Metadata, and servers that misbehave."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from kafka_share_proxy.brokers import cluster_client
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import AuthenticationFailed, ClusterClientSettings, Identity
from kafka_share_proxy.brokers.replaced import SILENT_S
from kafka_share_proxy.loop.first_success import STAGGER_S
from kafka_share_proxy.wire.errors import UpstreamLost
from kafka_share_proxy.wire.values import Address

from tests.support.small_broker import Broker, Net

A, B, C = Address("a", 1), Address("b", 2), Address("c", 3)
IDENTITY = Identity(mechanism="PLAIN", username="proxy", password=lambda: "s3cret")

Test = Callable[[ClusterClient, Net], Awaitable[None]]


async def with_client(brokers: dict[Address, Broker | None], test: Test, identity: Identity | None = None) -> None:
    """Run a test with a client of these brokers, none of which may outlive it."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery, brokers)
        own = ClusterClient(list(brokers), ClusterClientSettings(connect=net, identity=identity))
        with trio.fail_after(60):
            await test(own, net)
        await own.aclose()
        nursery.cancel_scope.cancel()


async def test_metadata_names_brokers_and_what_they_can_do(autojump_clock: trio.testing.MockClock) -> None:
    """One connection serves many requests."""

    async def test(own: ClusterClient, net: Net) -> None:
        for _ in range(3):
            response, versions = await own.metadata(["t"])
        assert [(broker.node_id, broker.host) for broker in response.brokers] == [(1, "b1")]
        assert [topic.name for topic in response.topics] == ["t"]
        assert versions.response is not None
        levels = {each.name: each.max_version_level for each in versions.response.finalized_features}
        assert (versions.ranges[78], levels) == ((1, 2), {"share.version": 1})
        assert net.dialled == [A]

    await with_client({A: Broker()}, test)


async def test_the_next_server_is_queried_when_one_is_down(autojump_clock: trio.testing.MockClock) -> None:
    """All bootstrap servers are tried, not only the first."""

    async def test(own: ClusterClient, net: Net) -> None:
        await own.metadata()
        assert net.dialled == [A, B]
        await own.metadata()
        assert net.dialled == [A, B]

    await with_client({A: None, B: Broker()}, test)


async def test_servers_that_swallow_everything_cost_a_moment(autojump_clock: trio.testing.MockClock) -> None:
    """The next server is tried in parallel with a silent one, and only the connection in use stays open."""
    suspended = Broker()
    suspended.silent = True

    async def test(own: ClusterClient, net: Net) -> None:
        net.black_holes.add(A)
        began = trio.current_time()
        await own.metadata()
        assert net.dialled == [A, B, C]
        assert trio.current_time() - began == pytest.approx(2 * STAGGER_S)
        await own.any_versions()
        assert trio.current_time() - began == pytest.approx(4 * STAGGER_S)
        await own.metadata()
        assert net.dialled == [A, B, C, A, B, C]

    await with_client({A: Broker(), B: suspended, C: Broker()}, test)


async def test_a_server_that_was_slow_is_queried_when_the_quick_one_fails(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Each server fails at most once for a request; no server is skipped because another was faster."""
    slow, quick = Broker(), Broker(ranges={18: (0, 4)})

    async def test(own: ClusterClient, net: Net) -> None:
        net.delays[A] = 2 * STAGGER_S
        response, _ = await own.metadata()
        assert [broker.node_id for broker in response.brokers] == [1]
        assert net.dialled == [A, B, A]

    await with_client({A: slow, B: quick}, test)


async def test_a_lost_connection_is_replaced_immediately(autojump_clock: trio.testing.MockClock) -> None:
    """A broker that restarted between two requests is dialled again."""
    broker = Broker()

    async def test(own: ClusterClient, net: Net) -> None:
        await own.metadata()
        broker.cut()
        await trio.testing.wait_all_tasks_blocked()
        await own.metadata()
        assert net.dialled == [A, A]

    await with_client({A: broker}, test)


async def test_request_is_sent_to_another_server_when_the_kept_connection_is_lost_silently(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its machine is gone: nothing ends the connection. The next request does not use the lost server."""
    lost, other = Broker(), Broker(node_id=2)

    async def test(own: ClusterClient, net: Net) -> None:
        await own.metadata()
        lost.silent, began = True, trio.current_time()
        response, _ = await own.metadata()
        assert trio.current_time() - began == pytest.approx(SILENT_S)
        assert [broker.node_id for broker in response.brokers] == [2]
        assert net.dialled == [A, B]
        assert net.open == [B], "the one that is late is closed"
        lost.silent, began = False, trio.current_time()
        response, _ = await own.metadata()
        assert trio.current_time() == began
        assert net.dialled == [A, B]

    await with_client({A: lost, B: other}, test)


async def test_slow_servers_are_waited_for_over_two_connections_at_most(
    autojump_clock: trio.testing.MockClock,
) -> None:
    brokers = [Broker(node_id=number) for number in (1, 2, 3)]

    async def watch(net: Net) -> None:
        for _ in range(100):
            assert len(net.open) <= 2
            await trio.sleep(0.1)

    async def test(own: ClusterClient, net: Net) -> None:
        await own.metadata()
        for broker in brokers:
            broker.slow_s = 5.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, net)
            began = trio.current_time()
            response, _ = await own.metadata()
            assert trio.current_time() - began == pytest.approx(5.0), "the first is not given up for being slow"
            nursery.cancel_scope.cancel()
        assert [broker.node_id for broker in response.brokers] == [1]
        assert net.dialled == [A, B, C, Address("b1", 9092), A]
        assert net.open == [A]

    await with_client(dict(zip((A, B, C), brokers, strict=True)), test)


async def test_without_any_server_every_reason_is_reported(autojump_clock: trio.testing.MockClock) -> None:
    """The error names each server with its own reason."""

    async def test(own: ClusterClient, net: Net) -> None:
        with pytest.raises(UpstreamLost, match=r"a:1: Connection refused; b:2 did not respond within 15 s"):
            await own.metadata()

    silent = Broker()
    silent.silent = True
    await with_client({A: None, B: silent}, test)


async def test_brokers_named_in_a_response_are_tried_too(autojump_clock: trio.testing.MockClock) -> None:
    """When every bootstrap server is gone, a broker that is known helps out."""
    first, second = Broker(node_id=1), Broker(node_id=1)
    brokers: dict[Address, Broker | None] = {A: first}

    async def test(own: ClusterClient, net: Net) -> None:
        await own.metadata()
        brokers[A], brokers[Address("b1", 9092)] = None, second
        first.cut()
        await own.metadata()
        assert net.dialled == [A, A, Address("b1", 9092)]

    await with_client(brokers, test)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_the_identity_is_shown(mechanism: str, autojump_clock: trio.testing.MockClock) -> None:
    """Every mechanism offered as a setting works against its server side."""

    async def test(own: ClusterClient, net: Net) -> None:
        response, _ = await own.metadata()
        assert len(response.brokers) == 1

    identity = Identity(mechanism=mechanism, username="proxy", password=lambda: "s3cret")
    await with_client({A: Broker(mechanism=mechanism)}, test, identity)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_wrong_password_is_reported_as_such(mechanism: str, autojump_clock: trio.testing.MockClock) -> None:
    """AuthenticationFailed, without the password in the text."""

    async def test(own: ClusterClient, net: Net) -> None:
        with pytest.raises(AuthenticationFailed) as caught:
            await own.metadata()
        assert "wr0ng" not in str(caught.value)

    identity = Identity(mechanism=mechanism, username="proxy", password=lambda: "wr0ng")
    await with_client({A: Broker(mechanism=mechanism)}, test, identity)


async def test_a_mechanism_that_is_not_offered_names_those_that_are(autojump_clock: trio.testing.MockClock) -> None:
    """The text says what to change."""

    async def test(own: ClusterClient, net: Net) -> None:
        with pytest.raises(AuthenticationFailed, match="does not support PLAIN; it offers SCRAM-SHA-512"):
            await own.metadata()

    await with_client({A: Broker(mechanism="SCRAM-SHA-512")}, test, IDENTITY)


async def test_without_identity_a_broker_that_requires_one_is_reported_separately(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It closes the connection at the first request without a response; versions need no authentication."""

    async def test(own: ClusterClient, net: Net) -> None:
        with pytest.raises(cluster_client.AuthenticationNeeded):
            await own.metadata()
        address, versions = await own.any_versions()
        assert (address, versions.ranges[78]) == (A, (1, 2))

    await with_client({A: Broker(mechanism="PLAIN")}, test)


async def test_an_identity_does_no_harm_where_none_is_required(autojump_clock: trio.testing.MockClock) -> None:
    """A listener without SASL returns ILLEGAL_SASL_STATE; every client is ANONYMOUS there."""

    async def test(own: ClusterClient, net: Net) -> None:
        response, _ = await own.metadata()
        assert len(response.brokers) == 1

    await with_client({A: Broker()}, test, IDENTITY)


async def test_a_session_with_a_lifetime_is_replaced_in_time(autojump_clock: trio.testing.MockClock) -> None:
    """KIP-368: a broker closes a session that outlives its credentials."""
    broker = Broker(mechanism="PLAIN")
    broker.lifetime_ms = 10_000

    async def test(own: ClusterClient, net: Net) -> None:
        await own.metadata()
        await trio.sleep(7.9)
        await own.metadata()
        assert broker.connections == 1
        await trio.sleep(0.2)
        await own.metadata()
        assert broker.connections == 2

    await with_client({A: broker}, test, IDENTITY)


@pytest.mark.parametrize(
    ("garbage", "words"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x16", r"a:1 sent: no Kafka frame but a TLS alert .*; see upstream.tls"),
        (b"HTTP/1.1 400 Bad Request\r\n", "a:1 sent: no Kafka frame but HTTP"),
        (b"\xff\xff\xff\xff", "a:1 sent: negative frame size -1"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x63\x00\x00", "truncated|short|end|byte"),
    ],
)
async def test_what_is_no_kafka_is_a_clear_error(
    garbage: bytes, words: str, autojump_clock: trio.testing.MockClock
) -> None:
    """A TLS alert, a negative size, a truncated response: an error with words, never a crash."""
    broker = Broker()
    broker.garbage = garbage

    async def test(own: ClusterClient, net: Net) -> None:
        with pytest.raises(UpstreamLost, match=words):
            await own.metadata()

    await with_client({A: broker}, test)


async def on_sockets(test: Callable[[ClusterClient, Broker, Broker], Awaitable[None]]) -> None:
    """Run a test with a client of two brokers on real sockets. The first is dialled first."""
    async with trio.open_nursery() as nursery:
        first, second = Broker(), Broker(node_id=2)
        addresses = [await each.listen(nursery) for each in (first, second)]
        first.metadata_brokers = second.metadata_brokers = dict(enumerate(addresses, 1))
        own = ClusterClient(addresses, ClusterClientSettings())
        with trio.fail_after(20):
            await own.metadata()
            await test(own, first, second)
        await own.aclose()
        nursery.cancel_scope.cancel()


async def test_a_response_in_time_starts_no_task() -> None:
    async def test(own: ClusterClient, first: Broker, second: Broker) -> None:
        started: list[str] = []

        class Started(trio.abc.Instrument):
            def task_spawned(self, task: trio.lowlevel.Task) -> None:
                started.append(task.name)

        trio.lowlevel.add_instrument(Started())
        for _ in range(3):
            response, _ = await own.metadata()
            assert len(response.brokers) == 2
        assert started == []
        assert (first.connections, second.connections) == (1, 0)

    await on_sockets(test)


async def test_a_late_response_is_received_unless_another_broker_responds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_client, "SILENT_S", 0.1)

    async def test(own: ClusterClient, first: Broker, second: Broker) -> None:
        first.slow_s, second.silent = 0.3, True
        assert len((await own.metadata())[0].brokers) == 2
        assert second.connections == 1
        first.slow_s, second.silent, first.silent = 0.0, False, True
        for _ in range(2):
            assert len((await own.metadata())[0].brokers) == 2
        assert second.connections == 2, "the connection of the broker that responded is kept"

    await on_sockets(test)


async def test_a_connection_that_has_ended_is_replaced() -> None:
    async def test(own: ClusterClient, first: Broker, second: Broker) -> None:
        first.cut()
        await trio.sleep(0.05)
        for _ in range(2):
            assert len((await own.metadata())[0].brokers) == 2
        assert (first.connections, second.connections) == (2, 0)

    await on_sockets(test)


async def test_a_task_that_is_cancelled_closes_the_connection() -> None:
    async def test(own: ClusterClient, first: Broker, second: Broker) -> None:
        first.silent = True
        with trio.move_on_after(0.05):
            await own.metadata()
        first.silent = False
        assert len((await own.metadata())[0].brokers) == 2
        assert first.connections == 2

    await on_sockets(test)
