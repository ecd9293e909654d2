"""Audit events: format of one line, one event a range, told when it is durable, gaps where the queue was full."""

from __future__ import annotations

import json

import pytest

from proxy.sharegroups import group_report
from proxy.sharegroups.audit_events import FIELDS, Audit, lines
from proxy.wire import records
from proxy.wire.errors import ErrorCode
from proxy.wire.key_hash import murmur2
from tests.support.ports import WALL_MS, SlowJournal, World, acquired

ACCEPT, RELEASE, REJECT, RENEW, GAP = 1, 2, 3, 4, 0


@pytest.fixture
def world() -> World:
    made = World(journal=SlowJournal())
    made.configure("g", share_auto_offset_reset="earliest")
    turn_on(made)
    return made


def turn_on(world, queue_events=1000, key_samples_per_s=0.0):
    world.services.audit = world.services.writes.audit = Audit(world.timers, queue_events, key_samples_per_s)


@pytest.fixture
def topic(world):
    made = world.cluster.create("t")
    world.cluster.produce(made, 10)
    return made


def events(world, *kinds):
    """What was told since the last call, of these kinds (all, without any), as it is written."""
    found = lines(world.services.audit.take(10_000), "p1", "c", lambda topic_id: f"topic {topic_id[-1]}")
    told = [json.loads(line) for line in found]
    return [event for event in told if not kinds or event["kind"] in kinds]


def short(event):
    return tuple(event[name] for name in ("first", "last", "attempt", "outcome", "renews", "renew_ms", "member"))


def test_a_delivery_from_acquire_to_settle(world, topic):
    """Every field that README.md names under Audit; bytes are those of the answer."""
    member = world.member()
    answer = member.fetch(topic)
    size = len(answer.responses[0].partitions[0].records)
    world.timers.advance(2)
    member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    common = {"v": 1, "proxy_id": "p1", "cluster": "c", "topic": "topic 1", "partition": 0, "group": "g"}
    fetch, acquire, settle = events(world)
    assert fetch == common | {
        "seq": 1, "ts_ms": WALL_MS, "kind": "fetch", "member": None, "lo": 0, "hi": 2**32,
        "rows_in": 10, "rows_out": 10, "bytes_in": size, "bytes_out": size,
    }  # fmt: skip
    assert acquire == common | {
        "seq": 2, "ts_ms": WALL_MS, "kind": "acquire", "member": "m1", "first": 0, "last": 9, "attempt": 1,
        "bytes": size, "lock_ms": 30000,
    }  # fmt: skip
    assert settle == common | {
        "seq": 3, "ts_ms": WALL_MS + 2000, "kind": "settle", "member": "m1", "first": 0, "last": 9, "attempt": 1,
        "t_acquire_ms": WALL_MS, "outcome": "accept", "renews": 0, "renew_ms": 0,
    }  # fmt: skip


def test_every_outcome(world, topic):
    """One event a range of equal outcome; gaps as well, so that nothing acquired stays open."""
    member = world.member()
    member.fetch(topic)
    member.acknowledge({(topic.topic_id, 0): [(0, 7, [ACCEPT, ACCEPT, RELEASE, REJECT, REJECT, GAP, ACCEPT, ACCEPT])]})
    member.connection.close()
    told = [(event["first"], event["last"], event["outcome"]) for event in events(world, "settle")]
    assert told == [
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
    told = [short(event) for event in events(world, "settle")]
    assert told == [
        (0, 3, 1, "lock_timeout", 0, 0, "m1"),
        (5, 9, 1, "lock_timeout", 0, 0, "m1"),
        (4, 4, 1, "accept", 2, 15000, "m1"),
    ]


def test_a_forced_release_is_a_release(world, topic):
    world.services.coordinator.add_group("g")
    world.member().fetch(topic)
    group_report.release(world.services, "g", "m1")
    assert [short(event)[:4] for event in events(world, "settle")] == [(0, 9, 1, "release")]


def test_told_only_when_it_is_durable(world, topic):
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
    told = sorted((event["first"], event["last"], event["outcome"]) for event in events(world, "settle"))
    assert told == [(0, 4, "lock_timeout"), (5, 9, "lock_timeout")]


def test_a_full_queue_leaves_a_gap_in_seq(world, topic):
    """Dropped events are counted and have used up their numbers."""
    turn_on(world, queue_events=2)
    for number in range(4):
        member = world.member(member_id=f"m{number}")
        member.fetch(topic)
        member.connection.close()
    assert world.services.audit.dropped == world.services.audit.seq - 2
    assert [event["seq"] for event in events(world)] == [1, 2]
    world.member(member_id="late").fetch(topic)
    assert events(world)[0]["seq"] > 3


def test_load_by_partition(world, topic):
    """Rows and bytes handed out, record-milliseconds held; once told they are gone."""
    member = world.member()
    member.fetch(topic)
    world.timers.advance(2)
    member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    size = events(world, "acquire")[0]["bytes"]
    world.timers.advance(58)
    world.services.audit.tell_load()
    (load,) = events(world, "load")
    assert (load["interval_ms"], load["sampled"]) == (60000, 0)
    assert load["buckets"] == {"all": [10, size, 20000]}
    world.services.audit.tell_load()
    assert events(world, "load") == []


def test_load_by_key(world):
    """A sample of keys spreads the load; a null key counts by its offset."""
    turn_on(world, key_samples_per_s=10)
    topic = world.cluster.create("t")
    keys = [b"a", b"a", b"a", None]
    made = [records.Record(key=key, value=b"v", timestamp=WALL_MS) for key in keys]
    log = topic.logs[0]
    log.batches.append((0, 3, records.build_batch(0, made, leader_epoch=5)))
    log.end = 4
    world.member().fetch(topic)
    world.services.audit.tell_load()
    (load,) = events(world, "load")
    by_offset = murmur2((3).to_bytes(8, "big")) >> 20
    assert load["sampled"] == 4
    assert {bucket: values[0] for bucket, values in load["buckets"].items()} == {
        str(murmur2(b"a") >> 20): 3,
        str(by_offset): 1,
    }


def test_every_kind_has_its_fields():
    """The names are those of the contract."""
    assert set(FIELDS) == {"acquire", "settle", "fetch", "load"}


def test_off_is_the_default():
    assert World().services.audit is None
