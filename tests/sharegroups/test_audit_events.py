"""Audit events: format of one line, one event per range, reported when it is durable, gaps if the queue was full."""

from __future__ import annotations

import pytest
from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.loop.promise import settled
from kafka_share_proxy.sharegroups import audit_events, group_report
from kafka_share_proxy.sharegroups.audit_events import MEMBERS_EVERY_S, ShareAudit
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.model.group import Member
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.key_hash import murmur2, murmur64

from tests.support import audit_lines
from tests.support.far import FarWorld
from tests.support.manual_timers import WALL_MS
from tests.support.ports import SlowJournal, World, acquired

ACCEPT, RELEASE, REJECT, RENEW, GAP = 1, 2, 3, 4, 0


@pytest.fixture
def world() -> World:
    share_world = World(journal=SlowJournal())
    share_world.configure("g", share_auto_offset_reset="earliest")
    turn_on(share_world)
    return share_world


def turn_on(world, queue_events=1000, key_samples_per_s=0.0):
    world.audit = Audit(world.timers, queue_events, key_samples_per_s)
    reported = ShareAudit(world.audit, world.timers, world.services.coordinator)
    world.services.audit = world.services.writes.audit = reported


@pytest.fixture
def topic(world):
    created_topic = world.cluster.create("t")
    world.cluster.produce(created_topic, 10)
    return created_topic


def events(world, *kinds):
    """Return the events since the last call, of these kinds (all, without any), as written."""
    world.audit.fetches.report()
    log_lines = world.audit.log.take(10_000, "p1", "c", lambda topic_id: f"topic {topic_id[-1]}")
    reported = audit_lines.events(log_lines)
    return [event for event in reported if not kinds or event["kind"] in kinds]


def short(event):
    return tuple(event[name] for name in ("first", "last", "attempt", "outcome", "renews", "renew_ms", "member"))


def test_a_delivery_from_acquire_to_settle(world, topic):
    """Every field that README.md names under Audit; bytes are those of the response."""
    member = world.member()
    response = member.fetch(topic)
    size = len(response.responses[0].partitions[0].records)
    world.timers.advance(2)
    member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    common = {"v": 2, "proxy_id": "p1", "cluster": "c", "topic": "topic 1", "partition": 0, "group": "g"}
    acquire, settle, fetch = events(world)
    assert fetch == common | {
        "seq": 3, "ts_ms": WALL_MS + 2000, "kind": "fetch", "member": None, "reader": "share", "view": None,
        "slot": None, "client": None, "lo": 0, "hi": 2**32, "ranges": 1, "requests": 1, "first": 0, "last": 9,
        "rows_in": 10, "rows_out": 10, "bytes_in": size, "bytes_out": size,
    }  # fmt: skip
    assert acquire == common | {
        "seq": 1, "ts_ms": WALL_MS, "kind": "acquire", "member": "m1", "first": 0, "last": 9, "attempt": 1,
        "bytes": size, "lock_ms": 30000, "by": "proxy",
    }  # fmt: skip
    assert settle == common | {
        "seq": 2, "ts_ms": WALL_MS + 2000, "kind": "settle", "member": "m1", "first": 0, "last": 9, "attempt": 1,
        "t_acquire_ms": WALL_MS, "outcome": "accept", "renews": 0, "renew_ms": 0,
        "start_offset": 0, "by": "proxy",
    }  # fmt: skip


def test_every_outcome(world, topic):
    """One event a range of equal outcome; gaps as well, so that nothing acquired stays open."""
    member = world.member()
    member.fetch(topic)
    member.acknowledge({(topic.topic_id, 0): [(0, 7, [ACCEPT, ACCEPT, RELEASE, REJECT, REJECT, GAP, ACCEPT, ACCEPT])]})
    member.connection.close()
    reported = [(event["first"], event["last"], event["outcome"]) for event in events(world, "settle")]
    assert reported == [
        (0, 1, "accept"),
        (2, 2, "release"),
        (3, 4, "reject"),
        (5, 5, "gap"),
        (6, 7, "accept"),
        (8, 9, "session_close"),
    ]


