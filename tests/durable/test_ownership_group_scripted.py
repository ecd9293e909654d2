"""Members of the group of proxies at a coordinator in memory, by a clock that jumps.

On real brokers: test_ownership_group.
"""

from __future__ import annotations

import pytest
import trio
from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.conformance.target.faults import Fault
from kafka_share_proxy.durable import group_coordinator, member_changes, ownership_group
from kafka_share_proxy.durable.heartbeat_pace import (
    CHANGING_SESSIONS,
    MOVING_PAUSE_S,
    MOVING_S,
    PER_SESSION_OF_FLEET,
    PER_SESSION_WHILE_CHANGING,
)
from kafka_share_proxy.durable.ownership_rules import GROUP, PARTITIONS
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from trio.testing import MockClock

from tests.durable.proxy_members import ALL, SESSION_S, Member, members
from tests.support.conditions import until
from tests.support.target_brokers import TargetBrokers

DIALS, RESPONSES, REFUSES = "dials", "answers", "refuses"


@pytest.fixture
def brokers(nursery: trio.Nursery) -> TargetBrokers:
    target_brokers = TargetBrokers(nursery, nodes=3)
    move_coordinator(target_brokers, 1)
    return target_brokers


def move_coordinator(brokers: TargetBrokers, node_id: int) -> float:
    """Return the time."""
    brokers.target.move_coordinator(CoordinatorKind.GROUP, GROUP, node_id)
    return trio.current_time()


def lose(brokers: TargetBrokers, how: str) -> None:
    """Lose the first node."""
    if how == REFUSES:
        brokers.leave(1)
        return
    brokers.lost.add(1)
    if how == DIALS:
        brokers.unreachable.add(1)


async def heartbeats(brokers: TargetBrokers, seconds: float) -> int:
    """Return how many are sent in this time."""
    before = brokers.requested.count(ApiKey.HEARTBEAT)
    await trio.sleep(seconds)
    return brokers.requested.count(ApiKey.HEARTBEAT) - before


