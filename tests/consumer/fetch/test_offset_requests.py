"""Offsets by time, the reset policy, and logs that were cut."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.consumer.events import BackgroundError, BrokerRefused
from kafka_share_proxy.consumer.fetch.offset_requests import (
    FoundOffset,
    LogTruncated,
    NoOffsetForPartition,
    OffsetRequests,
)
from kafka_share_proxy.consumer.fetch.positions import Positions, PositionState
from kafka_share_proxy.consumer.metadata_requests import LeaderAndEpoch
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.requests import UnsentRequest
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.managers import BARRED, LOST, NOW, backoff, known_topics, no_request, on_topics
from tests.consumer.messages import round_trip

A, B = TopicPartition("p", 0), TopicPartition("p", 1)
"""Led by nodes 1 and 2."""


class Play:
    """Two assigned partitions."""

    def __init__(self, reset: str = "earliest") -> None:
        self.metadata = known_topics(p=2)
        self.positions = Positions()
        self.positions.assign([A, B])
        options = ConsumerOptions(auto_offset_reset=reset, read_committed=True)
        self.offsets = OffsetRequests(options, self.metadata, self.positions, backoff())
        self.results: list[Any] = []

    def query(self, **timestamps: int) -> None:
        requested = {A if name == "a" else B: timestamp for name, timestamp in timestamps.items()}
        self.offsets.query(requested, lambda result: self.results.append(result) or [])  # type: ignore[func-returns-value]

    def requests(self, now: float = NOW) -> list[UnsentRequest]:
        return list(self.offsets.poll(now).requests)

    def listed(self, request: UnsentRequest, now: float = NOW, *, offset: int = 0, code: int = 0) -> list[Any]:
        response = registry.message("ListOffsetsResponse")
        ((number, _),) = timestamps(request).items()
        partition = response.ListOffsetsPartitionResponse(
            partition_index=number, offset=offset, leader_epoch=4, error_code=code
        )
        topic = response.ListOffsetsTopicResponse(name="p", partitions=[partition])
        return self.offsets.on_response(request, round_trip(response(topics=[topic]), 9), now)

    def ended(self, request: UnsentRequest, *, end: int, epoch: int = 4, code: int = 0) -> list[Any]:
        response = registry.message("OffsetForLeaderEpochResponse")
        partition = response.EpochEndOffset(partition=0, end_offset=end, leader_epoch=epoch, error_code=code)
        topic = response.OffsetForLeaderTopicResult(topic="p", partitions=[partition])
        return self.offsets.on_response(request, round_trip(response(topics=[topic]), 4), NOW)

    def new_leader(self) -> UnsentRequest:
        """Read A at 50 in epoch 4, then give it a leader of epoch 9. Return the validation request."""
        self.positions.drop([B])
        self.positions.seek(A, 50, 4)
        self.positions[A].leader = LeaderAndEpoch(1, 5)
        self.metadata.note_leader(A, LeaderAndEpoch(2, 9))
        (request,) = self.requests()
        assert (request.api, request.node_id) == ("OffsetForLeaderEpoch", 2)
        return request


def timestamps(request: UnsentRequest) -> dict[int, int]:
    round_trip(request.message, request.versions[0])
    return {each.partition_index: each.timestamp for topic in request.message.topics for each in topic.partitions}


def test_each_leader_is_queried_for_its_partitions_and_the_result_is_one() -> None:
    play = Play()
    play.query(a=1234, b=-1)
    first, second = play.requests()
    assert [(each.node_id, timestamps(each)) for each in (first, second)] == [(1, {0: 1234}), (2, {1: -1})]
    assert first.message.isolation_level == 1
    assert play.requests() == []
    play.listed(first, offset=7)
    assert play.results == []
    play.listed(second, offset=-1)
    assert play.results == [{A: FoundOffset(7, -1, 4), B: FoundOffset(-1, -1, 4)}]


def test_a_leader_that_has_moved_is_looked_up_and_its_successor_queried() -> None:
    play = Play()
    play.query(a=-2)
    (request,) = play.requests()
    assert play.listed(request, code=6) == []
    assert play.requests() == []
    (metadata,) = play.metadata.poll(NOW + 1).requests
    on_topics(play.metadata, metadata, epoch=6, p=2)
    play.metadata.note_leader(A, LeaderAndEpoch(2, 7))
    (again,) = play.requests(NOW + 1)
    assert again.node_id == 2
    assert play.offsets.on_response(again, LOST, NOW + 1) == []
    assert play.results == []


def test_a_permanent_error_is_delivered() -> None:
    play = Play()
    play.query(a=-2)
    play.query(b=-2)
    first, second = play.requests()
    play.listed(first, code=29)
    assert isinstance(play.results[0], BrokerRefused)
    play.listed(second, offset=3)
    assert play.results[1] == {B: FoundOffset(3, -1, 4)}
    play.query(a=-2)
    play.offsets.on_response(play.requests()[0], BARRED, NOW)
    assert str(play.results[2]) == "ListOffsets: no such user"


@pytest.mark.parametrize(("policy", "timestamp"), [("earliest", -2), ("latest", -1)])
def test_the_reset_policy_finds_a_position(policy: str, timestamp: int) -> None:
    play = Play(policy)
    assert play.offsets.reset([A]) == []
    (request,) = play.requests()
    assert timestamps(request) == {0: timestamp}
    play.listed(request, offset=20)
    assert (play.positions[A].offset, play.positions[A].state) == (20, PositionState.FETCHING)
    assert play.positions[A].leader == LeaderAndEpoch(1, 5), "no need to validate it"
    assert play.requests() == []


def test_queries_about_other_timestamps_of_one_partition_get_separate_results() -> None:
    """A reset to the start while the application requests the end: the results must not be mixed up."""
    play = Play()
    play.offsets.reset([A])
    play.query(a=-1)
    play.query(a=-2)
    (end,) = play.requests()
    assert timestamps(end) == {0: -1}
    play.listed(end, offset=100)
    assert [offsets[A].offset for offsets in play.results] == [100]
    (begin,) = play.requests()
    assert timestamps(begin) == {0: -2}
    play.listed(begin, offset=7)
    assert [offsets[A].offset for offsets in play.results] == [100, 7]
    assert play.positions[A].offset == 7
    assert play.requests() == []


def test_a_seek_overtakes_a_reset() -> None:
    play = Play()
    play.offsets.reset([A])
    (request,) = play.requests()
    play.positions.seek(A, 99)
    play.listed(request, offset=20)
    assert play.positions[A].offset == 99


def test_a_reset_that_is_refused_is_reported_and_tried_again() -> None:
    play = Play()
    play.offsets.reset([A])
    (event,) = play.listed(play.requests()[0], code=29)
    assert isinstance(event, BackgroundError)
    assert event.partitions == {A}
    assert play.requests() == []
    assert len(play.requests(NOW + 1)) == 1


def test_with_the_policy_none_a_missing_offset_is_an_error() -> None:
    play = Play("none")
    first, second = play.offsets.reset([A, B])
    assert isinstance(first.error, NoOffsetForPartition)
    assert second.partitions == {B}
    no_request(play.offsets)


def test_a_position_under_a_new_leader_is_right_if_the_log_was_not_cut() -> None:
    play = Play()
    request = play.new_leader()
    (topic,) = request.message.topics
    assert [(each.leader_epoch, each.current_leader_epoch) for each in topic.partitions] == [(4, 9)]
    assert play.positions.fetchable() == []
    assert play.requests() == []
    assert play.ended(request, end=60) == []
    assert (play.positions[A].offset, play.positions.fetchable()) == (50, [A])
    assert play.requests() == []


def test_a_log_that_was_cut_is_read_from_where_it_was_cut() -> None:
    play = Play()
    play.ended(play.new_leader(), end=40, epoch=3)
    assert (play.positions[A].offset, play.positions[A].record_epoch) == (40, 3)
    play = Play("none")
    (event,) = play.ended(play.new_leader(), end=40)
    assert isinstance(event.error, LogTruncated)
    assert "cut at 40, the position is 50" in str(event.error)
    play = Play()
    play.ended(play.new_leader(), end=-1, epoch=-1)
    assert play.positions[A].state is PositionState.RESETTING


def test_validation_that_fails_for_now_is_repeated() -> None:
    play = Play()
    assert play.ended(play.new_leader(), end=-1, code=74) == []
    (again,) = play.requests(NOW + 1)
    assert play.offsets.on_response(again, LOST, NOW + 1) == []
    assert len(play.requests(NOW + 2)) == 1


def test_validation_that_is_refused_is_reported() -> None:
    play = Play()
    (event,) = play.ended(play.new_leader(), end=-1, code=29)
    assert event.partitions == {A}


def test_a_seek_overtakes_a_validation() -> None:
    play = Play()
    request = play.new_leader()
    play.positions.seek(A, 7)
    assert play.ended(request, end=3) == []
    assert play.positions[A].offset == 7
