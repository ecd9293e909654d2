"""Reports on share groups that no broker offers."""

from __future__ import annotations

import json

import pytest
from kafka_share_proxy.sharegroups import group_report
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import SlowJournal, World, acquired, entries
from tests.support.share_views import all_groups

ACCEPT, RENEW = 1, 4


@pytest.fixture
def world() -> World:
    share_world = World(journal=SlowJournal())
    share_world.configure("g", share_auto_offset_reset="earliest")
    return share_world


@pytest.fixture
def topic(world):
    created_topic = world.cluster.create("t")
    for _ in range(3):
        world.cluster.produce(created_topic, 10)
    return created_topic


def joined(world, name="m1"):
    member = world.member(member_id=name)
    member.heartbeat(0, ["t"])
    return member


def test_who_holds_what_until_when(world, topic):
    """Holders are listed by record; there are more members than partitions, so both have the one there is."""
    first, second = joined(world), joined(world, "m2")
    assert acquired(first.fetch(topic, max_records=10)) == [(0, 9, 1)]
    world.timers.advance(5)
    assert acquired(second.fetch(topic, max_records=10)) == [(10, 19, 1)]
    first.acknowledge({(topic.topic_id, 0): [(3, 3, [RENEW])]}, renew=True)
    view = group_report.group(world.services, "g")
    assert [(lock["first"], lock["last"], lock["member"], lock["renewals"]) for lock in view["locks"]] == [
        (0, 2, "m1", 0),
        (3, 3, "m1", 1),
        (4, 9, "m1", 0),
        (10, 19, "m2", 0),
    ]
    assert [round(lock["ends_in_s"]) for lock in view["locks"]] == [25, 30, 25, 30]
    assert [round(lock["held_s"]) for lock in view["locks"]] == [5, 5, 5, 0]
    assert [(m["member"], m["acquired"], m["renewals_most"], m["assigned"]) for m in view["members"]] == [
        ("m1", 10, 1, {"t": [0]}),
        ("m2", 10, 0, {"t": [0]}),
    ]
    assert json.loads(json.dumps(view, allow_nan=False)) == view


def test_what_the_start_offset_waits_for_and_since_when(world, topic):
    """The time runs from when the offset became the oldest, and starts anew with the next."""
    member = joined(world)
    member.fetch(topic, max_records=10)
    world.timers.advance(4)
    member.acknowledge({(topic.topic_id, 0): [(0, 4, [ACCEPT])]})
    world.timers.advance(7)
    (partition,) = group_report.group(world.services, "g")["partitions"]
    assert (partition["oldest_unsettled"], round(partition["oldest_blocked_s"])) == (5, 7)
    assert (partition["oldest_held_by"], partition["oldest_renewals"]) == ("m1", 0)
    (line,) = all_groups(world)["groups"]
    assert (line["group"], line["members"], line["acquired"], round(line["oldest_blocked_s"])) == ("g", 1, 5, 7)
    member.acknowledge({(topic.topic_id, 0): [(5, 9, [ACCEPT])]})
    (partition,) = group_report.group(world.services, "g")["partitions"]
    assert (partition["oldest_unsettled"], partition["oldest_blocked_s"], partition["oldest_held_by"]) == (None,) * 3
    assert all_groups(world)["groups"][0]["oldest_blocked_s"] is None


def test_released_records_are_delivered_to_others_and_their_holder_gets_an_error(world, topic):
    holder = joined(world)
    holder.fetch(topic, max_records=10)
    assert group_report.release(world.services, "nobody", "m1") is None
    records, written = group_report.release(world.services, "g", "m1")
    assert (records, group_report.refused(written.result())) == (10, [])
    assert group_report.group(world.services, "g")["locks"] == []
    assert acquired(joined(world, "m2").fetch(topic, max_records=10)) == [(0, 9, 2)]
    response = holder.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    assert entries(response)[topic.topic_id, 0].error_code == ErrorCode.INVALID_RECORD_STATE
    assert ("share-locks-released", {"group": "g", "member": "m1", "records": 10}) in world.notes
    assert group_report.release(world.services, "g", "m1")[0] == 0


def test_a_release_that_cannot_be_stored_is_none(world, topic):
    holder = joined(world)
    holder.fetch(topic, max_records=10)
    world.journal.slow = True
    _, written = group_report.release(world.services, "g", "m1")
    world.journal.refuse(ErrorCode.NOT_COORDINATOR)
    assert group_report.refused(written.result()) == ["COORDINATOR_NOT_AVAILABLE"]
    assert group_report.group(world.services, "g")["members"][0]["acquired"] == 10


def test_long_lists_are_cut(world, topic, monkeypatch):
    monkeypatch.setattr(group_report, "LOCKS_MAX", 1)
    monkeypatch.setattr(group_report, "PARTITIONS_MAX", 0)
    member = joined(world)
    member.fetch(topic, max_records=10)
    member.acknowledge({(topic.topic_id, 0): [(3, 3, [RENEW])]}, renew=True)
    view = group_report.group(world.services, "g")
    assert (len(view["locks"]), view["locks_left_out"]) == (1, 2)
    assert (view["partitions"], view["partitions_left_out"]) == ([], 1)


def test_a_lock_that_ended_while_it_was_being_acknowledged_has_no_end(world, topic):
    """Its outcome hangs on the journal alone."""
    member = joined(world)
    member.fetch(topic, max_records=10)
    world.journal.slow = True
    member.send_fetch(acks={(topic.topic_id, 0): [(0, 9, [ACCEPT])]}, wait_ms=0)
    world.timers.advance(31)
    view = group_report.group(world.services, "g")
    assert view["locks"][0]["ends_in_s"] is None
    assert view["partitions"][0]["being_acknowledged"] == 10


def test_an_unknown_group_is_not_there(world):
    assert group_report.group(world.services, "g") is None
    assert all_groups(world) == {"groups": [], "resting_partitions": 0}


def test_many_groups_are_reported_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are served between two steps, and may change what there is."""
    monkeypatch.setattr(group_report, "STEP", 3)
    world = World()
    for number in range(10):
        world.services.coordinator.add_group(f"group-{number}")
    steps = group_report.groups(world.services)
    for count in range(100):  # how many steps it took
        try:
            next(steps)
        except StopIteration as end:
            view = end.value
            break
        world.services.coordinator.add_group(f"later-{count}")
        world.services.coordinator.remove_group(f"group-{count}")
    assert count >= 3
    assert [line["group"] for line in view["groups"]] == [f"group-{number}" for number in range(10)]