async def test_partition_is_assigned_to_another_member_once_its_owner_has_stopped(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    """Until then it has no owner: two owners of one number are never assigned."""
    a = Member(brokers, "a", nursery, fleet=True)
    await until(lambda: a.membership.assigned == ALL)
    a.gives_up = False
    b = Member(brokers, "b", nursery, fleet=True)
    await until(lambda: len(a.membership.assigned) == PARTITIONS // 2)
    lost = ALL - a.membership.assigned
    await trio.sleep(3 * SESSION_S)
    assert b.membership.assigned == frozenset()
    assert a.membership.elsewhere == {}
    a.stop(lost)
    await until(lambda: b.membership.assigned == lost)
    assert a.membership.assigned == ALL - lost
    assert (set(a.membership.elsewhere), a.membership.peers) == (set(lost), {"b:9"})


async def test_partitions_of_a_member_that_leaves_are_assigned_to_the_others(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    a, b = (Member(brokers, name, nursery, fleet=True) for name in "ab")
    await until(lambda: len(a.membership.assigned) == len(b.membership.assigned) == PARTITIONS // 2)
    b.scope.cancel()
    await until(lambda: members(brokers) == 1)
    a.membership._rejoin_soon()  # as the coordinator would bring about with 27
    await until(lambda: a.membership.assigned == ALL)
    assert a.membership.peers == frozenset()


async def test_all_partitions_move_once_from_retiring_members_to_their_successors(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    """A successor owns nothing before, so that nothing moves to it, then to the next one, and then back."""
    a, b = (Member(brokers, name, nursery, fleet=True) for name in "ab")
    await until(lambda: len(a.membership.assigned) == len(b.membership.assigned) == PARTITIONS // 2)
    before = a.membership.assigned
    c, d = (Member(brokers, name, nursery, fleet=True, is_successor=True) for name in "cd")
    await until(lambda: len(a.membership.peers) == 3)
    await trio.sleep(SESSION_S)
    assert (a.membership.assigned, b.membership.assigned) == (before, ALL - before)
    assert c.membership.assigned | d.membership.assigned == frozenset()
    a.gives_up = b.gives_up = False
    a.membership.retire()
    b.membership.retire()
    await until(lambda: not a.membership.assigned and not b.membership.assigned)
    assert a.membership.is_valid(), "it serves what it holds until it has stopped"
    a.stop(before)
    b.stop(ALL - before)
    await until(lambda: len(c.membership.assigned) == len(d.membership.assigned) == PARTITIONS // 2)
    assert not a.membership.is_valid()
    assert a.membership.is_member
    a.scope.cancel()
    b.scope.cancel()
    e = Member(brokers, "e", nursery, fleet=True)
    await until(lambda: len(e.membership.assigned) > PARTITIONS // 4)
    assert c.membership.assigned, "it is a successor no longer"


async def test_a_successor_of_a_member_that_crashes_owns_its_share(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    a, b = (Member(brokers, name, nursery, fleet=True) for name in "ab")
    c = Member(brokers, "c", nursery, fleet=True, is_successor=True)
    await until(lambda: len(c.membership.peers) == 2)
    b.scope.cancel()
    await until(lambda: members(brokers) == 2)
    a.membership._rejoin_soon()  # as the coordinator would bring about with 27
    await until(lambda: len(a.membership.assigned) == len(c.membership.assigned) == PARTITIONS // 2)


async def test_a_successor_owns_its_share_after_a_while_if_no_member_retires(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    a = Member(brokers, "a", nursery, fleet=True)
    await until(lambda: a.membership.assigned == ALL)
    b = Member(brokers, "b", nursery, fleet=True, is_successor=True)
    await until(lambda: b.membership.peers)
    joined = trio.current_time()
    await until(lambda: len(b.membership.assigned) == PARTITIONS // 2)
    assert 0 <= trio.current_time() - joined - member_changes.SUCCESSOR_S < 1


async def test_heartbeats_are_frequent_while_the_fleet_changes(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    """Members notice a rebalance by their next heartbeat."""
    a = Member(brokers, "a", nursery, fleet=True)
    await until(lambda: a.membership.assigned == ALL)
    assert await heartbeats(brokers, SESSION_S) == PER_SESSION_WHILE_CHANGING
    await trio.sleep(CHANGING_SESSIONS * SESSION_S)
    assert await heartbeats(brokers, SESSION_S) == PER_SESSION_OF_FLEET
    a.membership.expect_change()
    assert await heartbeats(brokers, SESSION_S) == PER_SESSION_WHILE_CHANGING


async def test_a_member_notified_of_a_rejoin_does_not_wait_for_its_next_heartbeat(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    a, b = (Member(brokers, name, nursery, fleet=True) for name in "ab")
    a.other_members, b.other_members = [b], [a]
    await until(lambda: len(a.membership.assigned) == len(b.membership.assigned) == PARTITIONS // 2)
    await trio.sleep(CHANGING_SESSIONS * SESSION_S)
    began = trio.current_time()
    a.membership.retire()
    await until(lambda: b.membership.assigned == ALL)
    assert trio.current_time() - began < 2 * SESSION_S / PER_SESSION_WHILE_CHANGING


async def test_heartbeats_follow_each_other_while_partitions_move(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    a = Member(brokers, "a", nursery, fleet=True)
    await until(lambda: a.membership.assigned == ALL)
    a.gives_up = False
    Member(brokers, "b", nursery, fleet=True)
    await until(lambda: len(a.membership.assigned) == PARTITIONS // 2)
    expected = 2 * MOVING_S / MOVING_PAUSE_S
    assert expected * 0.9 < await heartbeats(brokers, MOVING_S) <= expected


async def test_silent_coordinator_ends_the_lease_before_the_session(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    """From then on the group may have assigned everything elsewhere; the proxy keeps trying, because the group may
    respond again.
    """
    a = Member(brokers, "a", nursery, fleet=True)
    await until(a.membership.is_valid)
    brokers.lost.update(brokers.target.node_ids)
    since = trio.current_time()
    await until(lambda: not a.membership.is_valid())
    assert trio.current_time() - since <= SESSION_S * (1 - ownership_group.MARGIN_SHARE) + 0.02
    assert a.membership.assigned == ALL
    brokers.come_back()
    await until(a.membership.is_valid)


LEADERS_MOVE_S = 9.5
"""After a broker is lost, with Kafka's broker.session.timeout.ms."""


@pytest.mark.parametrize("how", [RESPONSES, DIALS, REFUSES])
async def test_lease_holds_again_as_soon_as_brokers_name_another_coordinator(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers, how: str
) -> None:
    """The old one refuses, or is unreachable so that a heartbeat or a dial to it hangs."""
    a = Member(brokers, "a", nursery, fleet=False)
    await until(a.membership.is_valid)
    lose(brokers, how)
    since, earlier_queries = trio.current_time(), brokers.requested.count(ApiKey.FIND_COORDINATOR)
    await trio.sleep(LEADERS_MOVE_S)
    assert not a.membership.is_valid()
    assert a.membership.assigned == ALL
    moved_at = move_coordinator(brokers, 2)
    await until(a.membership.is_valid)
    assert trio.current_time() - moved_at <= 2 * group_coordinator.RETRY_SOON_S
    seconds = trio.current_time() - since
    assert (
        brokers.requested.count(ApiKey.FIND_COORDINATOR) - earlier_queries
        <= seconds / group_coordinator.RETRY_SOON_S + 5
    )
    assert brokers.dialled.count(1) <= seconds / group_coordinator.DIAL_AGAIN_S + 5
    brokers.come_back()
    await trio.sleep(SESSION_S)
    assert a.membership.is_valid(), "an old one that comes back does no harm"
    assert brokers.dialled[-1] == 2


async def test_coordinator_that_loads_the_group_is_queried_again_over_the_same_connection(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    """For a moment it says that it is none. To dial it again and again takes longer, on busy machines ten times."""
    a = Member(brokers, "a", nursery, fleet=False)
    await until(a.membership.is_valid)
    lose(brokers, REFUSES)
    await trio.sleep(SESSION_S - 1)  # the session continues at the next coordinator
    moved_at = move_coordinator(brokers, 2)
    brokers.refuse(ApiKey.HEARTBEAT, ErrorCode.NOT_COORDINATOR)
    await trio.sleep(4 * ownership_group.RETRY_MIN_S)
    brokers.faults.clear()
    await until(a.membership.is_valid)
    assert trio.current_time() - moved_at <= group_coordinator.RETRY_SOON_S + 6 * ownership_group.RETRY_MIN_S
    assert brokers.dialled.count(2) == 1
    move_coordinator(brokers, 3)
    await trio.sleep(SESSION_S)
    assert a.membership.is_valid(), "one that is none for good is not asked for ever"
    assert brokers.dialled[-1] == 3


async def test_slow_coordinator_that_is_still_named_is_waited_for(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    a = Member(brokers, "a", nursery, fleet=False)
    await until(a.membership.is_valid)
    brokers.faults.add(Fault(api=ApiKey.HEARTBEAT, delay_ms=3000, count=None))
    dialled = len(brokers.dialled)
    await trio.sleep(10 * SESSION_S)
    assert a.membership.assigned == ALL
    assert len(brokers.dialled) == dialled


async def test_heartbeat_in_flight_when_a_rebalance_ends_does_not_disturb_the_next_ones(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    """A cancelled one would leave its response on the connection, before those of the next requests."""
    a, b = (Member(brokers, name, nursery, fleet=True) for name in "ab")
    await until(lambda: len(a.membership.assigned) == len(b.membership.assigned) == PARTITIONS // 2)
    pause_ms = round(1000 * SESSION_S / PER_SESSION_WHILE_CHANGING)
    brokers.faults.add(Fault(api=ApiKey.HEARTBEAT, delay_ms=pause_ms // 2, count=None))
    brokers.faults.add(Fault(api=ApiKey.JOIN_GROUP, delay_ms=pause_ms + pause_ms // 4, count=None))
    a.membership.retire()
    await until(lambda: b.membership.assigned == ALL)
    await trio.sleep(SESSION_S)
    assert not [note for note in a.notes if note.startswith("proxy-group")]
    assert not a.refused


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
async def test_member_that_the_group_removed_releases_all_partitions_and_joins_again(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers, code: ErrorCode
) -> None:
    a = Member(brokers, "a", nursery, fleet=False)
    await until(a.membership.is_valid)
    brokers.refuse(ApiKey.HEARTBEAT, code)
    await until(lambda: not a.membership.assigned)
    assert {"share-groups-off", "commits-off"} <= set(a.notes)
    assert not a.membership.is_valid()
    brokers.faults.clear()
    await until(a.membership.is_valid)


async def test_second_proxy_of_the_same_name_stops_the_first(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    a = Member(brokers, "a", nursery, fleet=False)
    await until(a.membership.is_valid)
    brokers.refuse(ApiKey.HEARTBEAT, ErrorCode.FENCED_INSTANCE_ID)
    await until(lambda: not a.membership.assigned)
    assert a.membership.trouble == "a second proxy was started with the same name (cluster.name, or its address)"
    assert a.membership._member.instance is None, "it goes on without a name"


async def test_proxy_with_the_same_address_and_another_name_waits_until_the_first_leaves(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    """In an update on Kubernetes both pods have the address of the Service."""
    a = Member(brokers, "service", nursery, fleet=False, name="pod-a")
    await until(a.membership.is_valid)
    b = Member(brokers, "service", nursery, fleet=False, name="pod-b")
    await until(lambda: b.refused)
    await trio.sleep(3 * SESSION_S)
    assert (a.membership.assigned, b.membership.assigned) == (ALL, frozenset())
    ended = trio.current_time()
    a.scope.cancel()
    await until(b.membership.is_valid)
    assert trio.current_time() - ended < SESSION_S, "it left"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "another cluster.mode"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "needs READ on group"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, "cluster.session_timeout_s 6"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "UNKNOWN_SERVER_ERROR"),
        (ErrorCode.NOT_COORDINATOR, "NOT_COORDINATOR"),
    ],
)
async def test_refused_join_is_reported_and_repeated(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers, code: ErrorCode, words: str
) -> None:
    brokers.refuse(ApiKey.JOIN_GROUP, code)
    a = Member(brokers, "a", nursery, fleet=False)
    await until(lambda: a.refused)
    reason, error = a.refused[0]
    assert words in reason
    assert error is not None
    brokers.faults.clear()
    await until(a.membership.is_valid)


async def test_standby_names_the_proxy_that_serves_and_its_features(
    autojump_clock: MockClock, nursery: trio.Nursery, brokers: TargetBrokers
) -> None:
    a = Member(brokers, "a", nursery, fleet=False)
    await until(a.membership.is_valid)
    b = Member(brokers, "b", nursery, fleet=False)
    await until(lambda: b.refused)
    assert b.refused == [
        ("another proxy (a) serves share groups, commits on this cluster (cluster.mode: single)", None)
    ]
    assert {"share-groups-standby", "commits-standby", "another-proxy"} <= set(b.notes)
    assert a.membership.assigned == ALL
