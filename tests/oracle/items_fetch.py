"""Items 3-40: ShareFetch and ShareAcknowledge."""

from __future__ import annotations

import threading
import time

from kafka_share_proxy.wire.errors import ErrorCode

from tests.oracle.items import item
from tests.support.raw import until
from tests.support.worlds import ACCEPT, BEFORE_LOCK_S, GAP, REJECT, RELEASE, World


@item(3)
def first_fetch(w: World) -> None:
    """Ten records come with the first delivery, and their bytes with them."""
    t = w.topic()
    w.raw.produce(t, 10)
    response = w.member(w.group(), topics=[t]).take(t)
    assert response.acquired(t) == [(0, 9, 1)]
    assert response.plain["responses"][0]["partitions"][0]["records"] == [(0, 9, 10)]
    assert response.lock_ms == 30_000


@item(4)
def three_partitions(w: World) -> None:
    """Each partition of one node gives its own records."""
    t = w.topic(partitions=3)
    for index in range(3):
        w.raw.produce(t, 10, partition=index)
    got = w.member(w.group(), topics=[t]).take_all(30, t)
    assert got == {("t", index): [(0, 9, 1)] for index in range(3)}


@item(6)
def accept(w: World) -> None:
    """Records accepted by ShareAcknowledge are not delivered again."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    assert a.acknowledge((t, 0, 0, 9, ACCEPT)).code(t) == 0
    w.raw.produce(t, 10)
    assert a.take(t).acquired(t) == [(10, 19, 1)]


@item(7)
def accept_piggybacked(w: World) -> None:
    """Acknowledgements in a fetch get their result together with new records."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    w.raw.produce(t, 10)
    response = a.fetch(t, acks=[(t, 0, 0, 9, ACCEPT)])
    assert (response.code(t), response.ack_code(t)) == (0, 0)
    assert response.acquired(t) == [(10, 19, 1)]


@item(8)
def release(w: World) -> None:
    """Released records are delivered again as the second delivery, before new ones."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    assert a.acknowledge((t, 0, 0, 9, RELEASE)).code(t) == 0
    w.raw.produce(t, 10)
    assert a.take(t).acquired(t) == [(0, 9, 2), (10, 19, 1)]


@item(9)
def release_piggybacked(w: World) -> None:
    """As 8 when the release is part of a fetch: in its response or in the next."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    w.raw.produce(t, 10)
    response = a.fetch(t, acks=[(t, 0, 0, 9, RELEASE)], silent=True)
    assert response.ack_code(t) == 0
    got = response.acquired(t)
    while len(got) < 2:
        got += a.fetch_until(lambda response: bool(response.acquired(t)), t, silent=True).acquired(t)
    assert sorted(got) == [(0, 9, 2), (10, 19, 1)]


@item(10)
def reject(w: World) -> None:
    """Rejected records, alone or with a fetch, are never delivered again."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    assert a.acknowledge((t, 0, 0, 4, REJECT)).code(t) == 0
    w.raw.produce(t, 10)
    response = a.fetch(t, acks=[(t, 0, 5, 9, REJECT)])
    assert response.ack_code(t) == 0
    assert response.acquired(t) == [(10, 19, 1)]


@item(11)
def delivery_limit(w: World) -> None:
    """With a limit of two, records released twice are gone."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(deliveries="2"), topics=[t])
    for count in (1, 2):
        assert a.take(t).acquired(t) == [(0, 9, count)]
        a.acknowledge((t, 0, 0, 9, RELEASE))
    w.raw.produce(t, 10)
    assert a.take(t).acquired(t) == [(10, 19, 1)]


@item(12)
def two_members(w: World) -> None:
    """Records held by one member are not delivered to another of its group."""
    t = w.topic()
    w.raw.produce(t, 10)
    g = w.group()
    a = w.member(g, topics=[t])
    b = w.member(g, "B", topics=[t])
    a.take(t)
    w.raw.produce(t, 10)
    assert b.take(t).acquired(t) == [(10, 19, 1)]


@item(13)
def two_groups(w: World) -> None:
    """Two groups each get everything."""
    t = w.topic()
    w.raw.produce(t, 10)
    for name in ("g", "h"):
        assert w.member(w.group(name), name.upper(), topics=[t]).take(t).acquired(t) == [(0, 9, 1)]


