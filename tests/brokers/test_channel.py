"""Requests of the proxy's own, driven by the loop: set up by Trio, then plain calls; a failure ends all of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from kafka_share_proxy.brokers import channel as channels
from kafka_share_proxy.brokers.channel import Channel, open_channel
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings, Identity
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import RemoteProtocolError, UpstreamLost
from kafka_share_proxy.wire.values import Address

from tests.support.small_broker import Broker

METADATA = 3


def run(test: Callable[[Reactor, Broker, Address], Awaitable[None]], **options: Any) -> None:
    """The test as a guest of a reactor, with a broker on a real socket."""
    reactor = Reactor(new_pump)

    async def main() -> None:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                broker = Broker(**options)
                await test(reactor, broker, await broker.listen(nursery))
                nursery.cancel_scope.cancel()

    try:
        reactor.run(main)
    finally:
        reactor.shut()


def nothing(*_: object) -> None: ...


async def response_of(channel: Channel) -> Any:
    """One Metadata, waited for; Return the response, or None if none arrives."""
    arrived, responses = trio.Event(), []

    def done(response: Any) -> None:
        responses.append(response)
        arrived.set()

    channel.send_request(METADATA, 12, registry.message("MetadataRequest")(topics=[]), done)
    await arrived.wait()
    assert len(responses) == 1
    return responses[0]


def test_responses_arrive_in_order() -> None:
    async def test(reactor: Reactor, broker: Broker, address: Address) -> None:
        channel = await open_channel(reactor, address, ClusterClientSettings(), nothing)
        assert channel.versions.ranges[METADATA] == (0, 12)
        assert channel.highest(METADATA, 9) == 9
        assert channel.highest(METADATA, 99) == 12
        with pytest.raises(RemoteProtocolError):
            channel.highest(22, 4)
        responses: list[int] = []
        for number in range(50):
            request = registry.message("MetadataRequest")(topics=[])
            channel.send_request(
                METADATA, 12, request, lambda response, number=number: responses.append((number, response.cluster_id))
            )
        assert channel.waiting == 50
        await response_of(channel)
        assert responses == [(number, "c") for number in range(50)]
        channel.close("done")

    run(test)


def test_prepared_frame_gets_a_correlation_id_and_is_decoded_by_its_caller() -> None:
    async def test(reactor: Reactor, broker: Broker, address: Address) -> None:
        channel = await open_channel(reactor, address, ClusterClientSettings(), nothing)
        frame = frames.request(METADATA, 12, 0, "other", registry.message("MetadataRequest")(topics=[]))
        responses: list[int | None] = []

        def decode(response: bytes) -> tuple[int, int]:
            return frames.decode_response(METADATA, 12, response)[0], len(response)

        for _ in range(3):
            channel.send_frame(frame, decode, responses.append)
        await response_of(channel)
        assert len(responses) == 3
        assert None not in responses
        broker.silent = True
        channel.send_frame(frame, decode, responses.append)
        channel.close("done")
        channel.send_frame(frame, decode, responses.append)
        assert responses[3:] == [None, None]

    run(test)


def test_it_authenticates_first() -> None:
    async def test(reactor: Reactor, broker: Broker, address: Address) -> None:
        identity = Identity(mechanism="SCRAM-SHA-256", username="proxy", password=lambda: "s3cret")
        channel = await open_channel(reactor, address, ClusterClientSettings(identity=identity), nothing)
        assert (await response_of(channel)).cluster_id == "c"
        channel.close("done")

    run(test, mechanism="SCRAM-SHA-256")


def test_waiters_are_notified_that_the_connection_was_cut() -> None:
    async def test(reactor: Reactor, broker: Broker, address: Address) -> None:
        reasons = list[tuple[str, int]]()
        settings = ClusterClientSettings()
        channel = await open_channel(
            reactor, address, settings, lambda _, reason, in_flight: reasons.append((reason, in_flight))
        )
        broker.silent = True
        with trio.move_on_after(0.2):
            await response_of(channel)
        broker.cut()
        assert await response_of(channel) is None
        assert (channel.closed, len(reasons), channel.waiting) == (True, 1, 0)
        assert await response_of(channel) is None, "at once on a closed channel"

    run(test)


def test_silence_and_nonsense_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(reactor: Reactor, broker: Broker, address: Address) -> None:
        monkeypatch.setattr(channels, "RESPONSE_S", 0.2)
        channel = await open_channel(reactor, address, ClusterClientSettings(), nothing)
        broker.silent = True
        assert await response_of(channel) is None
        broker.silent = False
        channel = await open_channel(reactor, address, ClusterClientSettings(), nothing)
        broker.garbage = b"\0\0\0\4\0\0\0\x63"
        assert await response_of(channel) is None
        assert channel.closed

    run(test)


def test_an_unreachable_broker_is_reported() -> None:
    async def test(reactor: Reactor, broker: Broker, address: Address) -> None:
        broker.garbage = b"HTTP/1.1 400\r\n\r\n"
        with pytest.raises(RemoteProtocolError):
            await open_channel(reactor, address, ClusterClientSettings(), nothing)
        with pytest.raises(UpstreamLost):
            await open_channel(reactor, Address("127.0.0.1", 1), ClusterClientSettings(), nothing)

    run(test)
