"""Channels by node: opened when wanted, again when lost, one for each purpose."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import inf
from typing import Any

import pytest
import trio
import trio.testing
from kafka_share_proxy.brokers import channels as links_module
from kafka_share_proxy.brokers.channel import Channel
from kafka_share_proxy.brokers.channels import RETRY_MAX_S, BrokerChannels
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.replaced import SILENT_S
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import UpstreamLost
from kafka_share_proxy.wire.values import Address

from tests.support.small_broker import Broker


def nothing(*_: object, **__: object) -> None: ...


def test_a_link_is_opened_and_opened_again() -> None:
    """`changed` is called when a retry is useful; an unknown broker is tried later."""
    reactor = Reactor(new_pump)
    notes: list[str] = []

    async def main() -> None:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                broker = Broker()
                changed, unreachable = [trio.Event()], list[int]()
                links = BrokerChannels(
                    reactor,
                    ClusterClientSettings(),
                    lambda event, **_: notes.append(event),
                    on_changed=lambda: changed[0].set(),
                    on_unreachable=unreachable.append,
                )
                nursery.start_soon(links.run)

                async def wait() -> None:
                    await changed[0].wait()
                    changed[0] = trio.Event()

                assert links.get(1, "a") is None
                await wait()
                assert links.get(1, "a") is None, "no address is known yet"
                assert unreachable == [1]
                links.addresses = {1: await broker.listen(nursery), 2: Address("127.0.0.1", 1)}
                await wait()
                first = links.get(1, "a")
                assert first is not None
                assert links.get(1, "a") is first
                assert links.get(1, "b") is None
                await wait()
                assert links.get(1, "b") not in (None, first)
                first.close("cut")
                await wait()
                assert links.get(1, "a") is None
                await wait()
                assert links.get(1, "a") not in (None, first)
                assert links.get(2, "a") is None
                await wait()
                assert notes == ["state-link-closed-idle", "state-link-failed"]
                assert unreachable == [1, 2]
                links.close()
                nursery.cancel_scope.cancel()

    try:
        reactor.run(main)
    finally:
        reactor.shut()


def test_a_failure_of_long_ago_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker was away for a while, and becomes leader much later: the first attempt is immediate."""
    reactor = Reactor(new_pump)
    tried: list[float] = []

    async def open_channel(*_: object) -> Channel:
        tried.append(trio.current_time())
        raise UpstreamLost("nobody is there")

    monkeypatch.setattr(links_module, "open_channel", open_channel)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            links = BrokerChannels(
                reactor, ClusterClientSettings(), nothing, on_changed=nothing, on_unreachable=nothing
            )
            nursery.start_soon(links.run)
            links.addresses = {1: Address("127.0.0.1", 1)}
            while len(tried) < 8:
                links.get(1, "a")
                await trio.sleep(0.01)
            gaps = [later - earlier for earlier, later in pairwise(tried)]
            assert gaps == sorted(gaps)
            assert gaps[-1] <= RETRY_MAX_S + 0.02
            await trio.sleep(2 * RETRY_MAX_S)
            expected = trio.current_time()
            links.get(1, "a")
            await trio.sleep(0.01)
            assert tried[-1] == expected
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    reactor.shut()


class Scripted:
    """A channel without a socket."""

    def __init__(self, expires: float) -> None:
        self.expires, self.waiting = expires, 0
        self.on_close: Callable[[Any, str, int], None] = nothing
        self.reasons: list[str] = []

    def close(self, reason: str) -> None:
        self.reasons.append(reason)
        self.on_close(self, reason, self.waiting)


async def scripted(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, expires: float
) -> tuple[BrokerChannels, list[Scripted], list[str]]:
    """Links over scripted channels, the channels in the order in which they were opened, and what was noted."""
    opened, notes = list[Scripted](), list[str]()

    async def open_channel(*arguments: Any) -> Scripted:
        await trio.sleep(0.5)
        opened.append(Scripted(trio.current_time() + expires))
        opened[-1].on_close = arguments[-1]
        return opened[-1]

    monkeypatch.setattr(links_module, "open_channel", open_channel)
    reactor: Any = None  # no socket is opened
    links = BrokerChannels(
        reactor,
        ClusterClientSettings(),
        lambda event, **_: notes.append(event),
        on_changed=nothing,
        on_unreachable=nothing,
    )
    nursery.start_soon(links.run)
    links.addresses = {1: Address("127.0.0.1", 1)}
    return links, opened, notes