def test_a_lock_that_ends(world, topic):
    member = world.member()
    member.fetch(topic)
    world.timers.advance(31)
    assert [short(event) for event in events(world, "settle")] == [(0, 9, 1, "lock_timeout", 0, 0, "m1")]
    assert acquired(member.fetch(topic)) == [(0, 9, 2)]
    assert [event["attempt"] for event in events(world, "acquire")] == [2]


def test_renewals_and_the_time_they_took(world, topic):
    """Counted per record; the time is what went beyond the first lock."""
    member = world.member()
    member.fetch(topic)
    for _ in range(2):
        world.timers.advance(20)
        member.acknowledge({(topic.topic_id, 0): [(4, 4, [RENEW])]}, renew=True)
    world.timers.advance(5)
    member.acknowledge({(topic.topic_id, 0): [(4, 4, [ACCEPT])]})
    reported = [short(event) for event in events(world, "settle")]
    assert reported == [
        (0, 3, 1, "lock_timeout", 0, 0, "m1"),
        (5, 9, 1, "lock_timeout", 0, 0, "m1"),
        (4, 4, 1, "accept", 2, 15000, "m1"),
    ]


def test_a_forced_release_is_reported_separately(world, topic):
    """Once as what an administrator did, and as the end of each delivery."""
    world.services.coordinator.add_group("g")
    world.member().fetch(topic)
    group_report.release(world.services, "g", "m1")
    reported = events(world, "settle", "forced_release")
    assert [event["kind"] for event in reported] == ["forced_release", "settle"]
    assert (reported[0]["group"], reported[0]["member"], reported[0]["records"], reported[0]["ranges"]) == (
        "g",
        "m1",
        10,
        1,
    )
    assert short(reported[1])[:4] == (0, 9, 1, "forced_release")


@pytest.mark.parametrize("kind", ["handed_over", "taken_back"])
def test_a_group_that_moved_is_recorded(world, topic, kind):
    world.services.audit.moved(kind, "g", 3, 0.0815, 2)
    (reported,) = events(world, kind)
    assert (reported["group"], reported["topic"]) == ("g", None)
    assert (reported["partitions"], reported["held_back_ms"], reported["records"]) == (3, 82, 2)


def test_renewed_locks_that_are_still_held_are_flagged(world, topic):
    """Once per interval, with the start offset that they block; not unrenewed or ended locks."""
    member = world.member()
    member.fetch(topic)
    world.audit.report_load()
    assert events(world, "renew") == []
    world.timers.advance(20)
    member.acknowledge({(topic.topic_id, 0): [(0, 4, [RENEW])]}, renew=True)
    world.timers.advance(20)
    world.audit.report_load()
    (mark,) = events(world, "renew")
    assert short(mark | {"outcome": None}) == (0, 4, 1, None, 1, 10000, "m1")
    assert (mark["t_acquire_ms"], mark["start_offset"]) == (WALL_MS, 0)
    member.acknowledge({(topic.topic_id, 0): [(0, 4, [ACCEPT])]})
    world.audit.report_load()
    assert events(world, "renew") == []


def test_flags_of_renewed_locks_are_bounded(world, topic, monkeypatch):
    """Share partitions that found no room come first the next time."""
    other = world.cluster.create("u")
    world.cluster.produce(other, 10)
    member = world.member()
    for each in (topic, other):
        member.fetch(each)
        member.acknowledge({(each.topic_id, 0): [(0, 9, [RENEW])]}, renew=True)
    monkeypatch.setattr("kafka_share_proxy.sharegroups.audit_events.RENEW_EVENTS_MAX", 1)
    topics_by_report = []
    for _ in range(4):
        world.audit.report_load()
        topics_by_report += [[event["topic"] for event in events(world, "renew")]]
    assert topics_by_report == [["topic 1"], ["topic 2"], ["topic 1"], ["topic 2"]]


