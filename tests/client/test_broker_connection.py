"""One connection: order, versions, timeouts, limits, and every way in which it may end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from kafka_share_proxy.brokers.cluster_connection import open_connection
from kafka_share_proxy.client import broker_connection
from kafka_share_proxy.client.broker_connection import BrokerConnection
from kafka_share_proxy.consumer.requests import FailureKind, Outcome, RequestFailure
from kafka_share_proxy.wire.codec.headers import RequestHeader
from kafka_share_proxy.wire.definitions import registry

from tests.client.fake_broker import HERE, FakeBroker, FakeNet

VERSIONS = (12, 13)


def echo(header: RequestHeader, request: Any) -> Any:
    """Return Metadata whose cluster id is the first requested topic."""
    name = request.topics[0].name if request.topics else "none"
    return registry.message("MetadataResponse")(brokers=[], cluster_id=name, topics=[])


def query(name: str) -> Any:
    message = registry.message("MetadataRequest")
    return message(topics=[message.MetadataRequestTopic(name=name)])


@asynccontextmanager
async def connected(broker: FakeBroker, response_bytes_max: int = 1 << 20) -> AsyncIterator[BrokerConnection]:
    async with trio.open_nursery() as nursery:
        settings = FakeNet(nursery, {HERE: broker}).settings
        opened = BrokerConnection(await open_connection(HERE, settings), settings, response_bytes_max)
        nursery.start_soon(opened.run)
        yield opened
        nursery.cancel_scope.cancel()


class Outcomes:
    """Collects what became of requests."""

    def __init__(self, opened: BrokerConnection) -> None:
        self.all: list[tuple[str, Outcome]] = []
        self._opened = opened

    def send(self, name: str, timeout_s: float = 30.0) -> None:
        self._opened.send("Metadata", query(name), VERSIONS, timeout_s, lambda got: self.all.append((name, got)))

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Return the name of each request with the cluster id of its response, or why it failed."""
        return [
            (name, got.kind.value if isinstance(got, RequestFailure) else got.cluster_id)  # type: ignore[attr-defined]
            for name, got in self.all
        ]


async def test_many_requests_wait_and_get_responses_in_order(autojump_clock: trio.testing.MockClock) -> None:
    broker = FakeBroker(echo)
    broker.stalled = True
    async with connected(broker) as opened:
        outcomes = Outcomes(opened)
        names = [f"t{number}" for number in range(50)]
        for name in names:
            outcomes.send(name)
        await trio.sleep(1)
        assert (opened.waiting, outcomes.all) == (50, [])
        broker.flow()
        await trio.sleep(1)
        assert outcomes.texts == [(name, name) for name in names]
        assert opened.waiting == 0


async def test_no_request_has_the_correlation_id_of_one_before(autojump_clock: trio.testing.MockClock) -> None:
    broker = FakeBroker(echo)
    async with connected(broker) as opened:
        outcomes = Outcomes(opened)
        for name in ("a", "b"):
            outcomes.send(name)
        await trio.sleep(1)
        assert outcomes.texts == [("a", "a"), ("b", "b")]
    assert broker.correlation_ids == [1, 2, 3]  # ApiVersions first


async def test_a_response_in_small_pieces_is_assembled(autojump_clock: trio.testing.MockClock) -> None:
    broker = FakeBroker(echo)
    broker.trickle = 1
    async with connected(broker) as opened:
        outcomes = Outcomes(opened)
        outcomes.send("a", 600)
        outcomes.send("b", 600)
        await trio.sleep(300)
        assert outcomes.texts == [("a", "a"), ("b", "b")]


