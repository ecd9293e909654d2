"""Concurrent use of a partition, and its order."""

from __future__ import annotations

from contextlib import ExitStack

from kafka_share_proxy.commits.partition_locks import PartitionLocks


class Asker:
    """Request for a lock on one partition."""

    def __init__(self, locks: PartitionLocks, *, alone: bool) -> None:
        self._stack = ExitStack()
        (self._place_in_queue,) = self._stack.enter_context(locks.queued({"p": alone}))

    @property
    def is_in(self) -> bool:
        return self._place_in_queue.done

    def leave(self) -> None:
        self._stack.close()


def test_several_share_a_partition_and_one_that_is_alone_waits() -> None:
    locks = PartitionLocks()
    first, second = Asker(locks, alone=False), Asker(locks, alone=False)
    alone = Asker(locks, alone=True)
    assert (first.is_in, second.is_in, alone.is_in) == (True, True, False)
    first.leave()
    assert not alone.is_in
    second.leave()
    assert alone.is_in


def test_later_requests_wait_in_order() -> None:
    """A stream of shared ones does not keep the one that wants to be alone waiting."""
    locks = PartitionLocks()
    first = Asker(locks, alone=False)
    alone = Asker(locks, alone=True)
    later = [Asker(locks, alone=False) for _ in range(3)]
    assert not any(each.is_in for each in later)
    first.leave()
    assert (alone.is_in, any(each.is_in for each in later)) == (True, False)
    alone.leave()
    assert all(each.is_in for each in later)


def test_who_leaves_the_line_lets_others_in() -> None:
    locks = PartitionLocks()
    first, alone, shared = Asker(locks, alone=False), Asker(locks, alone=True), Asker(locks, alone=False)
    alone.leave()
    assert shared.is_in
    first.leave()
    shared.leave()
    assert len(locks) == 0


def test_next_lock_is_requested_when_the_previous_one_is_held() -> None:
    locks = PartitionLocks()
    alone = Asker(locks, alone=True)
    with locks.queued({"p": False, "q": True}) as turns:
        places = iter(turns)
        assert not next(places).done
        assert len(locks) == 1
        alone.leave()
        assert next(places).done
        assert len(locks) == 2
    assert len(locks) == 0