@item(14)
def close_by_fetch(w: World) -> None:
    """Epoch -1 in ShareFetch applies its acknowledgements, ends the session and releases the rest immediately."""
    t = w.topic()
    w.raw.produce(t, 10)
    g = w.group()
    a, b = w.member(g, topics=[t]), w.member(g, "B", topics=[t])
    a.take(t)
    response = a.fetch(epoch=-1, acks=[(t, 0, 0, 4, ACCEPT)])
    assert (response.ack_code(t), response.acquired(t)) == (0, [])
    assert b.take(t).acquired(t) == [(5, 9, 2)]
    assert a.fetch(t, epoch=3).error == 122


@item(15)
def close_by_acknowledge(w: World) -> None:
    """Epoch -1 in ShareAcknowledge does the same."""
    t = w.topic()
    w.raw.produce(t, 10)
    g = w.group()
    a, b = w.member(g, topics=[t]), w.member(g, "B", topics=[t])
    a.take(t)
    assert a.acknowledge((t, 0, 0, 4, ACCEPT), epoch=-1).code(t) == 0
    assert b.take(t).acquired(t) == [(5, 9, 2)]
    assert a.acknowledge(epoch=-1).error == 122


@item(16)
def acknowledgement_at_epoch_0(w: World) -> None:
    """A fetch that opens a session may not acknowledge."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    response = a.fetch(t, epoch=0, acks=[(t, 0, 0, 9, ACCEPT)])
    assert (response.error, response.lock_ms) == (42, 0)


@item(17)
def acknowledge_at_epoch_0(w: World) -> None:
    """ShareAcknowledge cannot open a session."""
    t = w.topic()
    a = w.member(w.group(), topics=[t])
    response = a.acknowledge((t, 0, 0, 9, ACCEPT), epoch=0)
    assert (response.error, response.lock_ms) == (123, 0)


@item(18)
def wrong_epoch(w: World) -> None:
    """An epoch ahead of or before the session is refused by both, and changes nothing."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    for epoch in (a.epoch + 1, a.epoch - 1 or a.epoch + 2):
        assert (a.fetch(t, epoch=epoch).error, a.acknowledge(epoch=epoch).error) == (123, 123)
    assert a.acknowledge((t, 0, 0, 9, ACCEPT)).code(t) == 0


@item(19)
def other_members_session(w: World) -> None:
    """A session belongs to one member id."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    other = w.label("somebody-else", "B")
    assert a.fetch(t, member_id=other).error == 122
    assert a.acknowledge((t, 0, 0, 9, ACCEPT), member_id=other).error == 122


@item(20)
def connection_lost(w: World) -> None:
    """A session ends with its connection: its epoch is unknown on another, epoch 0 opens a new one."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    w.member(a.group, "B", topics=[t]).attend(t)
    a.disconnect()
    until(lambda: a.fetch(t, silent=True, wait_ms=0).error == 122, "the session to end")
    a.epoch = 0
    assert a.take(t).acquired(t) == [(0, 9, 2)]


@item(22)
def forgotten_topic(w: World) -> None:
    """A forgotten partition is no longer fetched."""
    t = w.topic(partitions=2)
    a = w.member(w.group(), topics=[t])
    w.raw.produce(t, 1, partition=0)
    w.raw.produce(t, 1, partition=1)
    a.take_all(2, t)
    a.fetch(forget=[(t, 0)], wait_ms=0)
    w.raw.produce(t, 1, partition=0)
    w.raw.produce(t, 1, partition=1)
    response = a.take()
    assert (response.acquired(t, 0), response.acquired(t, 1)) == ([], [(1, 1, 1)])
    assert a.fetch(wait_ms=200).part(t, 0) is None


@item(23)
def one_record(w: World) -> None:
    """MaxRecords 1 with separate batches gives the first of them alone."""
    t = w.topic()
    w.raw.produce(t, *[1] * 5)
    assert w.member(w.group(), topics=[t]).take(t, records=1, batch=1).acquired(t) == [(0, 0, 1)]


@item(24)
def split_by_batch_size(w: World) -> None:
    """BatchSize 1 splits what was acquired at the batches of the log."""
    t = w.topic()
    w.raw.produce(t, *[1] * 6)
    got = w.member(w.group(), topics=[t]).take(t, records=5, batch=1).acquired(t)
    assert got == [(n, n, 1) for n in range(5)]


