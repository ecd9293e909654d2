"""Items 83 to 135 that show on the wire: members at work, transactions, settings that change, logs that shrink."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Producer

from tests.oracle.items import item
from tests.support.raw import GROUP_RESOURCE, Topic
from tests.support.worlds import ACCEPT, BEFORE_LOCK_S, GAP, RECORD_LIMIT, REJECT, RELEASE, RENEW, Member, World

COMMITTED, ABORTED = True, False


def transact(w: World, t: Topic, *parts: tuple[int, bool]) -> None:
    """Transactions one after the other: (records, how it ends). Each takes one more offset, for its marker."""
    bootstrap = str(w.raw.bootstrap[0])
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"id-{t.name}", "log_level": 2})
    producer.init_transactions(30)
    for count, committed in parts:
        producer.begin_transaction()
        for number in range(count):
            producer.produce(t.name, b"%d" % number, partition=0)
        producer.flush(30)
        (producer.commit_transaction if committed else producer.abort_transaction)(30)


def offsets(acquired: Sequence[tuple[int, int, int]]) -> list[int]:
    return [offset for first, last, _ in acquired for offset in range(first, last + 1)]


def settle(member: Member, topic: Topic, count: int, kind: int = ACCEPT) -> list[int]:
    """Take this many records in any number of fetches, and acknowledge them. Return the offsets in order."""
    got: list[int] = []
    while len(got) < count:
        spans = member.take(topic, silent=True).acquired(topic)
        got += offsets(spans)
        member.acknowledge(*[(topic, 0, first, last, kind) for first, last, _ in spans], silent=True)
    return got


@item(83)
def uncommitted_transactions(w: World) -> None:
    """A group that reads uncommitted records gets aborted ones too, and its client says that markers are gaps."""
    t = w.topic()
    a = w.member(w.group(), topics=[t])
    transact(w, t, (1, COMMITTED), (1, ABORTED))
    w.raw.produce(t, 1, 1)
    acquired_ranges = a.take_all(6, t)
    ((_, spans),) = acquired_ranges.items()
    assert offsets(spans) == [0, 1, 2, 3, 4, 5]
    assert a.acknowledge((t, 0, 0, 5, [ACCEPT, GAP, ACCEPT, GAP, ACCEPT, ACCEPT])).code(t) == 0
    assert not a.fetch(t, wait_ms=300).acquired(t)


@item(85)
def two_of_three(w: World) -> None:
    """Two accepted, the third released: another member gets that one, as the second delivery."""
    t = w.topic()
    w.raw.produce(t, 3)
    g = w.group()
    a, b = w.member(g, topics=[t]), w.member(g, "B", topics=[t])
    assert a.take(t).acquired(t) == [(0, 2, 1)]
    assert a.acknowledge((t, 0, 0, 1, ACCEPT), (t, 0, 2, 2, RELEASE)).code(t) == 0
    assert b.take(t).acquired(t) == [(2, 2, 2)]


@item(91)
def groups_of_their_own(w: World) -> None:
    """Every group sees every record, whatever the other does."""
    t = w.topic()
    w.raw.produce(t, 10)
    first, second = (w.member(w.group(f"g{n}"), f"m{n}", topics=[t]) for n in range(2))
    assert w.note("first", settle(first, t, 10, REJECT)) == list(range(10))
    assert w.note("second", settle(second, t, 10)) == list(range(10))


@item(92)
def one_after_the_other(w: World) -> None:
    """Two members of a group, one after the other: every record is delivered to exactly one of them."""
    t = w.topic()
    g = w.group()
    a, b = w.member(g, topics=[t]), w.member(g, "B", topics=[t])
    w.raw.produce(t, 200)
    assert w.note("first", settle(a, t, 200)) == list(range(200))
    w.raw.produce(t, 200)
    assert w.note("second", settle(b, t, 200)) == list(range(200, 400))


@item(93)
def a_member_that_fails(w: World) -> None:
    """Two groups of two: where a member goes without a word its records go to the other, once more in its group."""
    t = w.topic()
    w.raw.produce(t, 10)
    for number in range(2):
        g = w.group(f"g{number}")
        a, b = w.member(g, f"a{number}", topics=[t]), w.member(g, f"b{number}", topics=[t])
        assert a.take(t, silent=True).acquired(t) == [(0, 9, 1)]
        b.attend(t)
        a.disconnect()
        assert b.take(t).acquired(t) == [(0, 9, 2)]
        assert b.acknowledge((t, 0, 0, 9, ACCEPT)).code(t) == 0


@item(94)
def closed_without_a_word(w: World) -> None:
    """A member's session that ends releases its records immediately, not after the lock."""
    t = w.topic()
    w.raw.produce(t, 5)
    g = w.group()
    a, b = w.member(g, topics=[t]), w.member(g, "B", topics=[t])
    assert a.take(t).acquired(t) == [(0, 4, 1)]
    b.attend(t)
    began = time.monotonic()
    assert a.acknowledge(epoch=-1).error == 0
    assert b.take(t).acquired(t) == [(0, 4, 2)]
    assert time.monotonic() - began < BEFORE_LOCK_S


