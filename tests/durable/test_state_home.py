"""Share groups off where their state cannot be kept: said clearly, while everything else goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest
import trio

from proxy.brokers.own_client import OwnClient
from proxy.brokers.own_connection import OwnSettings
from proxy.durable.gate import ShareGate
from proxy.durable.journal import TopicJournal
from proxy.durable.ownership_group import Membership
from proxy.durable.state_home import ShareHome
from proxy.durable.state_producer import BATCH_BYTES_MAX
from proxy.loop.reactor import Reactor
from proxy.sharegroups.model.coordinator import ShareCoordinator, ShareKey
from proxy.sharegroups.model.settings import BrokerShareLimits
from proxy.sharegroups.model.snapshot import SNAPSHOT_BYTES_MAX
from proxy.wire.errors import ErrorCode
from proxy.wire.values import Address
from tests.support.small_broker import Broker


class Rooms:
    """What the home needs of the services."""

    def __init__(self) -> None:
        self.gate = ShareGate()
        self.coordinator = ShareCoordinator(BrokerShareLimits())


def home_of(reactor: Reactor, address: Address, notes: Callable[..., None], rooms: Rooms) -> ShareHome:
    settings = OwnSettings()

    def client() -> OwnClient:
        return OwnClient([address], settings)

    rooms.gate.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "not loaded")
    journal = TopicJournal(reactor, notes, "proxy:1")
    owner = Membership(client(), notes, "proxy:1", 6.0)
    return ShareHome(rooms, journal, owner, client, settings, reactor, notes)  # type: ignore[arg-type]


def test_without_an_identity_share_groups_are_off_and_the_proxy_is_ready() -> None:
    """Durable groups are refused, what is missing is named, the rest is served (durable/README.md rule 28)."""
    reactor, rooms = Reactor(), Rooms()
    said: list[tuple[str, dict[str, Any]]] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            broker = Broker(mechanism="PLAIN", ranges={3: (0, 12), 10: (0, 6), 17: (0, 1), 18: (0, 4), 36: (0, 2)})
            address = await broker.listen(nursery)
            home = home_of(reactor, address, lambda event, **context: said.append((event, context)), rooms)
            assert home.why_not == "share state is not loaded yet"
            nursery.start_soon(home.run)
            with trio.fail_after(20):
                while not home.off:  # noqa: ASYNC110 - of another task's doing
                    await trio.sleep(0.02)
            assert "upstream.sasl" in home.off
            assert home.why_not == ""
            assert (rooms.gate.is_open, rooms.gate.refusal) == (False, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            assert "share-groups-off" in [event for event, _ in said]
            nursery.cancel_scope.cancel()

    try:
        reactor.run(main)
    finally:
        reactor.shut()


class Topic:
    """As much of the state topic as is asked for its settings."""

    def __init__(self, message_bytes: int) -> None:
        self.message_bytes = AsyncMock(return_value=message_bytes)


@pytest.mark.parametrize(("told", "batch_bytes"), [(1 << 20, BATCH_BYTES_MAX), (20_000, 20_000)])
async def test_sizes_are_those_of_the_topic(told: int, batch_bytes: int) -> None:
    """Of batches, also of writers to come, and of windows."""
    rooms, key, reactor = Rooms(), ShareKey("g", b"t" * 16, 0), Reactor()
    home = home_of(reactor, Address("a", 1), lambda *_, **__: None, rooms)
    share = rooms.coordinator.add_share(key, rooms.coordinator.new_partition(key, 0), 1)
    home.journal.take_over([0])
    await home._learn_sizes(Topic(told))  # type: ignore[arg-type]
    home.journal.take_over([1])
    assert [home.journal._producers[partition].batch_bytes_max for partition in (0, 1)] == [batch_bytes] * 2
    assert share.partition.offsets_max * 20 < min(told, SNAPSHOT_BYTES_MAX)
    reactor.shut()
