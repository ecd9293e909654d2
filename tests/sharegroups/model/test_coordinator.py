"""ShareCoordinator: what is held, whose locks end when, and which settings hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import pytest
from kafka_share_proxy.sharegroups.model.coordinator import (
    READ_BYTES_FIRST,
    READ_BYTES_MIN,
    REST_STEP_S,
    REST_STEPS,
    Share,
    ShareCoordinator,
    ShareKey,
)
from kafka_share_proxy.sharegroups.model.group import Heartbeat, TopicInfo
from kafka_share_proxy.sharegroups.model.partition import ReadRecords, SharePartition
from kafka_share_proxy.sharegroups.model.queue_partition import QueuePartition
from kafka_share_proxy.sharegroups.model.sessions import Session, SessionKey
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits, effective
from kafka_share_proxy.sharegroups.model.snapshot import SNAPSHOT_BYTES_MAX
from kafka_share_proxy.wire.values import TopicIdPartition

TOPIC = b"t" * 16
KEY = ShareKey("g", TOPIC, 0)


@dataclass
class Batch:
    base_offset: int
    last_offset: int


@pytest.fixture
def coordinator() -> ShareCoordinator:
    return ShareCoordinator(BrokerShareLimits())


def load(coordinator, key=KEY, node_id=1, member="m"):
    """A share partition of which the member holds 0-9."""
    share = coordinator.add_share(key, coordinator.new_partition(key, 0), node_id)
    settings = coordinator.settings(key.group_id)
    got = share.partition.acquire(member, ReadRecords(0, [Batch(0, 9)]), 500, 500, False, settings, 0.0)
    assert got.ranges == ((0, 9, 1),)
    return share


def session(node_id=1, member="m", key=KEY):
    return Session(SessionKey(key.group_id, member, node_id), 1, [TopicIdPartition(key.topic_id, key.partition)])


def apply(coordinator, changes):
    for key, transition in changes:
        coordinator.share(key).partition.apply(transition)


def test_session_that_ends_releases_what_its_member_holds(coordinator):
    share = load(coordinator)
    changes = coordinator.release(session())
    assert [(key, transition.changes) for key, transition in changes] == [(KEY, ((0, 9, 0, 1),))]
    apply(coordinator, changes)
    assert share.partition.next_fetch_offset() == 0
    assert coordinator.release(session()) == []


def test_session_at_another_node_touches_nothing(coordinator):
    """A lock belongs to session and node."""
    load(coordinator, node_id=2)
    assert coordinator.release(session(node_id=1)) == []


def test_leader_that_moves_releases_once(coordinator):
    share = load(coordinator)
    assert coordinator.move_leader(KEY, 1) is None
    change = coordinator.move_leader(KEY, 2)
    assert change is not None
    apply(coordinator, [change])
    assert share.node_id == 2
    assert coordinator.move_leader(KEY, 2) is None
    assert coordinator.move_leader(ShareKey("g", TOPIC, 9), 2) is None


def test_locks_end_by_their_deadline(coordinator):
    share = load(coordinator)
    assert coordinator.next_deadline() == coordinator.next_lock_deadline() == 30.0
    assert coordinator.expire(29.9) == []
    ((key, transition),) = coordinator.expire(30.0)
    assert key == KEY
    assert share.partition.next_fetch_offset() == 0
    share.partition.apply(transition)
    assert coordinator.next_deadline() == inf


def test_locks_of_an_unloaded_partition_end_silently(coordinator):
    """Also when the same share partition was loaded anew meanwhile."""
    load(coordinator)
    coordinator.remove_share(KEY)
    coordinator.remove_share(KEY)
    assert coordinator.share(KEY) is None
    coordinator.add_share(KEY, SharePartition(5, key=KEY), 1)
    assert coordinator.expire(31.0) == []


def test_members_leave_when_silent(coordinator):
    group = coordinator.add_group("g")
    assert coordinator.add_group("g") is group
    beat = Heartbeat(member_id="m", member_epoch=0, topics=("t",))
    topics, settings = {"t": TopicInfo(TOPIC, 1)}, coordinator.settings("g")
    group.heartbeat(beat, topics, settings, coordinator.limits, 0.0, coordinator.holds)
    assert coordinator.next_deadline() == 45.0
    coordinator.expire(45.0)
    assert group.members == {}
    assert coordinator.next_deadline() == inf


def test_settings_exist_without_their_group_and_outlive_it(coordinator):
    coordinator.store_settings("g", {"share.record.lock.duration.ms": "20000"})
    assert coordinator.settings("g").lock_duration_s == 20.0
    assert coordinator.settings("h").lock_duration_s == 30.0
    assert coordinator.groups_with_settings() == ("g",)
    coordinator.add_group("g")
    coordinator.remove_group("g")
    assert coordinator.stored_settings("g") == {"share.record.lock.duration.ms": "20000"}
    coordinator.store_settings("g", {})
    assert coordinator.settings("g").lock_duration_s == 30.0
    assert coordinator.groups_with_settings() == ()


def test_removed_group_takes_its_state_along(coordinator):
    group = coordinator.add_group("g")
    load(coordinator)
    other = ShareKey("h", TOPIC, 0)
    load(coordinator, key=other)
    assert set(coordinator.groups_of(TOPIC, 0)) == {"g", "h"}
    assert coordinator.remove_group("g") == (KEY,)
    assert group.dead
    assert coordinator.group("g") is None
    assert dict(coordinator.groups) == {}
    assert set(coordinator.groups_of(TOPIC, 0)) == {"h"}
    assert [key for key, _ in coordinator.shares()] == [other]
    assert coordinator.remove_group("g") == ()


def test_reads_grow_while_they_are_used_up_and_shrink_when_not():
    share = Share(KEY, SharePartition(0), 1)
    assert share.size_read(0, 0.0, 2.0, 1 << 22) == READ_BYTES_FIRST
    share.read_at, share.read_upto = 0.0, 10
    assert share.size_read(10, 1.0, 2.0, 1 << 22) == 2 * READ_BYTES_FIRST
    assert share.size_read(10, 1.0, 2.0, 1 << 19) == 1 << 19
    assert share.size_read(10, 3.0, 2.0, 1 << 22) == 1 << 19
    for _ in range(10):
        share.size_read(5, 3.0, 2.0, 1 << 22)
    assert share.read_bytes == READ_BYTES_MIN


def test_idle_share_partition_rests_and_returns():
    """Unused between two checks: only its snapshot stays; a held one stays loaded."""
    share_coordinator = ShareCoordinator(BrokerShareLimits())
    idle, held = ShareKey("g", b"t" * 16, 0), ShareKey("g", b"t" * 16, 1)
    for key in (idle, held):
        share_coordinator.add_share(key, share_coordinator.new_partition(key, 5, 3), 1)
    read = ReadRecords(5, [Batch(5, 6)])
    share_coordinator.share(held).partition.acquire("m", read, 10, 10, False, share_coordinator.settings("g"), 0.0)
    share_coordinator.rest_idle()
    assert share_coordinator.resting == 0
    share_coordinator.rest_idle()
    share_coordinator.rest_idle()
    assert share_coordinator.resting == 1
    assert set(share_coordinator.keys_of("g")) == {idle, held}
    assert share_coordinator.share(held).partition.locks()
    back = share_coordinator.share(idle)
    assert (back.partition.start_offset, back.partition.state_epoch) == (5, 3)
    assert share_coordinator.resting == 0
    share_coordinator.rest(idle, back.partition.snapshot().encode())
    assert share_coordinator.share(idle) is back, "a loaded one is the truth"


def test_leader_of_a_loaded_share_partition_is_followed():
    """Locks are given at the leader's node; one that was just loaded has none yet."""
    share_coordinator = ShareCoordinator(BrokerShareLimits())
    key = ShareKey("g", b"t" * 16, 0)
    share_coordinator.rest(key, share_coordinator.new_partition(key, 5).snapshot().encode())
    assert share_coordinator.move_leader(key, 4) is None
    assert share_coordinator.share(key).node_id == 4