@item(95)
def a_lock_that_ends(w: World) -> None:
    """Another member gets what was held too long; what the first takes later is its own."""
    t = w.topic()
    w.raw.produce(t, 2)
    g = w.group(lock_ms="3000")
    a, b = w.member(g, topics=[t]), w.member(g, "B", topics=[t])
    assert a.take(t).acquired(t) == [(0, 1, 1)]
    assert b.take(t).acquired(t) == [(0, 1, 2)]
    assert b.acknowledge((t, 0, 0, 1, ACCEPT)).code(t) == 0
    w.raw.produce(t, 2)
    assert a.take(t).acquired(t) == [(2, 3, 1)]
    assert a.acknowledge((t, 0, 2, 3, ACCEPT)).code(t) == 0
    assert a.acknowledge((t, 0, 0, 1, ACCEPT)).code(t) == 0  # settled by another, and before the start offset


@item(99)
def records_deleted_before_the_first_fetch(w: World) -> None:
    """Of ten records five were deleted: five are delivered."""
    t = w.topic()
    w.raw.produce(t, *[1] * 10)
    w.raw.delete_records(t, 5)
    a = w.member(w.group(), topics=[t])
    assert offsets(next(iter(a.take_all(5, t).values()))) == [5, 6, 7, 8, 9]


@item(99, "b")
def the_log_start_passes_what_is_free(w: World) -> None:
    """Records that were released, and then deleted, are gone; the next come from the new start."""
    t = w.topic()
    w.raw.produce(t, *[1] * 10)
    a = w.member(w.group(), topics=[t])
    a.take_all(10, t)
    assert a.acknowledge((t, 0, 0, 9, RELEASE)).code(t) == 0
    w.raw.delete_records(t, 6)
    got: list[int] = []
    while len(got) < 4:
        spans = a.take(t, silent=True).acquired(t)
        got += offsets(spans)
    assert w.note("again", got) == [6, 7, 8, 9]


@item(99, "c")
def the_log_start_passes_everything(w: World) -> None:
    """All free records are deleted: the next produced one is delivered first, and old acknowledgements are ignored."""
    t = w.topic()
    w.raw.produce(t, *[1] * 4)
    a = w.member(w.group(), topics=[t])
    a.take_all(4, t)
    assert a.acknowledge((t, 0, 0, 3, RELEASE)).code(t) == 0
    w.raw.delete_records(t, 4)
    assert not a.fetch(t, wait_ms=300).acquired(t)
    w.raw.produce(t, 2)
    assert a.take(t).acquired(t) == [(4, 5, 1)]
    assert a.acknowledge((t, 0, 0, 3, ACCEPT)).code(t) == 0
    assert a.acknowledge((t, 0, 4, 5, ACCEPT)).code(t) == 0


@item(108)
def settings_before_the_group(w: World) -> None:
    """Settings of an id hold from the group's first member on."""
    t = w.topic()
    w.raw.produce(t, 4)
    g = w.group(lock_ms="2500", deliveries="2")
    response = w.member(g, topics=[t]).take(t)
    assert (response.acquired(t), response.lock_ms) == ([(0, 3, 1)], 2500)


