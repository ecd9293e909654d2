"""Concurrent use of a partition, and its order."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
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


class Keeping:
    """Keeper of locks, with or without a request in flight."""

    def __init__(self, locks: PartitionLocks, modes: Mapping[Hashable, bool]) -> None:
        self._locks, self._modes = locks, modes
        self.is_in_flight = False
        self.recalls = 0
        assert locks.keep(modes, self)

    def give_back(self) -> None:
        self.recalls += 1
        if not self.is_in_flight:
            self.leave()

    def leave(self) -> None:
        self._locks.keep_no_longer(self._modes, self)
        self._locks.leave(self._modes)


def test_kept_locks_are_given_back_when_another_request_needs_them() -> None:
    locks = PartitionLocks()
    keeping = Keeping(locks, {"group": False, "p": True})
    assert locks.enter({"group": False, "q": True})
    assert keeping.recalls == 0
    assert locks.enter({"group": False, "p": True})
    assert keeping.recalls == 1
    locks.leave({"group": False, "p": True})
    locks.leave({"group": False, "q": True})
    assert len(locks) == 0


def test_request_waits_until_the_commit_of_a_keeper_in_flight_has_ended() -> None:
    locks = PartitionLocks()
    keeping = Keeping(locks, {"p": True})
    keeping.is_in_flight = True
    assert not locks.enter({"p": False})
    asker = Asker(locks, alone=False)
    assert (asker.is_in, keeping.recalls) == (False, 2)
    keeping.leave()
    assert asker.is_in
    asker.leave()
    assert len(locks) == 0


def test_lock_of_a_whole_group_is_given_back_by_all_keepers() -> None:
    locks = PartitionLocks()
    keepers = [Keeping(locks, {"p": False, partition: True}) for partition in ("a", "b", "c")]
    whole_group = Asker(locks, alone=True)
    assert whole_group.is_in
    assert [keeper.recalls for keeper in keepers] == [1, 1, 1]
    assert not locks.keep({"p": False, "a": True}, keepers[0])
    whole_group.leave()
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
