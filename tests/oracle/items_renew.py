"""Items 41-50: RENEW (KIP-1222)."""

from __future__ import annotations

import time

from tests.oracle.items import item
from tests.support.raw import Topic
from tests.support.worlds import ACCEPT, BEFORE_LOCK_S, REJECT, RELEASE, RENEW, Member, World


def _holding(w: World, count: int = 10, **settings: str) -> tuple[Topic, Member]:
    t = w.topic()
    w.raw.produce(t, count)
    a = w.member(w.group(**settings), topics=[t])
    assert a.take(t).acquired(t) == [(0, count - 1, 1)]
    return t, a


def _holding_beside(w: World, **settings: str) -> tuple[Topic, Member, Member]:
    """Same as `_holding`, with a second member in the group, whose session is open, because joining takes time."""
    t = w.topic()
    group = w.group(**settings)
    a, b = w.member(group, topics=[t]), w.member(group, "B", topics=[t])
    b.fetch(t, wait_ms=0, silent=True)
    w.raw.produce(t, 10)
    assert a.take(t).acquired(t) == [(0, 9, 1)]
    return t, a, b


@item(41)
def renew_that_also_fetches(w: World) -> None:
    """A renewing fetch that requests records is refused as a whole, and its epoch is not used up (R003-3, A003-7)."""
    t, a = _holding(w)
    for requested in ({"wait_ms": 500}, {"min_bytes": 1}, {"max_bytes": 1}, {"records": 1}):
        response = a.fetch(renew=True, acks=[(t, 0, 0, 9, RENEW)], **requested)
        assert (response.error, response.lock_ms) == (42, 0)
    assert a.fetch(renew=True, acks=[(t, 0, 0, 9, RENEW)]).ack_code(t) == 0


@item(42)
def renew_with_others(w: World) -> None:
    """A renewing fetch applies every type in it, brings no records and does not wait (R003-3 and 8)."""
    t, a = _holding(w, 4)
    w.raw.produce(t, 1)
    response = a.fetch(renew=True, acks=[(t, 0, 0, 3, (ACCEPT, RENEW, RELEASE, REJECT))])
    assert (response.ack_code(t), response.acquired(t)) == (0, [])
    assert response.took_s < 5, response.took_s
    assert a.take(t).acquired(t) == [(2, 2, 2), (4, 4, 1)]
    assert a.acknowledge((t, 0, 1, 1, ACCEPT)).code(t) == 0


@item(43)
def renew_unannounced(w: World) -> None:
    """Type 4 is invalid without IsRenewAck, and in version 1 (R003-1, A003-6)."""
    t, a = _holding(w)
    assert a.acknowledge((t, 0, 0, 9, RENEW)).code(t) == 42
    assert a.fetch(t, acks=[(t, 0, 0, 9, RENEW)], wait_ms=0).ack_code(t) == 42
    assert a.acknowledge((t, 0, 0, 9, RENEW), version=1).code(t) == 42
    assert a.fetch(t, acks=[(t, 0, 0, 9, RENEW)], wait_ms=0, version=1).ack_code(t) == 42
    assert a.acknowledge((t, 0, 0, 9, ACCEPT)).code(t) == 0


@item(44)
def renew_announced_only(w: World) -> None:
    """IsRenewAck without any type 4 is no mistake."""
    t, a = _holding(w)
    assert a.acknowledge((t, 0, 0, 4, ACCEPT), renew=True).code(t) == 0
    assert a.fetch(renew=True, acks=[(t, 0, 5, 9, ACCEPT)]).ack_code(t) == 0


@item(45)
def renewed_lock(w: World) -> None:
    """A lock of 4000 ms renewed after 2200 ms holds at 4400 ms, ends at 6200 ms; then the count is higher (R003-2)."""
    t, a, b = _holding_beside(w, lock_ms="4000")
    began = time.monotonic()
    _until(began + 2.2)
    assert a.acknowledge((t, 0, 0, 9, RENEW), renew=True).code(t) == 0
    _until(began + 4.4)
    assert b.fetch(t, wait_ms=0).acquired(t) == []
    assert b.take(t).acquired(t) == [(0, 9, 2)]
    assert 6 < time.monotonic() - began < BEFORE_LOCK_S