async def test_a_request_without_a_response_in_time_ends_the_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Responses arrive in order: later requests would be late as well, and their responses would arrive later."""
    broker = FakeBroker(echo)
    broker.stalled = True
    async with connected(broker) as opened:
        outcomes = Outcomes(opened)
        outcomes.send("first", 60)
        outcomes.send("hurry", 5)
        await trio.sleep(4.9)
        assert outcomes.all == []
        await trio.sleep(0.2)
        assert outcomes.texts == [("first", "disconnected"), ("hurry", "timed out")]
        assert "did not respond within 5 s" in str(outcomes.all[1][1])
        assert not opened.is_open
        outcomes.send("later")
        assert outcomes.texts[2:] == [("later", "disconnected")]


async def test_a_connection_cut_within_a_response_fails_all_that_wait(autojump_clock: trio.testing.MockClock) -> None:
    broker = FakeBroker(echo)
    broker.cut_after = 9
    async with connected(broker) as opened:
        outcomes = Outcomes(opened)
        for name in ("a", "b"):
            outcomes.send(name)
        await trio.sleep(1)
        assert outcomes.texts == [("a", "disconnected"), ("b", "disconnected")]
        assert "closed the connection" in opened.trouble


async def test_a_response_to_another_request_ends_the_connection(autojump_clock: trio.testing.MockClock) -> None:
    broker = FakeBroker(echo)
    broker.id_shift = 7
    async with connected(broker) as opened:
        outcomes = Outcomes(opened)
        outcomes.send("a")
        await trio.sleep(1)
        assert outcomes.texts == [("a", "disconnected")]
        assert opened.trouble == "request 9 got a response instead of request 2"


@pytest.mark.parametrize(
    ("raw", "trouble"),
    [
        ((2000).to_bytes(4, "big") + bytes(8), "frame of 2000 bytes is larger than the limit of 1000"),
        (b"\xff\xff\xff\xf0" + bytes(8), "negative frame size -16"),
        ((2).to_bytes(4, "big") + bytes(8), "frame of 2 bytes is too short for a header"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no Kafka frame but HTTP"),
    ],
)
async def test_a_frame_of_an_impossible_size_is_not_gathered(
    raw: bytes, trouble: str, autojump_clock: trio.testing.MockClock
) -> None:
    broker = FakeBroker(echo)
    broker.raw = raw
    async with connected(broker, response_bytes_max=1000) as opened:
        outcomes = Outcomes(opened)
        outcomes.send("a")
        await trio.sleep(1)
        assert outcomes.texts == [("a", "disconnected")]
        assert trouble in opened.trouble


async def test_an_unexpected_response_ends_the_connection(autojump_clock: trio.testing.MockClock) -> None:
    broker = FakeBroker(echo)
    async with connected(broker) as opened:
        outcomes = Outcomes(opened)
        broker.raw = (8).to_bytes(4, "big") + bytes(8) + (8).to_bytes(4, "big") + bytes(8)
        outcomes.send("a")
        await trio.sleep(1)
        assert not opened.is_open


async def test_a_version_is_what_broker_and_caller_have_in_common(autojump_clock: trio.testing.MockClock) -> None:
    requested: list[int] = []

    def respond(header: RequestHeader, request: Any) -> Any:
        requested.append(header.version)
        return echo(header, request)

    broker = FakeBroker(respond)
    broker.ranges = {18: (0, 3), 3: (0, 12)}
    async with connected(broker) as opened:
        outcomes = Outcomes(opened)
        outcomes.send("a")
        opened.send("Metadata", query("b"), (13, 13), 5, lambda got: outcomes.all.append(("b", got)))
        opened.send("Fetch", None, (13, 16), 5, lambda got: outcomes.all.append(("c", got)))
        assert outcomes.texts == [("b", "unsupported version"), ("c", "unsupported version")]
        assert "has Metadata 0 to 12, and 13 to 13 is needed" in str(outcomes.all[0][1])
        assert "does not serve Fetch" in str(outcomes.all[1][1])
        await trio.sleep(1)
        assert requested == [12]
        assert opened.is_open


async def test_requests_that_wait_are_bounded(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_connection, "WAITING_MAX", 2)
    broker = FakeBroker(echo)
    broker.stalled = True
    async with connected(broker) as opened:
        outcomes = Outcomes(opened)
        for name in ("a", "b", "c"):
            outcomes.send(name)
        assert outcomes.texts == [("c", "disconnected")]
        broker.flow()
        await trio.sleep(1)
        assert outcomes.texts == [("c", "disconnected"), ("a", "a"), ("b", "b")]


async def test_a_connection_that_is_replaced_completes_waiting_requests(autojump_clock: trio.testing.MockClock) -> None:
    broker = FakeBroker(echo)
    broker.stalled = True
    async with connected(broker) as opened:
        outcomes = Outcomes(opened)
        outcomes.send("a")
        await trio.sleep(1)
        opened.close_when_idle("replaced")
        assert opened.is_open
        broker.flow()
        await trio.sleep(1)
        assert outcomes.texts == [("a", "a")]
        assert opened.trouble == "replaced"


async def test_cancelling_its_task_fails_all_waiters(autojump_clock: trio.testing.MockClock) -> None:
    broker = FakeBroker(echo)
    broker.stalled = True
    async with connected(broker) as opened:
        outcomes = Outcomes(opened)
        outcomes.send("a")
        await trio.sleep(1)
    assert outcomes.texts == [("a", "disconnected")]
    assert outcomes.all[0][1] == RequestFailure(FailureKind.DISCONNECTED, "Metadata: broker:9092: cancelled")
