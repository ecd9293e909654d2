"""Reservations and waiters by themselves."""

from __future__ import annotations

from proxy.loop.promise import Promise
from proxy.reading.chunk_cache import CacheLimits, ChunkCache
from proxy.sharegroups.fetch.head_reads import ShareHead, ShareReads
from proxy.sharegroups.model.coordinator import ShareKey


def made_reads(heads):
    return ShareReads(
        ChunkCache(CacheLimits(1 << 20, 2.0, 16)), lambda key: heads.get(key, ShareHead(None, cached=False))
    )


def test_reservation_stands_against_the_same_place_and_later_ones():
    reads = made_reads({})
    key = ShareKey("g", b"t" * 16, 0)
    first = reads.reserve(key, 1, 10, False, deadline=6.0, now=0.0)
    assert first is not None
    assert reads.reserve(key, 2, 10, False, deadline=6.0, now=1.0) is None
    below = reads.reserve(key, 2, 5, False, deadline=6.0, now=1.0)
    assert below is not None
    assert below.id > first.id
    assert not reads.holds(first)
    assert reads.let_go([first]) == []
    assert reads.reserve(key, 3, 5, False, deadline=12.0, now=6.0) is not None


def test_wake_goes_on_while_there_is_something():
    key = ShareKey("g", b"t" * 16, 0)
    heads = {key: ShareHead(0, cached=True)}
    reads = made_reads(heads)
    waiters = [reads.wait([key]) for _ in range(5)]
    woken = []
    for index, waiter in enumerate(waiters):

        def took(index=index) -> None:
            woken.append(index)
            if len(woken) == 3:
                heads[key] = ShareHead(None, cached=False)

        waiter.woken.on_settled(took)
    reads.wake(key)
    assert woken == [0, 1, 2]
    assert reads.waiting == 2


def test_waking_inside_a_wake_does_not_pile_up_the_stack():
    key = ShareKey("g", b"t" * 16, 0)
    reads = made_reads({key: ShareHead(0, cached=True)})
    count = 3000
    woken: list[Promise] = []
    for _ in range(count):
        waiter = reads.wait([key])
        waiter.woken.on_settled(lambda: (woken.append(None), reads.wake(key)))
    reads.wake(key)
    assert len(woken) == count
