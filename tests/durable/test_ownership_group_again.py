"""How soon a proxy retries after its group's coordinator was away; time and responses are scripted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from kafka_share_proxy.durable import ownership_group, ownership_rules
from kafka_share_proxy.durable.ownership import OwnershipEvents
from kafka_share_proxy.durable.ownership_group import Membership
from kafka_share_proxy.durable.ownership_rules import PARTITIONS
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import UpstreamLost

SESSION_S = 6.0
NAME = "one:1"


class Coordinator:
    """Coordinator that is away at first; then it makes every joining proxy the owner of everything."""

    def __init__(self) -> None:
        self.away = True
        self.asked: list[float] = []
        """Times of the lookups."""
        self.settings = None

    async def send_request(self, key: int, _request: Any) -> Any:
        if key == ApiKey.FIND_COORDINATOR:
            self.asked.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if self.away:
            raise UpstreamLost("nobody is there")
        if key == ApiKey.FIND_COORDINATOR:
            return SimpleNamespace(coordinators=[SimpleNamespace(error_code=0, node_id=1, host="one", port=1)]), None
        table = {"m": ownership_rules.OwnerInTable(NAME, tuple(range(PARTITIONS)))}
        return SimpleNamespace(
            error_code=0, member_id="m", leader="another", skip_assignment=True, generation_id=1,
            assignment=ownership_rules.encode_table(table),
        )  # fmt: skip

    def address_of(self, _node_id: int, advertised: Any) -> Any:
        return advertised

    async def aclose(self) -> None:
        """There is nothing to close."""


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    made = Coordinator()

    @asynccontextmanager
    async def connection(_address: Any, _settings: Any) -> AsyncIterator[Coordinator]:
        yield made

    monkeypatch.setattr(ownership_group, "connection", connection)
    return made


def _member(coordinator: Coordinator) -> Membership:
    return Membership(coordinator, lambda _event, **_context: None, NAME, SESSION_S, trio.current_time)  # type: ignore[arg-type]  # a part of it


async def _run(member: Membership, scope: trio.CancelScope) -> None:
    with scope:
        await member.run(OwnershipEvents())


async def test_it_is_found_at_once_after_a_crash_and_soon_however_long_it_was_away(
    coordinator: Coordinator, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """The lease has ended by then: nothing is served until it responds."""
    for away_s, found_s in ((9.7, ownership_group.RETRY_SOON_S), (60, ownership_group.RETRY_MAX_S)):
        member = _member(coordinator)
        coordinator.away, scope = True, trio.CancelScope()
        nursery.start_soon(_run, member, scope)
        await trio.sleep(away_s)
        coordinator.away, back = False, trio.current_time()
        while not member.is_valid():  # noqa: ASYNC110 - of another task's doing
            await trio.sleep(0.005)
        assert trio.current_time() - back <= found_s + 0.01
        scope.cancel()


async def test_failures_are_forgotten_once_it_has_responded(
    coordinator: Coordinator, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """The next time it is away, it is looked up immediately."""
    member = _member(coordinator)
    nursery.start_soon(member.run, OwnershipEvents())
    await trio.sleep(60)
    coordinator.away = False
    await trio.sleep(60)
    assert member.is_valid()
    before = len(coordinator.asked)
    coordinator.away, gone = True, trio.current_time()
    await trio.sleep(SESSION_S)
    heartbeat = SESSION_S / ownership_group.HEARTBEATS_PER_SESSION
    assert coordinator.asked[before] - gone <= heartbeat + 0.11