def test_nothing_is_held_when_another_proxy_owns_the_state():
    share_coordinator = ShareCoordinator(BrokerShareLimits())
    key = ShareKey("g", b"t" * 16, 0)
    group = share_coordinator.add_group("g")
    share_coordinator.store_settings("g", {"share.delivery.count.limit": "7"})
    share_coordinator.add_share(key, share_coordinator.new_partition(key, 5), 1)
    share_coordinator.rest(ShareKey("g", b"u" * 16, 0), b"")
    share_coordinator.clear()
    assert group.dead
    assert (
        dict(share_coordinator.groups),
        share_coordinator.keys_of("g"),
        share_coordinator.resting,
        list(share_coordinator.shares()),
    ) == ({}, (), 0, [])
    assert share_coordinator.settings("g") == share_coordinator.settings("other")
    assert share_coordinator.next_deadline() == float("inf")


def join(group, now, session_timeout_s=45.0, member="m"):
    """A member joins; its session ends by itself later."""
    settings = replace(effective({}, BrokerShareLimits()), session_timeout_s=session_timeout_s)
    beat = Heartbeat(member_id=member, member_epoch=0, topics=("t",))
    limits = BrokerShareLimits()
    holds = ShareCoordinator(limits).holds
    assert not group.heartbeat(beat, {"t": TopicInfo(TOPIC, 1)}, settings, limits, now, holds).error