def _until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


@item(46)
def renew_not_held(w: World) -> None:
    """A member that does not hold the lock (any longer) cannot renew it."""
    t, a, b = _holding_beside(w, lock_ms="3000")
    assert b.acknowledge((t, 0, 0, 4, RENEW), renew=True).code(t) == 121
    assert a.acknowledge((t, 0, 0, 4, ACCEPT)).code(t) == 0
    assert a.acknowledge((t, 0, 5, 9, RENEW), (t, 0, 5, 9, RENEW), renew=True, silent=True).error == 0
    time.sleep(3.6)
    assert a.acknowledge((t, 0, 5, 9, RENEW), renew=True).code(t) == 121


@item(46, "b")
def renew_acknowledged(w: World) -> None:
    """Acknowledged records cannot be renewed while the start offset is before them."""
    t, a = _holding(w)
    assert a.acknowledge((t, 0, 5, 9, ACCEPT)).code(t) == 0
    assert a.acknowledge((t, 0, 5, 9, RENEW), renew=True).code(t) == 121


@item(47)
def changed_duration(w: World) -> None:
    """A changed lock duration applies from the next renewal on and is in the response (R003-4)."""
    t, a = _holding(w, lock_ms="15000")
    assert a.acknowledge((t, 0, 0, 9, RENEW), renew=True).lock_ms == 15_000
    w.configure(a.group, {"share.record.lock.duration.ms": "25000"})
    assert a.acknowledge((t, 0, 0, 9, RENEW), renew=True).lock_ms == 25_000
    w.configure(a.group, {"share.record.lock.duration.ms": "1000"})
    assert a.acknowledge((t, 0, 0, 9, RENEW), renew=True).lock_ms == 1000
    b = w.member(a.group, "B", topics=[t])
    assert b.take(t).acquired(t) == [(0, 9, 2)]


@item(48)
def holder_falls_silent(w: World) -> None:
    """After a renewal a holder that does nothing more loses the records when the lock ends."""
    t, a, b = _holding_beside(w, lock_ms="3000")
    began = time.monotonic()
    assert a.acknowledge((t, 0, 0, 9, RENEW), renew=True).code(t) == 0
    assert b.take(t).acquired(t) == [(0, 9, 2)]
    assert 2.9 < time.monotonic() - began < BEFORE_LOCK_S


@item(48, "b")
def holder_is_cut_off(w: World) -> None:
    """After a renewal a holder whose connection ends loses the records immediately."""
    t, a = _holding(w)
    b = w.member(a.group, "B", topics=[t])
    b.attend(t)
    assert a.acknowledge((t, 0, 0, 9, RENEW), renew=True).code(t) == 0
    a.disconnect()
    assert b.take(t).acquired(t) == [(0, 9, 2)]


@item(49)
def renew_disabled(w: World) -> None:
    """If renewals are disabled it fails with 121, and so does the rest of its partition."""
    t, a = _holding(w, renew="false")
    assert a.acknowledge((t, 0, 0, 4, ACCEPT), (t, 0, 5, 9, RENEW), renew=True).code(t) == 121
    assert a.acknowledge((t, 0, 0, 9, ACCEPT)).code(t) == 0


@item(50)
def partitions_apart(w: World) -> None:
    """A partition that renews well is not touched by another that is malformed."""
    t = w.topic(partitions=2)
    a = w.member(w.group(), topics=[t])
    w.raw.produce(t, 1, partition=0)
    w.raw.produce(t, 1, partition=1)
    a.take_all(2, t)
    response = a.acknowledge((t, 0, 0, 0, RENEW), (t, 1, 0, 0, 9), renew=True)
    assert (response.code(t, 0), response.code(t, 1)) == (0, 42)
