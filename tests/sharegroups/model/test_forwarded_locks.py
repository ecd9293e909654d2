"""Locks of a group on the brokers, as its requests show them."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.model import forwarded_locks
from kafka_share_proxy.sharegroups.model.forwarded_locks import ForwardedLocks, TooManyLocks
from kafka_share_proxy.wire.values import TopicIdPartition

A, B = TopicIdPartition(b"a" * 16, 0), TopicIdPartition(b"b" * 16, 3)


@pytest.fixture
def locks() -> ForwardedLocks:
    """Member m holds 0-9 of A until 10, and 5-6 of B until 20."""
    group_locks = ForwardedLocks()
    group_locks.acquired(A, 0, 9, "m", 10.0)
    group_locks.acquired(B, 5, 6, "m", 20.0)
    return group_locks


def test_settled_records_are_no_longer_locked(locks: ForwardedLocks) -> None:
    """Records that were never locked may be settled too, by an acknowledgement that was late."""
    locks.settled(A, 0, 4)
    locks.settled(A, 9, 12)
    assert (len(locks), locks.bounds()) == (6, [(A, 5, 8), (B, 5, 6)])
    locks.settled(B, 5, 6)
    assert locks.bounds() == [(A, 5, 8)]


def test_locks_end_at_their_time(locks: ForwardedLocks) -> None:
    locks.expire(9.9)
    assert len(locks) == 12
    locks.expire(10.0)
    assert (len(locks), locks.bounds()) == (2, [(B, 5, 6)])


def test_renewed_lock_ends_later(locks: ForwardedLocks) -> None:
    locks.acquired(A, 3, 3, "m", 15.0)
    locks.expire(10.0)
    assert locks.bounds() == [(A, 3, 3), (B, 5, 6)]


def test_end_of_a_session_releases_its_locks_only(locks: ForwardedLocks) -> None:
    locks.acquired(A, 20, 21, "other", 10.0)
    locks.session_ended("m")
    assert (len(locks), locks.bounds()) == (2, [(A, 20, 21)])


def test_more_locks_than_allowed_are_an_error(locks: ForwardedLocks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarded_locks, "LOCKS_MAX", 12)
    locks.acquired(A, 0, 9, "m", 11.0)
    with pytest.raises(TooManyLocks):
        locks.acquired(A, 10, 10, "m", 11.0)
    for act in (lambda: locks.settled(A, 0, 1 << 40), lambda: locks.acquired(A, 0, 1 << 40, "m", 11.0)):
        with pytest.raises(TooManyLocks):
            act()