def test_reported_only_when_it_is_durable(world, topic):
    """A refused acknowledgement settles nothing, unless its lock has ended meanwhile."""
    member = world.member()
    member.fetch(topic)
    world.journal.slow = True
    member.send_fetch(acks={(topic.topic_id, 0): [(0, 4, [ACCEPT])]}, wait_ms=0)
    assert events(world, "settle") == []
    world.journal.refuse(ErrorCode.NOT_COORDINATOR)
    assert events(world, "settle") == []
    member.send_fetch(acks={(topic.topic_id, 0): [(0, 4, [ACCEPT])]}, wait_ms=0)
    world.timers.advance(31)
    world.journal.refuse(ErrorCode.NOT_COORDINATOR)
    while world.journal.appends:
        world.journal.confirm()
    reported = sorted((event["first"], event["last"], event["outcome"]) for event in events(world, "settle"))
    assert reported == [(0, 4, "lock_timeout"), (5, 9, "lock_timeout")]


def test_a_full_queue_leaves_a_gap_in_seq(world, topic):
    """Dropped events are counted and have used up their numbers."""
    turn_on(world, queue_events=2)
    for number in range(4):
        member = world.member(member_id=f"m{number}")
        member.fetch(topic)
        member.connection.close()
    assert world.audit.log.dropped == world.audit.log.seq - 2
    lost = world.audit.log.dropped
    assert [event["seq"] for event in events(world)][:2] == [1, 2]
    world.member(member_id="late").fetch(topic)
    assert events(world)[0]["seq"] > 2 + lost


def test_load_by_partition(world, topic):
    """Rows and bytes delivered, record-milliseconds held; reset once reported."""
    member = world.member()
    member.fetch(topic)
    world.timers.advance(2)
    member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    size = events(world, "acquire")[0]["bytes"]
    world.timers.advance(58)
    world.audit.report_load()
    (load,) = events(world, "load")
    assert (load["interval_ms"], load["sampled"], load["buckets"]) == (60000, 0, {})
    assert (load["rows"], load["bytes"], load["hold_ms"]) == (10, size, 20000)
    world.audit.report_load()
    assert events(world, "load") == []


def test_blocked_keys_are_reported_once_an_interval(world):
    """The keys of an ordered group for which most records wait."""
    world.configure("g", share_ordering="key")
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 7, keys=[b"a", b"b", b"a", b"b", b"b", b"c", None])
    member = world.member()
    assert acquired(member.fetch(topic)) == [(0, 1, 1), (5, 6, 1)]
    world.timers.advance(2)
    world.audit.report_load()
    names = ("group", "topic", "partition", "key_hash", "behind", "waiting", "blocked_ms")
    assert [tuple(event[name] for name in names) for event in events(world, "blocked")] == [
        ("g", "topic 1", 0, f"{murmur64(b'b'):016x}", 1, 2, None),
        ("g", "topic 1", 0, f"{murmur64(b'a'):016x}", 0, 1, 2000),
    ]
    member.acknowledge({(topic.topic_id, 0): [(0, 1, [ACCEPT])]})
    assert acquired(member.fetch(topic)) == [(2, 3, 1)]
    member.acknowledge({(topic.topic_id, 0): [(2, 3, [ACCEPT])]})
    world.audit.report_load()
    assert events(world, "blocked") == []


def test_blocked_keys_of_the_most_blocked_partitions_are_reported(world, monkeypatch):
    monkeypatch.setattr(audit_events, "BLOCKED_PARTITIONS_MAX", 1)
    world.configure("g", share_ordering="key")
    topic = world.cluster.create("t", [1, 1])
    world.cluster.produce(topic, 2, 0, keys=[b"a"] * 2)
    world.cluster.produce(topic, 3, 1, keys=[b"a"] * 3)
    world.member().fetch((topic, 0), (topic, 1), max_records=10)
    world.audit.report_load()
    assert [(event["partition"], event["waiting"]) for event in events(world, "blocked")] == [(1, 2)]


