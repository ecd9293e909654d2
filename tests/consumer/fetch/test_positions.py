"""Read position of each partition."""

from __future__ import annotations

from kafka_share_proxy.consumer.fetch.positions import Positions, PositionState
from kafka_share_proxy.wire.values import TopicPartition

A, B = TopicPartition("p", 0), TopicPartition("p", 1)


def assigned() -> Positions:
    positions = Positions()
    positions.assign([B, A])
    return positions


def test_a_partition_that_stays_assigned_keeps_its_position() -> None:
    positions = assigned()
    positions.seek(A, 7)
    positions.pause([A])
    positions.assign([A])
    assert (positions[A].offset, positions[A].paused) == (7, True)
    assert positions.assigned == {A}
    positions.assign([A, B])
    assert positions[B].state is PositionState.INITIALIZING


def test_only_what_has_a_position_and_is_neither_paused_nor_to_be_revoked_is_read() -> None:
    positions = assigned()
    assert positions.fetchable() == []
    positions.seek(A, 0)
    positions.seek(B, 0)
    positions.pause([A])
    positions.hold_back([B])
    assert positions.fetchable() == []
    assert not positions[B].is_returnable
    positions.resume([A])
    positions.end_hold_back([B])
    assert positions.fetchable() == [A, B]


def test_missing_positions_are_requested_once_and_a_seek_makes_the_request_stale() -> None:
    positions = assigned()
    assert positions.missing(PositionState.INITIALIZING) == [A, B]
    positions[A].is_queried = True
    assert positions.missing(PositionState.INITIALIZING) == [B]
    moves = positions[A].moves
    positions.seek(A, 3)
    assert positions[A].moves != moves
    positions.reset(A)
    assert positions.missing(PositionState.RESETTING) == [A]
    assert positions[A].offset is None


def test_changes_of_unassigned_partitions_are_ignored() -> None:
    positions = assigned()
    other = TopicPartition("q", 0)
    for change in (positions.pause, positions.resume, positions.hold_back, positions.end_hold_back, positions.drop):
        change([other])
    positions.seek(other, 1)
    positions.reset(other)
    positions.consumed(other, 1)
    assert positions.assigned == {A, B}
    assert positions.get(other) is None
    positions.drop([A])
    assert positions.assigned == {B}
