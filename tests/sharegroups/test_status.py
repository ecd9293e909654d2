"""Share groups on the status page."""

from __future__ import annotations

import pytest
from kafka_share_proxy.feature.status import DETAIL_ROWS_MAX, GROUPS_MAX, Alarm, Detail, Link, Seconds, StatusSection
from kafka_share_proxy.sharegroups import status
from kafka_share_proxy.sharegroups.lag import ShareLag
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey

from tests.support.letter_world import COPIES, SETTING, TOPIC, LetterWorld
from tests.support.ports import Member, World
from tests.support.scripted_cluster import Topic
from tests.support.status_sections import lines, part
from tests.support.steps import result_of

ACCEPT, RELEASE, REJECT = 1, 2, 3


@pytest.fixture
def world() -> World:
    created = World()
    created.services.coordinator.add_group("g")
    created.configure("g", share_auto_offset_reset="earliest")
    return created


def member_with(world: World, count: int) -> tuple[Member, Topic]:
    topic = world.cluster.create("t")
    world.cluster.produce(topic, count)
    member = world.member()
    member.heartbeat(0, ["t"])
    member.fetch(topic)
    return member, topic


def section(world: World, *, looked_up: bool = True) -> StatusSection:
    lag = ShareLag(world.services)
    if looked_up:
        assert lag.refresh().done
    return result_of(status.section(world.services, lag))


def detail(world: World, group_id: str = "g") -> Detail:
    return next(each for each in section(world).details if each.title == group_id)


def test_groups_are_shown_with_lag_and_what_members_hold(world: World) -> None:
    member, topic = member_with(world, 10)
    member.acknowledge({(topic.topic_id, 0): [(0, 3, [ACCEPT])]})
    world.timers.advance(2.0)
    (line,) = lines(section(world).tables[0])
    assert line["Group"] == Link("g", ("groups", "g"))
    assert (line["Members"], line["Lag"], line["Acquired"]) == (1, 6, 6)
    assert line["Oldest unsettled for"] == Seconds(2.0)


def test_lag_is_unknown_before_a_look_up_and_the_reason_is_shown_after_a_failed_one(world: World) -> None:
    member_with(world, 10)
    assert lines(section(world, looked_up=False).tables[0])[0]["Lag"] is None
    world.own.refuses = "no route to host"
    failed = section(world)
    assert lines(failed.tables[0])[0]["Lag"] is None
    assert failed.notes == ["Lag is incomplete or old: no route to host"]


def test_locks_show_who_holds_what_and_until_when(world: World) -> None:
    member, topic = member_with(world, 10)
    member.acknowledge({(topic.topic_id, 0): [(0, 3, [ACCEPT])]})
    world.timers.advance(4.0)
    (partition,) = lines(part(detail(world), "Partitions"))
    assert (partition["Partition"], partition["Start offset"], partition["Lag"]) == ("t-0", 4, 6)
    assert partition["Oldest held by"] == "m1"
    (lock,) = lines(part(detail(world), "Locks"))
    assert (lock["Partition"], lock["Offsets"], lock["Held by"]) == ("t-0", "4-9", "m1")
    assert (lock["Ends in"], lock["Held for"]) == (Seconds(26.0), Seconds(4.0))
    (shown,) = lines(part(detail(world), "Members"))
    assert (shown["Member"], shown["Acquired"]) == ("m1", 6)


def test_delayed_and_blocked_records_are_shown(world: World) -> None:
    world.configure("g", share_redelivery_delay_ms="5000", share_ordering="key")
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 4, keys=[b"k"] * 4)
    member = world.member()
    member.fetch(topic)
    assert lines(section(world).tables[0])[0]["Blocked"] == 3
    (blocked,) = lines(part(detail(world), "Keys with blocked records"))
    assert (blocked["Behind offset"], blocked["Waiting"]) == (0, 3)
    member.acknowledge({(topic.topic_id, 0): [(0, 0, [RELEASE])]})
    world.timers.advance(1.0)
    (delayed,) = lines(part(detail(world), "Delayed records"))
    due = delayed["Due in"]
    assert delayed["Offsets"] == "0"
    assert isinstance(due, Seconds)
    assert 2.0 < due.value < 6.0  # the delay of 5 s is spread


def test_dead_letters_that_wait_are_an_alarm_with_the_reason() -> None:
    world = LetterWorld(topics=("other.*",))
    world.services.coordinator.add_group("g")
    world.configure("g", share_auto_offset_reset="earliest", **{SETTING: TOPIC, COPIES: "true"})
    member, topic = member_with(world, 3)
    member.acknowledge({(topic.topic_id, 0): [(0, 0, [REJECT])]})
    world.timers.advance(0.1)
    assert lines(section(world).tables[0])[0]["Dead letters waiting"] == Alarm("1")
    notes = detail(world).notes
    assert notes[0] == f"Dead letters go to {TOPIC}: 0 written since the start of this proxy."
    assert notes[1].startswith("They cannot be written now: ")


def test_long_lists_are_cut_and_counted(world: World) -> None:
    member, topic = member_with(world, 3 * DETAIL_ROWS_MAX)
    every_second = [(offset, offset, [ACCEPT]) for offset in range(0, 3 * DETAIL_ROWS_MAX, 2)]
    member.acknowledge({(topic.topic_id, 0): every_second})
    locks = part(detail(world), "Locks")
    assert (len(locks.rows), locks.left_out) == (DETAIL_ROWS_MAX, DETAIL_ROWS_MAX // 2)
    for number in range(GROUPS_MAX + 4):
        world.services.coordinator.add_group(f"h{number}")
    shown = section(world)
    assert (len(shown.details), shown.details_left_out) == (GROUPS_MAX, 5)
    assert shown.details[0].title == "g"
    assert len(shown.tables[0].rows) == GROUPS_MAX + 5


def test_share_partitions_at_rest_are_shown_and_stay_at_rest(world: World) -> None:
    topic = world.cluster.create("t", leaders=(1,) * (DETAIL_ROWS_MAX + 3))
    world.cluster.produce(topic, 12, 2)
    world.member().heartbeat(0, ["t"])
    coordinator = world.services.coordinator
    for partition in range(DETAIL_ROWS_MAX + 3):
        key = ShareKey("g", topic.topic_id, partition)
        coordinator.rest(key, coordinator.new_partition(key, partition).snapshot().encode())
    partitions = part(detail(world), "Partitions")
    assert (len(partitions.rows), partitions.left_out) == (DETAIL_ROWS_MAX, 3)
    shown = lines(partitions)[2]
    assert (shown["Partition"], shown["Start offset"], shown["Lag"], shown["Settled"]) == ("t-2", 2, 10, 0)
    assert coordinator.resting == DETAIL_ROWS_MAX + 3


def test_a_group_with_very_many_loaded_share_partitions_has_no_details(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "PARTITIONS_MAX", 2)
    coordinator = world.services.coordinator
    for partition in range(3):
        key = ShareKey("g", b"t" * 16, partition)
        coordinator.add_share(key, coordinator.new_partition(key, 0), 1)
    assert detail(world).notes == ("3 share partitions are too many for this page: see groups/g.",)


def test_clients_are_served_between_groups(world: World) -> None:
    for number in range(GROUPS_MAX):
        world.services.coordinator.add_group(f"h{number}")
    assert sum(1 for _ in status.section(world.services, ShareLag(world.services))) >= GROUPS_MAX


def test_where_the_brokers_serve_share_groups_the_section_says_so() -> None:
    assert result_of(status.of_brokers()).notes == ("The brokers serve share groups.",)