@item(109)
def counts_by_release_and_by_close(w: World) -> None:
    """Given back by a release or by the end of the session: the next delivery is the second either way."""
    for number, ends in enumerate(("release", "close")):
        t = w.topic(f"t{number}")
        w.raw.produce(t, 2)
        g = w.group(f"g{number}")
        a, b = w.member(g, f"a{number}", topics=[t]), w.member(g, f"b{number}", topics=[t])
        assert a.take(t).acquired(t) == [(0, 1, 1)]
        if ends == "release":
            assert a.acknowledge((t, 0, 0, 1, RELEASE)).code(t) == 0
        else:
            assert a.acknowledge(epoch=-1).error == 0
        assert b.take(t).acquired(t) == [(0, 1, 2)]


@item(113)
def committed_records(w: World) -> None:
    """Every fifth of ten transactions is aborted: eight records come to who reads committed ones, ten to others."""
    t = w.topic()
    transact(w, t, *[(1, number % 5 != 4) for number in range(10)])
    aborted = {2 * number for number in (4, 9)}
    for isolation, expected in (("read_committed", 8), ("read_uncommitted", 10)):
        a = w.member(w.group(isolation, isolation=isolation), isolation, topics=[t])
        got: set[int] = set()
        for _ in range(20):
            response = a.fetch(t, wait_ms=300, silent=True)
            spans = response.acquired(t)
            got.update(offsets(spans))
            if spans:
                a.acknowledge(*[(t, 0, first, last, ACCEPT) for first, last, _ in spans], silent=True)
            if len({offset for offset in got if offset % 2 == 0}) == expected:
                break
        records = {offset for offset in got if offset % 2 == 0}
        assert records == set(range(0, 20, 2)) - (aborted if expected == 8 else set())


@item(114)
def released_and_then_committed_only(w: World) -> None:
    """An aborted record that was delivered and released does not come again once the group reads committed ones."""
    t = w.topic()
    transact(w, t, (2, ABORTED), (1, COMMITTED))
    g = w.group()
    a = w.member(g, topics=[t])
    a.take_all(5, t)
    assert a.acknowledge((t, 0, 0, 4, RELEASE)).code(t) == 0
    w.configure(g, {"share.isolation.level": "read_committed"})
    got: set[int] = set()
    for _ in range(10):
        got.update(offsets(a.fetch(t, wait_ms=200, silent=True).acquired(t)))
        if 3 in got:
            break
    assert 3 in got
    assert not got & {0, 1}


@item(115)
def uncommitted_again(w: World) -> None:
    """A reader of committed records and then of all gets later aborted ones."""
    t = w.topic()
    g = w.group(isolation="read_committed")
    a = w.member(g, topics=[t])
    transact(w, t, (1, COMMITTED))
    assert a.take(t, silent=True).acquired(t)[0][0] == 0
    w.configure(g, {"share.isolation.level": "read_uncommitted"})
    transact(w, t, (2, ABORTED))
    got: set[int] = set()
    while not got >= {2, 3}:
        got.update(offsets(a.take(t, silent=True).acquired(t)))
    assert w.note("delivered", sorted(got & {2, 3})) == [2, 3]