def test_load_by_key(world):
    """A sample of keys in addition to the totals; a null key counts by its offset, and is no hot key."""
    turn_on(world, key_samples_per_s=10)
    topic = world.cluster.create("t")
    keys = [b"a", b"a", b"a", None]
    batch_records = [records.Record(key=key, value=b"v", timestamp=WALL_MS) for key in keys]
    log = topic.logs[0]
    log.batches.append((0, 3, records.build_batch(0, batch_records, leader_epoch=5)))
    log.end = 4
    world.member().fetch(topic)
    world.audit.report_load()
    load, hot = events(world, "load", "hot_keys")
    by_offset = murmur2((3).to_bytes(8, "big")) >> 20
    assert (load["sampled"], load["sampled_bytes"], load["null_keys"]) == (4, 7, 1)
    assert load["buckets"] == {str(murmur2(b"a") >> 20): [3, 6], str(by_offset): [1, 1]}
    assert (hot["sampled"], hot["null_keys"], hot["error"], hot["keys"]) == (4, 1, 0, [[murmur2(b"a"), 3]])


def test_altered_and_deleted_offsets_are_reported_when_they_are_stored(world, topic):
    """With the start offset before, and from where the group continues; null where there is none."""
    member = world.member()
    member.fetch(topic)
    member.acknowledge({(topic.topic_id, 0): [(0, 3, [ACCEPT])]})
    member.connection.close()
    world.services.coordinator.add_group("g")
    alter = registry.message("AlterShareGroupOffsetsRequest")
    delete = registry.message("DeleteShareGroupOffsetsRequest")

    def start_at(offset):
        part = alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
        expected = alter.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[part])
        return world.send(world.connect(), 91, 0, alter(group_id="g", topics=[expected]))

    start_at(7)
    lost = delete(group_id="g", topics=[delete.DeleteShareGroupOffsetsRequestTopic(topic_name="t")])
    world.send(world.connect(), 92, 0, lost)
    world.journal.slow = True
    start_at(5)
    reported = [(e["request"], e["start_offset"], e["previous"], e["group"]) for e in events(world, "offsets_altered")]
    assert reported == [("AlterShareGroupOffsets", 7, 4, "g"), ("DeleteShareGroupOffsets", None, 7, "g")]
    world.journal.confirm()
    (late,) = events(world, "offsets_altered")
    assert (late["start_offset"], late["previous"]) == (5, None)


def test_offsets_that_are_not_stored_are_not_altered(world, topic):
    world.member().fetch(topic)
    key = ShareKey("g", topic.topic_id, 0)
    replacing = world.services.audit.replacing("AlterShareGroupOffsets", {key: 7})
    replacing.follow(settled({key: ErrorCode.NOT_COORDINATOR}))
    assert events(world, "offsets_altered") == []


def test_keys_are_seen_where_the_bytes_are():
    """The client's proxy of a fleet counts keys; the owner of the group reports the deliveries."""
    world = FarWorld()
    turn_on(world)
    edge = Audit(world.timers, 1000, 10.0)
    world.edge.audit = ShareAudit(edge, world.timers, world.edge.coordinator)
    world.configure("g", share_auto_offset_reset="earliest")
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    assert acquired(world.member().fetch(topic)) == [(0, 9, 1)]
    world.audit.report_load()
    edge.report_load()
    (owners,) = events(world, "load")
    log_events = audit_lines.waiting(edge.log, "p2")
    assert (owners["rows"], owners["sampled"]) == (10, 0)
    assert [(event["kind"], event["sampled"]) for event in log_events] == [("load", 10), ("hot_keys", 10)]
    assert (log_events[0]["rows"], log_events[0]["topic"], log_events[0]["partition"]) == (0, topic.topic_id.hex(), 0)


def test_off_is_the_default():
    assert World().services.audit is None


def test_who_a_member_is_is_reported_once(world, topic):
    """Although it has left when the interval ends; after an hour it is reported again."""
    beats = world.services.coordinator.add_group("g").members
    beats["m1"] = Member("m1", client_id="app", client_host="10.0.0.7")
    world.member().fetch(topic)
    beats.clear()
    for _ in range(2):
        world.audit.report_load()
    (reported,) = events(world, "member")
    identity = tuple(reported[name] for name in ("group", "member", "topic", "client", "host"))
    assert identity == ("g", "m1", None, "app", "10.0.0.7")
    world.timers.advance(MEMBERS_EVERY_S)
    world.audit.report_load()
    assert events(world, "member") == []
