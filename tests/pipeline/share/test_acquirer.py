"""Batches are acknowledged once they are written, and not before (pipeline/README.md rules 44, 47 and 48)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.pipeline.kafka.cluster import ReadRefused, Unavailable
from kafka_share_proxy.pipeline.share import acquirer as module
from kafka_share_proxy.pipeline.share.acquirer import NotAcknowledged, ShareAcquirer, Totals
from kafka_share_proxy.pipeline.share.share_locks import AcquiredOffsets, Fetched
from kafka_share_proxy.pipeline.share.share_offsets import ShareOffset
from kafka_share_proxy.wire.values import TopicPartition

ID, OTHER_ID = bytes(16), bytes(range(16))
PLACE = TopicPartition("orders", 0)


def acquired(start: int, end: int, deliveries: int = 1, topic_id: bytes = ID) -> AcquiredOffsets:
    session: Any = None
    return AcquiredOffsets(session, PLACE, topic_id, OffsetSpan(start, end), deliveries)


class Member:
    """Gives what the test says, and notes what it accepted."""

    def __init__(self, *responses: list[AcquiredOffsets]) -> None:
        self.responses = [Fetched(each, []) for each in responses]
        self.requested: list[int] = []
        self.accepted: list[OffsetSpan] = []
        self.lost: set[OffsetSpan] = set()
        self.gave_back = False

    def fetch(self, most: int, _wait_s: float) -> Fetched:
        self.requested.append(most)
        return self.responses.pop(0) if self.responses else Fetched([], [])

    def accept(self, offsets: Iterable[AcquiredOffsets]) -> list[AcquiredOffsets]:
        ranges = list(offsets)
        self.accepted += [each.span for each in ranges if each.span not in self.lost]
        return [each for each in ranges if each.span in self.lost]

    def release_locks(self) -> None:
        self.gave_back = True


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_S", 0.0)
    monkeypatch.setattr(module, "WAIT_S", 0.0)


def opened(member: Any, most: int = 1_000, timeout_s: float = 10.0) -> ShareAcquirer:
    return ShareAcquirer(member, most, timeout_s)


def batch(acquirer: ShareAcquirer, after: int) -> ShareOffset:
    offset = acquirer.acquire(after)
    assert offset is not None
    return offset


def write(acquirer: ShareAcquirer, offset: ShareOffset) -> None:
    acquirer.planned(offset)
    acquirer.settle()
    acquirer.planned(offset)  # harmless afterwards


def test_a_batch_is_what_can_be_had_and_is_acknowledged_when_it_is_written() -> None:
    member = Member([acquired(0, 10), acquired(10, 20)], [acquired(30, 40)])
    acquirer = opened(member)
    first = batch(acquirer, 0)
    assert first == ShareOffset(1, [(PLACE, OffsetSpan(0, 20)), (PLACE, OffsetSpan(30, 40))], {"orders": ID})
    assert batch(acquirer, 0) == first  # the same, as long as it is not written
    acquirer.planned(first)
    assert member.accepted == []
    acquirer.settle()
    assert member.accepted == [(0, 10), (10, 20), (30, 40)]
    assert acquirer.totals == Totals(30, 0, 0)
    acquirer.planned(first)
    assert acquirer.acquire(1) is None


def test_batches_are_bounded_by_offsets_and_by_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member([acquired(0, 10)], [acquired(20, 30)], [acquired(40, 50)])
    assert len(batch(opened(member, most=20), 0).tokens) == 2
    assert member.requested == [20, 10]
    monkeypatch.setattr(module, "TOKENS_MAX", 1)
    assert len(batch(opened(Member([acquired(0, 10)], [acquired(20, 30)])), 0).tokens) == 1


def test_a_query_that_does_not_acknowledge_is_stopped() -> None:
    acquirer = opened(Member([acquired(0, 10)]))
    batch(acquirer, 0)
    with pytest.raises(NotAcknowledged, match=r"batch 1 .* write with ShareStream.start"):
        acquirer.acquire(1)


def test_a_batch_of_a_lost_member_is_not_acknowledged_before_its_redelivery() -> None:
    """Another member may hold its offsets now; they are written already, and are therefore not written once more."""
    member = Member([acquired(0, 15, deliveries=2), acquired(15, 30)])
    acquirer = opened(member)
    write(acquirer, ShareOffset(4, [(PLACE, OffsetSpan(5, 20))], {"orders": ID}))
    assert (member.accepted, acquirer.totals) == ([], Totals(0, 0, 15))
    assert batch(acquirer, 4).tokens == [(PLACE, OffsetSpan(0, 5)), (PLACE, OffsetSpan(15, 30))]
    assert member.accepted == [(5, 15)]
    assert acquirer.totals == Totals(0, 10, 15)


def test_written_offsets_are_read_again_at_a_first_delivery_or_of_another_topic() -> None:
    """The group was set back, or the topic created again: neither is in the table."""
    member = Member([acquired(0, 10), acquired(10, 20, 2, OTHER_ID)])
    acquirer = opened(member)
    write(acquirer, ShareOffset(1, [(PLACE, OffsetSpan(0, 20))], {"orders": ID}))
    assert batch(acquirer, 1).tokens == [(PLACE, OffsetSpan(0, 20))]
    assert member.accepted == []


def test_a_lock_that_ended_while_the_batch_was_written_is_acknowledged_at_its_redelivery() -> None:
    member = Member([acquired(0, 10), acquired(10, 20)])
    member.lost = {OffsetSpan(10, 20)}
    acquirer = opened(member)
    write(acquirer, batch(acquirer, 0))
    assert (member.accepted, acquirer.totals) == ([(0, 10)], Totals(10, 0, 10))
    member.lost.clear()
    member.responses = [Fetched([acquired(10, 20, deliveries=2)], [])]
    assert acquirer.acquire(1) is None
    assert (member.accepted, acquirer.totals) == ([(0, 10), (10, 20)], Totals(10, 10, 10))
    member.responses = [Fetched([acquired(10, 20, deliveries=3)], [])]
    assert batch(acquirer, 1).tokens == [(PLACE, OffsetSpan(10, 20))]  # acknowledged once, and forgotten


def test_remembered_ranges_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITTEN_MAX", 2)
    acquirer = opened(Member([acquired(0, 1, 2)]))
    tokens = [(PLACE, OffsetSpan(start, start + 1)) for start in (0, 2, 4)]
    write(acquirer, ShareOffset(1, tokens, {"orders": ID}))
    assert batch(acquirer, 1).tokens == [(PLACE, OffsetSpan(0, 1))]


def test_a_batch_without_records_needs_no_acknowledgement() -> None:
    member = Member()
    opened(member).settle()
    assert member.accepted == []


def test_a_retriable_error_is_raised_after_the_timeout() -> None:
    member = Member()
    member.responses = [Fetched([], ["orders-0: NOT_LEADER_OR_FOLLOWER"])] * 100
    with pytest.raises(Unavailable, match="orders-0: NOT_LEADER_OR_FOLLOWER"):
        opened(member, timeout_s=0.25).acquire(0)
    assert member.gave_back


def test_an_acquire_that_fails_holds_nothing() -> None:
    class Refused(Member):
        def fetch(self, most: int, _wait_s: float) -> Fetched:
            if self.requested:
                raise ReadRefused("orders-0: TOPIC_AUTHORIZATION_FAILED")
            return super().fetch(most, _wait_s)

    member = Refused([acquired(0, 10)])
    with pytest.raises(ReadRefused):
        opened(member).acquire(0)
    assert member.gave_back