@item(120)
def some_renewed(w: World) -> None:
    """Of ten records five are accepted and five renewed; those are still held, and accepted later."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    assert a.take(t).acquired(t) == [(0, 9, 1)]
    response = a.fetch(t, renew=True, acks=[(t, 0, 0, 9, [ACCEPT, RENEW] * 5)])
    assert (response.ack_code(t), response.acquired(t)) == (0, [])
    assert a.acknowledge(*[(t, 0, offset, offset, ACCEPT) for offset in range(1, 10, 2)]).code(t) == 0
    assert not a.fetch(t, wait_ms=300).acquired(t)


@item(121)
def renewed_for_longer(w: World) -> None:
    """A changed lock duration is in the response to the renewal."""
    t = w.topic()
    w.raw.produce(t, 1)
    g = w.group(lock_ms="15000")
    a = w.member(g, topics=[t])
    assert a.take(t).lock_ms == 15000
    w.configure(g, {"share.record.lock.duration.ms": "25000"})
    response = a.acknowledge((t, 0, 0, 0, RENEW), renew=True)
    assert (response.code(t), response.lock_ms) == (0, 25000)


@item(122)
def renewed_too_late(w: World) -> None:
    """A lock that has ended cannot be renewed, and where renewing is off none can."""
    t = w.topic()
    w.raw.produce(t, 1)
    a = w.member(w.group(lock_ms="1000"), topics=[t])
    a.take(t)
    time.sleep(1.6)
    assert a.acknowledge((t, 0, 0, 0, RENEW), renew=True).code(t) == 121
    off = w.member(w.group("off", renew="false"), "B", topics=[t])
    off.take(t)
    assert off.acknowledge((t, 0, 0, 0, RENEW), renew=True).code(t) == 121


@item(132)
def a_limit_that_is_raised(w: World) -> None:
    """With a limit of three, raised to five after two deliveries, a record is delivered five times."""
    t = w.topic()
    w.raw.produce(t, 1)
    g = w.group(deliveries="3")
    a = w.member(g, topics=[t])
    for count in range(1, 6):
        assert a.take(t).acquired(t) == [(0, 0, count)]
        if count == 2:
            w.configure(g, {"share.delivery.count.limit": "5"})
        assert a.acknowledge((t, 0, 0, 0, RELEASE)).code(t) == 0
    assert not a.fetch(t, wait_ms=300).acquired(t)


@item(133)
def a_window_that_is_widened(w: World) -> None:
    """The number of locks is shown as it was set, before and after."""
    g = w.group(locks="500")
    for value in ("500", "1000"):
        w.configure(g, {"share.partition.max.record.locks": value})
        assert w.note(value, w.raw.describe(GROUP_RESOURCE, g)["share.partition.max.record.locks"]) == value


@item(82)
def many_records_two_at_a_time(w: World) -> None:
    """Each once and in order, two in every response."""
    t = w.topic()
    w.raw.produce(t, *[1] * 100)
    a = w.member(w.group(), topics=[t])
    got: list[int] = []
    acks: list[tuple[Topic, int, int, int, int]] = []
    while len(got) < 100:
        response = a.fetch(t, records=2, batch=1, mode=RECORD_LIMIT, wait_ms=2000, silent=True, acks=acks)
        spans = response.acquired(t)
        assert len(offsets(spans)) <= 2
        acks = [(t, 0, first, last, ACCEPT) for first, last, _ in spans]
        got += offsets(spans)
    assert w.note("in order", got) == list(range(100))


@item(76)
def larger_than_requested(w: World) -> None:
    """A record larger than MaxBytes is delivered all the same."""
    t = w.topic()
    w.raw.produce(t, [b"x" * 20_000])
    assert w.member(w.group(), topics=[t]).take(t, max_bytes=1).acquired(t) == [(0, 0, 1)]


@item(72)
def nothing_there(w: World) -> None:
    """Subscribed to a topic without records: no record, no error."""
    t = w.topic()
    response = w.member(w.group(), topics=[t]).fetch(t, wait_ms=300)
    assert (response.error, response.acquired(t)) == (0, [])


@item(98)
def topics_that_come_and_go(w: World) -> None:
    """Subscribed before it exists, a topic's records are delivered once it does; when one of two is deleted the other
    continues.
    """
    name = w.name_of_topic("later")
    g = w.group()
    other = w.topic("other")
    a = w.member(g)
    a.heartbeat(epoch=0, topics=[name, other.name], silent=True)
    t = w.topic("later")
    end = time.monotonic() + 30
    while {(t.topic_id, 0), (other.topic_id, 0)} != a.assigned:
        assert time.monotonic() < end, a.assigned
        a.heartbeat(silent=True)
        time.sleep(0.1)
    w.raw.produce(t, 2)
    assert a.take(t, other, silent=True).acquired(t) == [(0, 1, 1)]
    assert a.acknowledge((t, 0, 0, 1, ACCEPT)).code(t) == 0
    w.raw.delete_topic(t)
    w.raw.produce(other, 2)
    a.fetch(epoch=-1, silent=True)
    again = a.take(other, silent=True).acquired(other)  # on native Kafka it may be the second delivery
    assert w.note("other", offsets(again)) == [0, 1]


@item(119)
def acknowledged_after_the_topic(w: World) -> None:
    """Records of a topic that was deleted meanwhile: their acknowledgement names what is missing."""
    t = w.topic()
    w.raw.produce(t, 1)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    w.raw.delete_topic(t)
    end = time.monotonic() + 20
    while a.acknowledge((t, 0, 0, 0, RELEASE), silent=True).code(t) not in (3, 100):
        assert time.monotonic() < end
        time.sleep(0.2)