@item(26)
def bad_member_id(w: World) -> None:
    """A member id is 1 to 36 characters."""
    t = w.topic()
    a = w.member(w.group(), topics=[t])
    for bad in ("", "m" * 37):
        assert a.fetch(t, epoch=0, member_id=bad).error == 42
        assert a.acknowledge(epoch=1, member_id=bad).error == 42
        a.member_id = bad
        assert a.heartbeat(0, topics=[t.name]).error_code == ErrorCode.INVALID_REQUEST


@item(28)
def reopened_session(w: World) -> None:
    """A new session of the same member leaves its old records locked until the lock ends."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(lock_ms="2000"), topics=[t])
    began = time.monotonic()
    a.take(t)
    a.epoch = 0
    assert a.fetch(t, wait_ms=500).acquired(t) == []
    assert a.take(t).acquired(t) == [(0, 9, 2)]
    assert 1.9 < time.monotonic() - began < BEFORE_LOCK_S


@item(29)
def foreign_acknowledgement(w: World) -> None:
    """A member that does not hold a record cannot acknowledge it, and its holder still can."""
    t = w.topic()
    w.raw.produce(t, 10)
    g = w.group()
    a, b = w.member(g, topics=[t]), w.member(g, "B", topics=[t])
    a.take(t)
    b.fetch(t, wait_ms=0)
    assert b.acknowledge((t, 0, 0, 9, ACCEPT)).code(t) == 121
    assert a.acknowledge((t, 0, 0, 9, ACCEPT)).code(t) == 0


@item(30)
def malformed_batches(w: World) -> None:
    """A malformed batch fails its partition with 42 and no other."""
    t = w.topic(partitions=2)
    a = w.member(w.group(), topics=[t])
    w.raw.produce(t, 10, partition=0)
    w.raw.produce(t, 60, partition=1)
    a.take_all(70, t)
    wrong = (
        [(t, 0, 5, 3, ACCEPT)],
        [(t, 0, 0, 5, ACCEPT), (t, 0, 3, 8, ACCEPT)],
        [(t, 0, 0, 5, ())],
        [(t, 0, 0, 1, (ACCEPT, ACCEPT, ACCEPT))],
        [(t, 0, 0, 1, 5)],
        [(t, 0, 0, 1, -1)],
    )
    for number, batches in enumerate(wrong):
        right = (t, 1, number * 10, number * 10 + 9, ACCEPT)
        response = a.acknowledge(*batches, right)
        assert (response.code(t, 0), response.code(t, 1)) == (42, 0), batches
    assert a.acknowledge((t, 0, 0, 9, ACCEPT)).code(t, 0) == 0


@item(31)
def one_not_acquired(w: World) -> None:
    """One record that is not held fails the whole partition and changes none."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    a.acknowledge((t, 0, 7, 7, RELEASE))
    assert a.acknowledge((t, 0, 0, 9, ACCEPT)).code(t) == 121
    assert a.acknowledge((t, 0, 0, 6, ACCEPT), (t, 0, 8, 9, ACCEPT)).code(t) == 0
    assert a.take(t).acquired(t) == [(7, 7, 2)]


@item(32)
def beyond_the_end(w: World) -> None:
    """An acknowledgement beyond what was ever delivered is invalid."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    assert a.acknowledge((t, 0, 0, 10, ACCEPT)).code(t) == 42
    assert a.acknowledge((t, 0, 20, 30, ACCEPT)).code(t) == 42
    assert a.acknowledge((t, 0, 0, 9, ACCEPT)).code(t) == 0


@item(33)
def repeated_acknowledgement(w: World) -> None:
    """A repeated acknowledgement fails while the start offset is before it, and passes after."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    assert a.acknowledge((t, 0, 5, 9, ACCEPT)).code(t) == 0
    assert a.acknowledge((t, 0, 5, 9, ACCEPT)).code(t) == 121
    assert a.acknowledge((t, 0, 0, 4, ACCEPT)).code(t) == 0
    assert a.acknowledge((t, 0, 0, 4, ACCEPT)).code(t) == 0


@item(34)
def types_by_offset(w: World) -> None:
    """Each offset of a batch takes the type at its place."""
    t = w.topic()
    w.raw.produce(t, 4)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    assert a.acknowledge((t, 0, 0, 3, (ACCEPT, RELEASE, REJECT, GAP))).code(t) == 0
    w.raw.produce(t, 1)
    assert a.take(t).acquired(t) == [(1, 1, 2), (4, 4, 1)]


