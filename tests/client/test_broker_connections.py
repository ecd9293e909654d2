"""Which connection a request takes, how connections are made, and what happens when none can be."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
import trustme
from kafka_share_proxy.brokers.cluster_connection import Identity
from kafka_share_proxy.client import broker_connection, broker_connections
from kafka_share_proxy.client.broker_connections import BrokerConnections
from kafka_share_proxy.consumer.requests import ANY_NODE, FailureKind, Lane, Outcome, RequestFailure, UnsentRequest
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.wire.values import Address

from tests.client.fake_broker import FakeBroker, FakeNet
from tests.client.test_broker_connection import echo, query
from tests.support.small_broker import Broker

BOOT, ONE, TWO = Address("boot", 9092), Address("one", 9092), Address("two", 9092)
Clock = trio.testing.MockClock


class Pool:
    """Connections, the brokers that they lead to, and what became of requests."""

    def __init__(self, nursery: trio.Nursery, brokers: dict[Address, Any], **settings: Any) -> None:
        self.net = FakeNet(nursery, brokers)
        self.outcomes: list[tuple[str, Outcome]] = []
        self.pool = BrokerConnections(
            nursery, [BOOT], replace(self.net.settings, **settings), lambda: 0.0, self._on_response
        )
        self.pool.nodes = {1: ONE, 2: TWO}

    def _on_response(self, request: UnsentRequest, outcome: Outcome) -> None:
        self.outcomes.append((request.context, outcome))

    def send(self, name: str, node_id: int = ANY_NODE, lane: Lane = Lane.DATA) -> None:
        self.pool.send(
            UnsentRequest(
                sender=None,  # type: ignore[arg-type]  # unused: the outcome is noted here
                api="Metadata",
                message=query(name),
                versions=(12, 12),
                timeout_s=30,
                node_id=node_id,
                lane=lane,
                context=name,
            )
        )

    async def send_request(self, name: str, node_id: int = ANY_NODE, lane: Lane = Lane.DATA) -> str:
        """Send a request. Return its outcome in a word."""
        self.outcomes.clear()
        self.send(name, node_id, lane)
        while not self.outcomes:  # noqa: ASYNC110 - of a callback
            await trio.sleep(0.01)
        return self.words()[0]

    def words(self) -> list[str]:
        return [
            got.kind.value if isinstance(got, RequestFailure) else got.cluster_id  # type: ignore[attr-defined]
            for _, got in self.outcomes
        ]


@asynccontextmanager
async def pool(brokers: dict[Address, Any], **settings: Any) -> AsyncIterator[Pool]:
    async with trio.open_nursery() as nursery:
        yield Pool(nursery, brokers, **settings)
        nursery.cancel_scope.cancel()


async def test_each_lane_of_a_node_has_its_own_connection(autojump_clock: Clock) -> None:
    """A fetch of many bytes does not delay a heartbeat."""
    broker = FakeBroker(echo)
    async with pool({ONE: broker}) as world:
        for lane in Lane:
            for _ in range(2):
                assert await world.send_request("a", 1, lane) == "a"
        assert broker.connections == len(Lane)
        assert {(node, lane) for node, lane, _ in world.pool.open_connections()} == {(1, lane) for lane in Lane}


@asynccontextmanager
async def expiring(mechanism: str) -> AsyncIterator[tuple[Pool, Broker, list[str]]]:
    """Connect to a broker whose sessions live for 10 s. Yield the passwords as well, of which the first is used."""
    broker, passwords = Broker(mechanism=mechanism), ["s3cret"]
    broker.lifetime_ms = 10_000
    identity = Identity(mechanism=mechanism, username="proxy", password=lambda: passwords[0])
    async with pool({ONE: broker}, identity=identity) as world:
        assert await world.send_request("a", 1) == "c"
        yield world, broker, passwords


async def test_requests_wait_for_the_connection_and_go_out_in_their_order(autojump_clock: Clock) -> None:
    broker = FakeBroker(echo)
    async with pool({ONE: broker}) as world:
        for name in ("a", "b", "c"):
            world.send(name, 1)
        await trio.sleep(1)
        assert world.words() == ["a", "b", "c"]
        assert (broker.connections, len(world.net.dialled)) == (1, 1)


async def test_a_node_that_is_not_there_fails_all_that_waits_and_is_dialled_after_a_pause(
    autojump_clock: Clock,
) -> None:
    async with pool({}) as world:
        for name in ("a", "b"):
            world.send(name, 1)
        await trio.sleep(0.01)
        times = []
        for _ in range(8):
            began = trio.current_time()
            assert await world.send_request("c", 1) == "disconnected"
            times.append(trio.current_time() - began)
        assert times[0] < 0.2
        assert 0.9 < times[-1] < 1.2, "reconnect.backoff.max.ms"
        assert "one:9092: Connection refused" in world.pool.troubles[1]


async def test_any_node_is_one_that_is_connected_else_known_else_the_bootstrap_servers(autojump_clock: Clock) -> None:
    boot, one, two = (FakeBroker(echo) for _ in range(3))
    async with pool({BOOT: boot, ONE: one, TWO: two}) as world:
        assert await world.send_request("a") == "a"
        assert (one.connections, two.connections, boot.connections) == (1, 0, 0)
        assert await world.send_request("b") == "b"
        assert one.connections == 1
        del world.net.brokers[ONE]
        one.cut()
        await trio.sleep(0.1)
        assert await world.send_request("c", 1) == "disconnected"
        assert await world.send_request("d") == "d"
        assert two.connections == 1
        del world.net.brokers[TWO]
        two.cut()
        await trio.sleep(0.1)
        assert await world.send_request("e", 2) == "disconnected"
        assert await world.send_request("f") == "f"
        assert boot.connections == 1, "KIP-1102: no known node can be reached"


async def test_a_node_that_has_moved_is_dialled_where_it_is_now(autojump_clock: Clock) -> None:
    one, two = FakeBroker(echo), FakeBroker(echo)
    async with pool({ONE: one, TWO: two}) as world:
        assert await world.send_request("a", 1) == "a"
        world.pool.nodes = {1: TWO}
        assert await world.send_request("b", 1) == "b"
        assert two.connections == 1
        assert await world.send_request("c", 7) == "disconnected"
        assert "the address of node 7 is unknown" in str(world.outcomes[0][1])


async def test_a_connection_that_breaks_is_made_again(autojump_clock: Clock) -> None:
    broker = FakeBroker(echo)
    async with pool({ONE: broker}) as world:
        assert await world.send_request("a", 1) == "a"
        broker.stalled = True
        world.send("b", 1)
        await trio.sleep(1)
        broker.cut()
        await trio.sleep(1)
        assert world.words()[-1] == "disconnected"
        broker.stalled = False
        assert await world.send_request("c", 1) == "c"
        assert world.pool.troubles == {}


async def test_a_connection_that_is_closed_before_its_first_response_is_made_again(autojump_clock: Clock) -> None:
    """A tunnel that ends, or a program that breaks connections, may close a dialled connection."""

    async def dial(host: str, port: int) -> trio.abc.Stream:
        stream = await world.net(host, port)
        if len(world.net.dialled) == 1:
            await trio.aclose_forcefully(stream)
        return stream

    async with pool({ONE: FakeBroker(echo)}, connect=dial) as world:
        assert await world.send_request("a", 1) == "disconnected"
        assert await world.send_request("b", 1) == "b"
        assert world.pool.troubles == {}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_session_that_ends_is_renewed_on_its_connection_before_it_does(
    mechanism: str, autojump_clock: Clock
) -> None:
    """KIP-368: what a broker keeps by connection, a share session for one, continues."""
    async with expiring(mechanism) as (world, broker, _):
        await trio.sleep(7.5)
        assert await world.send_request("a", 1) == "c"
        assert (broker.connections, broker.handshakes) == (1, 1)
        for renewed in (2, 3):
            await trio.sleep(8.1)
            assert await world.send_request("a", 1) == "c"
            assert (broker.connections, broker.handshakes) == (1, renewed)


async def test_requests_during_the_renewal_of_a_session_are_sent_after_it_in_order(autojump_clock: Clock) -> None:
    """A broker accepts nothing else meanwhile; earlier requests get their responses before."""
    async with expiring("SCRAM-SHA-512") as (world, broker, _):
        await trio.sleep(7.9)
        world.outcomes.clear()
        world.send("before", 1)
        await trio.sleep(0.2)
        for name in ("first", "second"):
            world.send(name, 1)
        await trio.testing.wait_all_tasks_blocked()
        world.send("third", 1)
        await trio.sleep(1)
        assert [name for name, _ in world.outcomes] == ["before", "first", "second", "third"]
        assert world.words() == ["c"] * 4
        assert (broker.connections, broker.handshakes) == (1, 2)


async def test_a_session_that_may_not_be_renewed_ends_with_its_connection(autojump_clock: Clock) -> None:
    async with expiring("PLAIN") as (world, broker, passwords):
        passwords[:] = ["wrong"]
        await trio.sleep(8.1)
        assert await world.send_request("a", 1) == "authentication failed"
        assert "refuses 'proxy'" in str(world.outcomes)
        passwords[:] = ["s3cret"]
        assert await world.send_request("a", 1) == "c"
        assert broker.connections == 2


async def test_a_connection_that_ends_while_its_session_is_renewed_fails_what_waits(autojump_clock: Clock) -> None:
    async with expiring("PLAIN") as (world, broker, _):
        broker.silent = True
        await trio.sleep(8.1)
        assert await world.send_request("a", 1) == "disconnected"
        broker.silent = False
        assert await world.send_request("a", 1) == "c"
        assert broker.connections == 2


async def test_requests_held_back_are_bounded(autojump_clock: Clock) -> None:
    async with expiring("PLAIN") as (world, broker, _):
        broker.silent = True
        await trio.sleep(8.1)
        world.outcomes.clear()
        for _ in range(broker_connection.WAITING_MAX + 1):
            world.send("a", 1)
        assert world.words() == ["disconnected"] * 2
        assert "wait already" in str(world.outcomes)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_refused_identity_is_reported_as_such(mechanism: str, autojump_clock: Clock) -> None:
    async with pool(
        {ONE: Broker(mechanism=mechanism)},
        identity=Identity(mechanism=mechanism, username="proxy", password=lambda: "s3cret"),
    ) as world:
        assert await world.send_request("a", 1) == "c"
    async with pool(
        {ONE: Broker(mechanism=mechanism)},
        identity=Identity(mechanism=mechanism, username="proxy", password=lambda: "wrong"),
    ) as world:
        assert await world.send_request("a", 1) == "authentication failed"


async def test_a_broker_that_wants_an_identity_is_hinted_at_and_not_hammered(autojump_clock: Clock) -> None:
    broker = Broker(mechanism="PLAIN")
    async with pool({ONE: broker}) as world:
        began = trio.current_time()
        for _ in range(8):
            assert await world.send_request("a", 1) == "disconnected"
        assert trio.current_time() - began > 2
        assert "as brokers do that want SASL" in world.pool.troubles[1]


async def test_requests_that_wait_for_a_connection_are_bounded(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_connections, "UNSENT_MAX", 2)
    async with pool({ONE: FakeBroker(echo)}) as world:
        for name in ("a", "b", "c"):
            world.send(name, 1)
        assert [(name, got.kind) for name, got in world.outcomes if isinstance(got, RequestFailure)] == [
            ("c", FailureKind.DISCONNECTED)
        ]
        await trio.sleep(1)
        assert world.words() == ["disconnected", "a", "b"]


async def test_closing_fails_all_waiters(autojump_clock: Clock) -> None:
    broker = FakeBroker(echo)
    broker.stalled = True
    async with pool({ONE: broker}) as world:
        world.send("a", 1)
        await trio.sleep(1)
        world.send("b", 2)
        world.pool.close("the consumer is closed")
        assert world.words() == ["disconnected", "disconnected"]
        await trio.sleep(1)
        assert len(world.outcomes) == 2


class SecureNet(FakeNet):
    """Brokers that speak TLS, each under the name `one`."""

    def __init__(self, nursery: trio.Nursery, brokers: dict[Address, FakeBroker], authority: trustme.CA) -> None:
        super().__init__(nursery, brokers)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("one").configure_cert(self._context)

    async def __call__(self, host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        ours, theirs = trio.testing.memory_stream_pair()
        secured = trio.SSLStream(theirs, self._context, server_side=True, https_compatible=True)
        self._nursery.start_soon(self.brokers[Address(host, port)].serve, secured)
        return ours


async def test_requests_are_pipelined_over_tls_and_names_are_verified(autojump_clock: Clock) -> None:
    authority = trustme.CA()
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    broker = FakeBroker(echo)
    async with pool({}, tls=trusting) as world, trio.open_nursery() as nursery:
        net = SecureNet(nursery, {ONE: broker, TWO: broker}, authority)
        world.pool._settings = replace(net.settings, tls=TlsContext(trusting))
        for name in ("a", "b", "c"):
            world.send(name, 1)
        await trio.sleep(1)
        assert world.words() == ["a", "b", "c"]
        assert await world.send_request("d", 2) == "disconnected"
        assert "certificate is not accepted" in str(world.outcomes[0][1])
        nursery.cancel_scope.cancel()