async def test_channel_is_dialled_once_however_often_it_is_requested(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    links, opened, _ = await scripted(nursery, monkeypatch, inf)
    for _ in range(20):
        assert links.get(1, "a") is None
        await trio.sleep(0.02)
    await trio.sleep(1)
    assert links.get(1, "a") is opened[0]
    assert len(opened) == 1


async def test_channel_whose_session_ends_is_replaced_once_nothing_waits(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-368: brokers close it at the end of its lifetime; what is on its way is waited for."""
    links, opened, notes = await scripted(nursery, monkeypatch, 10.0)
    links.get(1, "a")
    await trio.sleep(1)
    first = links.get(1, "a")
    assert first is opened[0]
    opened[0].waiting = 1
    await trio.sleep(20)
    assert links.get(1, "a") is first, "an answer is waited for"
    opened[0].waiting = 0
    assert links.get(1, "a") is None
    assert opened[0].reasons == ["the session ends"]
    await trio.sleep(1)
    assert links.get(1, "a") is opened[1]
    assert notes == ["state-link-closed-idle"]


async def test_only_a_channel_with_requests_in_flight_is_reported_as_lost(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers close idle connections (connections.max.idle.ms): that is no trouble."""
    links, opened, notes = await scripted(nursery, monkeypatch, inf)
    for waiting in (0, 2):
        links.get(1, "a")
        await trio.sleep(1)
        opened[-1].waiting = waiting
        opened[-1].close("the broker closed the connection")
    assert notes == ["state-link-closed-idle", "state-link-lost"]


async def test_channel_is_late_that_is_long_in_coming_or_was_refused(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = trio.Event()

    async def open_channel(*_: object) -> Channel:
        await opened.wait()
        raise UpstreamLost("nobody is there")

    links, _, _ = await scripted(nursery, monkeypatch, inf)
    monkeypatch.setattr(links_module, "open_channel", open_channel)
    assert not links.is_late(1, "a"), "nobody asked for it"
    links.get(1, "a")
    await trio.sleep(0.9 * SILENT_S)
    assert not links.is_late(1, "a")
    await trio.sleep(0.2 * SILENT_S)
    assert links.is_late(1, "a")
    opened.set()
    links.get(1, "b")
    await trio.sleep(0.01)
    assert links.is_late(1, "b")


def test_channel_is_late_that_does_not_respond_and_is_given_up() -> None:
    """Waiters for the response are notified; the next request gets a new channel."""
    reactor = Reactor(new_pump)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            broker, changed, responses = Broker(), trio.Event(), list[object]()
            links = BrokerChannels(
                reactor, ClusterClientSettings(), nothing, on_changed=changed.set, on_unreachable=nothing
            )
            nursery.start_soon(links.run)
            links.addresses = {1: await broker.listen(nursery)}
            links.get(1, "a")
            await changed.wait()
            channel = links.get(1, "a")
            assert channel is not None
            assert not links.is_late(1, "a")
            broker.silent = True
            channel.send_request(3, 12, registry.message("MetadataRequest")(topics=[]), responses.append)
            assert not links.is_late(1, "a")
            await trio.sleep(0.15)
            assert links.is_late(1, "a")
            links.give_up(1, "b", "nobody has this")
            links.give_up(1, "a", "another broker has replaced it")
            assert (responses, channel.closed) == ([None], True)
            assert links.get(1, "a") is None
            links.close()
            nursery.cancel_scope.cancel()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(links_module, "SILENT_S", 0.1)
        try:
            reactor.run(main)
        finally:
            reactor.shut()


async def test_all_channels_end_together(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    links, opened, _ = await scripted(nursery, monkeypatch, inf)
    for purpose in ("Append __proxy_share_state", "Append __test_state", "Identify __test_state"):
        links.get(1, purpose)
    await trio.sleep(1)
    links.close()
    assert [channel.reasons for channel in opened] == [["closed here"]] * 3