@item(35)
def long_poll(w: World) -> None:
    """Without records a fetch waits its time; a new record ends the wait immediately."""
    t = w.topic()
    w.raw.produce(t, 1)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    response = a.fetch(t, wait_ms=1000)
    assert list(response.parts()) == []
    assert 0.8 < response.took_s < 8, response.took_s
    late = threading.Timer(0.5, lambda: _produce_one(w, t))
    late.start()
    response = a.fetch(t, wait_ms=10_000)
    late.join()
    assert response.acquired(t) == [(1, 1, 1)]
    assert 0.3 < response.took_s < 9, response.took_s


def _produce_one(w: World, topic) -> None:
    raw = type(w.raw)(",".join(map(str, w.raw.bootstrap)))
    with raw:
        raw.produce(topic, 1)


@item(36)
def nothing_requested(w: World) -> None:
    """MaxRecords 0 or MaxBytes 0 gets an immediate response, with the acknowledgements processed."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    w.raw.produce(t, 1)
    for first, nothing in ((0, {"records": 0}), (5, {"max_bytes": 0})):
        response = a.fetch(t, wait_ms=15_000, acks=[(t, 0, first, first + 4, ACCEPT)], **nothing)
        assert (response.ack_code(t), response.acquired(t)) == (0, [])
        assert response.took_s < 10, response.took_s
    assert a.take(t).acquired(t) == [(10, 10, 1)]


@item(37)
def nothing_new(w: World) -> None:
    """A running session with nothing new has no partition entries."""
    t = w.topic(partitions=2)
    a = w.member(w.group(), topics=[t])
    w.raw.produce(t, 1)
    a.take_all(1, t)
    assert list(a.fetch(wait_ms=100).parts()) == []


@item(38)
def forgotten_with_acknowledgement(w: World) -> None:
    """A partition both named and forgotten has its acknowledgements applied and is not fetched."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    w.raw.produce(t, 1)
    response = a.fetch(t, forget=[(t, 0)], acks=[(t, 0, 0, 9, ACCEPT)], wait_ms=200)
    assert (response.ack_code(t), response.acquired(t)) == (0, [])
    assert a.fetch(wait_ms=200).part(t) is None
    assert a.take(t).acquired(t) == [(10, 10, 1)]


@item(39)
def log_start_moved(w: World) -> None:
    """When records were deleted, delivery continues from the new start of the log."""
    t = w.topic()
    w.raw.produce(t, *[1] * 10)
    g = w.group()
    a = w.member(g, topics=[t])
    assert a.take(t, records=2, batch=2).acquired(t)[0][0] == 0
    w.raw.delete_records(t, 6)
    time.sleep(2.5)  # the proxy keeps batches it has just read for two seconds
    got: list[int] = []
    while 9 not in got:
        part = a.take(t)
        got += [offset for first, last, _ in part.acquired(t) for offset in range(first, last + 1)]
        assert part.code(t) == 0
    assert set(got) <= set(range(2, 10))
    assert {6, 7, 8, 9} <= set(got)


@item(40)
def deleted_topic(w: World) -> None:
    """Acknowledging records of a deleted topic says so; other topics continue in a new session."""
    t, other = w.topic(), w.topic("u")
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t, other])
    a.take(t, other)
    w.raw.delete_topic(t)
    time.sleep(1.5)  # the proxy's view of the cluster may be a second old
    assert a.acknowledge((t, 0, 0, 9, ACCEPT), silent=True).code(t) in (3, 100)
    a.epoch = 0  # the native broker fails every further fetch of a session that holds an unknown topic id
    w.raw.produce(other, 1)
    assert a.take(other).acquired(other) == [(0, 0, 1)]


@item(25)
def unknown_topic_id(w: World) -> None:
    """An unknown topic id fails with 100, in its acknowledgement too; Kafka 4.3.0 fails the whole fetch."""
    t, lost = w.topic(), w.topic("gone")
    w.raw.delete_topic(lost)
    a = w.member(w.group(), topics=[t])
    response = a.fetch(lost, wait_ms=0, silent=True)
    if w.name == "native":
        assert (response.error, list(response.parts())) == (-1, [])
    else:
        assert (response.error, response.code(lost)) == (0, 100)
        response = a.fetch(lost, acks=[(lost, 0, 0, 0, ACCEPT)], wait_ms=0, silent=True)
        assert (response.code(lost), response.ack_code(lost)) == (100, 100)
    a.epoch = 0
    w.raw.produce(t, 1)
    a.take(t)
    assert a.acknowledge((lost, 0, 0, 0, ACCEPT)).code(lost) == 100