def test_members_of_all_groups_end_in_the_order_of_their_deadlines():
    """Each group is looked at when its first member may have ended, and only then."""
    share_coordinator = ShareCoordinator(BrokerShareLimits())
    early, late = share_coordinator.add_group("early"), share_coordinator.add_group("late")
    join(late, 0.0, 50.0)
    join(early, 10.0, 20.0)
    join(early, 10.0, 40.0, "n")
    assert share_coordinator.next_deadline() == 30.0
    share_coordinator.expire(30.0)
    assert (set(early.members), set(late.members), share_coordinator.next_deadline()) == ({"n"}, {"m"}, 50.0)
    share_coordinator.expire(50.0)
    assert (early.members, late.members, share_coordinator.next_deadline()) == ({}, {}, inf)


def test_group_that_is_deleted_or_given_away_has_no_deadline():
    """Nor has the one that takes its name a member of its predecessor."""
    share_coordinator = ShareCoordinator(BrokerShareLimits())
    join(share_coordinator.add_group("g"), 0.0)
    share_coordinator.remove_group("g")
    assert share_coordinator.next_deadline() == inf
    join(share_coordinator.add_group("g"), 5.0)
    assert share_coordinator.next_deadline() == 50.0
    share_coordinator.clear()
    assert share_coordinator.next_deadline() == inf


def test_idle_groups_are_not_visited(monkeypatch):
    """However many groups have nothing to do, only the one whose member has ended is touched."""
    share_coordinator = ShareCoordinator(BrokerShareLimits())
    for number in range(500):
        share_coordinator.add_group(f"idle-{number}")
    busy = share_coordinator.add_group("busy")
    join(busy, 0.0)
    for number in range(500):
        group = share_coordinator.group(f"idle-{number}")
        monkeypatch.setattr(group, "members", None)  # would raise
    share_coordinator.expire(45.0)
    assert share_coordinator.next_deadline() == inf
    assert busy.members == {}


def test_idle_share_partitions_come_to_rest_in_small_steps():
    """One iteration marks, the next puts to rest; no step does more than its part, and a used one stays."""
    share_coordinator = ShareCoordinator(BrokerShareLimits())
    assert share_coordinator.rest_some(0.0) == inf, "nothing is loaded"
    keys = [ShareKey("g", TOPIC, number) for number in range(600)]
    for key in keys:
        share_coordinator.add_share(key, share_coordinator.new_partition(key, 5), 1)
    now, most = 0.0, 0
    for _ in range(1000):
        share_coordinator.share(keys[7])
        before = share_coordinator.resting
        now = share_coordinator.rest_some(now)
        most = max(most, share_coordinator.resting - before)
        if share_coordinator.resting == 599:
            break
    assert share_coordinator.resting == 599
    assert share_coordinator.rest_some(now - 0.5) == now, "not before its time"
    assert most <= 600 // REST_STEPS + 1
    assert now <= 3 * REST_STEPS * REST_STEP_S
    assert (
        [key for key, _ in share_coordinator.shares()]
        == [key for key, _ in share_coordinator.loaded_of("g")]
        == [keys[7]]
    )
    assert share_coordinator.topics() == {("g", TOPIC)}


def test_windows_are_as_wide_as_the_state_topic_allows() -> None:
    """For share partitions that are loaded, and for those that will be; a long group id takes its part."""
    coordinator = ShareCoordinator(BrokerShareLimits())
    keys = [ShareKey(group_id, b"t" * 16, 0) for group_id in ("g", "g" * 2000, "late")]
    for key in keys[:2]:
        coordinator.add_share(key, coordinator.new_partition(key, 0), 1)
    coordinator.bound_records(5000)
    coordinator.add_share(keys[2], coordinator.new_partition(keys[2], 0), 1)
    widths = [share.partition.offsets_max for _, share in coordinator.shares()]
    assert widths[0] - widths[2] in (0, 1)
    assert 100 <= widths[1] <= widths[0] - 99
    coordinator.bound_records(1 << 30)
    assert max(share.partition.offsets_max for _, share in coordinator.shares()) * 20 < SNAPSHOT_BYTES_MAX


def test_a_changed_isolation_level_makes_an_ordered_group_learn_its_keys_again() -> None:
    share_coordinator = ShareCoordinator(BrokerShareLimits())
    share_coordinator.store_settings("g", {"share.ordering": "key"})
    key = ShareKey("g", b"t" * 16, 0)
    share = share_coordinator.add_share(key, share_coordinator.new_partition(key, 0), 1)
    assert isinstance(share.partition, QueuePartition)
    before = share.partition.order
    share_coordinator.store_settings("g", {"share.ordering": "key", "share.delivery.count.limit": "4"})
    assert share.partition.order is before
    share_coordinator.store_settings("g", {"share.ordering": "key", "share.isolation.level": "read_committed"})
    assert share.partition.order is not before
