"""Partitions of members that were killed, as their supervisor reports; by a clock that jumps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from kafka_share_proxy.conformance.target.faults import Fault
from kafka_share_proxy.durable.ownership_rules import PARTITIONS
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from trio.testing import MockClock

from tests.durable.proxy_members import ALL, SESSION_S, Member, members
from tests.support.conditions import until
from tests.support.target_brokers import TargetBrokers

NOT_EXECUTED = Fault(api=ApiKey.LEAVE_GROUP, error=ErrorCode.NOT_COORDINATOR)


@pytest.fixture
def brokers(nursery: trio.Nursery) -> TargetBrokers:
    return TargetBrokers(nursery, nodes=3)


async def test_the_last_member_owns_the_partitions_of_a_killed_one_before_the_group_responds(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    """They are taken over while it joins again."""
    a, b = (Member(brokers, name, nursery, fleet=True) for name in "ab")
    await until(lambda: len(a.membership.assigned) == len(b.membership.assigned) == PARTITIONS // 2)
    await b.kill()
    generation, killed = a.membership.generation, trio.current_time()
    assert a.membership.member_ended("b:9")
    assert (a.membership.assigned, a.membership.elsewhere, a.membership.generation) == (ALL, {}, generation)
    assert a.membership.is_valid()
    await until(lambda: a.membership.generation > generation)
    assert trio.current_time() - killed < 0.1, "it does not wait for the session timeout"
    assert (a.membership.assigned, a.membership.peers, a.membership.has_others) == (ALL, frozenset(), True)
    assert members(brokers) == 1
    assert not a.membership.member_ended("b:9")


async def test_a_member_that_joins_meanwhile_gets_nothing_that_the_last_member_has_taken(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    a, b = (Member(brokers, name, nursery, fleet=True) for name in "ab")
    await until(lambda: len(a.membership.assigned) == len(b.membership.assigned) == PARTITIONS // 2)
    a.gives_up = False
    await b.kill()
    c = Member(brokers, "c", nursery, fleet=True)
    await trio.testing.wait_all_tasks_blocked()
    assert a.membership.member_ended("b:9")
    await until(lambda: "c:9" in a.membership.peers)
    await trio.sleep(SESSION_S)
    assert len(a.membership.assigned) == PARTITIONS // 2
    assert c.membership.assigned == frozenset(), "a has not stopped any"


async def test_during_a_rebalance_the_last_member_waits_for_the_group(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    """Its JoinGroup did not list the partitions, so that a member that is new may get them."""
    a, b = (Member(brokers, name, nursery, fleet=True) for name in "ab")
    await until(lambda: len(a.membership.assigned) == len(b.membership.assigned) == PARTITIONS // 2)
    before = a.membership.assigned
    await b.kill()
    a.membership._rejoin_soon()
    await trio.sleep(0.1)
    assert a.membership.member_ended("b:9")
    assert a.membership.assigned == before
    await until(lambda: a.membership.assigned == ALL, 2 * SESSION_S)


async def test_partitions_of_a_killed_member_are_divided_between_several(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    a, b, c = (Member(brokers, name, nursery, fleet=True) for name in "abc")
    a.other_members, b.other_members = [b], [a]
    await until(lambda: len(a.membership.assigned | b.membership.assigned | c.membership.assigned) == PARTITIONS)
    before, killed = a.membership.assigned, trio.current_time()
    await c.kill()
    assert a.membership.member_ended("c:9")
    assert a.membership.assigned == before, "another member may get them"
    await until(lambda: a.membership.assigned | b.membership.assigned == ALL)
    assert trio.current_time() - killed < 0.5


async def test_a_member_that_has_joined_again_under_its_name_is_not_removed(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    """The group knows it by another id than the one that ended."""
    a, b = (Member(brokers, name, nursery, fleet=True) for name in "ab")
    await until(lambda: len(a.membership.assigned) == len(b.membership.assigned) == PARTITIONS // 2)
    await b.kill()
    again = Member(brokers, "b", nursery, fleet=True)
    await until(lambda: again.membership.assigned)
    assert a.membership.member_ended("b:9")
    await trio.sleep(2 * SESSION_S)
    assert again.membership.is_valid()
    assert again.membership.assigned | a.membership.assigned == ALL
    assert not again.membership.assigned & a.membership.assigned


@pytest.mark.parametrize(
    "fault",
    [replace(NOT_EXECUTED, cut_after=0), NOT_EXECUTED],
    ids=["cut", "NOT_COORDINATOR"],
)
async def test_a_killed_member_is_removed_although_the_first_request_fails(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers, fault: Fault
) -> None:
    """Its partitions would have no owner until its session timeout: the coordinator moved, or its connection ended."""
    a, b, c = (Member(brokers, name, nursery, fleet=True) for name in "abc")
    a.other_members, b.other_members = [b], [a]
    await until(lambda: len(a.membership.assigned | b.membership.assigned | c.membership.assigned) == PARTITIONS)
    killed = trio.current_time()
    await c.kill()
    brokers.faults.add(fault)
    assert a.membership.member_ended("c:9")
    await until(lambda: a.membership.assigned | b.membership.assigned == ALL)
    assert trio.current_time() - killed < SESSION_S / 4
    assert members(brokers) == 2
