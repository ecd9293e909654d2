"""Lookup of the coordinator of the proxies, and connections to it; by a clock that jumps."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio
from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.durable.group_coordinator import DIAL_AGAIN_S, GroupCoordinator
from kafka_share_proxy.durable.member_errors import NotReadyYet
from kafka_share_proxy.durable.ownership_rules import GROUP
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from trio.testing import MockClock

from tests.support.target_brokers import TargetBrokers


@pytest.fixture
def brokers(nursery: trio.Nursery) -> TargetBrokers:
    target_brokers = TargetBrokers(nursery, nodes=2)
    target_brokers.target.move_coordinator(CoordinatorKind.GROUP, GROUP, 1)
    return target_brokers


async def test_another_coordinator_is_noticed(brokers: TargetBrokers) -> None:
    coordinator = GroupCoordinator(brokers.client())
    assert [await coordinator.find(), await coordinator.find()] == [True, False]
    brokers.target.move_coordinator(CoordinatorKind.GROUP, GROUP, 2)
    assert await coordinator.find()
    await coordinator.aclose()


@pytest.mark.parametrize(
    ("code", "kind"),
    [(ErrorCode.COORDINATOR_NOT_AVAILABLE, NotReadyYet), (ErrorCode.GROUP_AUTHORIZATION_FAILED, UpstreamLost)],
)
async def test_a_refused_lookup_is_an_error(brokers: TargetBrokers, code: ErrorCode, kind: type[Exception]) -> None:
    brokers.refuse(ApiKey.FIND_COORDINATOR, code)
    coordinator = GroupCoordinator(brokers.client())
    with pytest.raises(UpstreamLost, match=code.name) as caught:
        await coordinator.find()
    assert caught.type is kind
    await coordinator.aclose()


async def test_an_unreachable_coordinator_is_dialled_again_after_a_while(
    brokers: TargetBrokers, autojump_clock: MockClock
) -> None:
    coordinator = GroupCoordinator(brokers.client())
    await coordinator.find()
    brokers.leave(1)
    dialled = len(brokers.dialled)
    for _ in range(3):
        with pytest.raises(UpstreamLost):
            await coordinator.dial(AsyncExitStack())
    assert len(brokers.dialled) == dialled + 1
    await trio.sleep(DIAL_AGAIN_S)
    brokers.come_back()
    async with AsyncExitStack() as stack:
        await coordinator.dial(stack)
    await coordinator.aclose()
