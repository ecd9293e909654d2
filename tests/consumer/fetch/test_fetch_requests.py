"""Reading ahead into a bounded buffer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kafka_share_proxy.consumer.events import BackgroundError, FetchArrived
from kafka_share_proxy.consumer.fetch.fetch_requests import FetchedChunk, FetchRequests
from kafka_share_proxy.consumer.fetch.offset_requests import OffsetRequests
from kafka_share_proxy.consumer.fetch.positions import Positions, PositionState
from kafka_share_proxy.consumer.metadata_requests import LeaderAndEpoch
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.requests import UnsentRequest
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.records.records import Record, build_batch
from kafka_share_proxy.wire.values import ZERO_UUID, TopicPartition

from tests.consumer.managers import BARRED, LOST, NOW, backoff, known_topics, no_request, only_request
from tests.consumer.messages import round_trip

A, B, C = (TopicPartition("p", number) for number in range(3))
"""Led by nodes 1, 2 and 1."""


def batch(first: int, count: int = 10, epoch: int = 5) -> bytes:
    return build_batch(first, [Record(value=b"v" * 20)] * count, leader_epoch=epoch)


class Play:
    """Partitions at position 0."""

    def __init__(self, *partitions: TopicPartition, **options: Any) -> None:
        self.metadata = known_topics(p=3)
        self.positions = Positions()
        self.options = ConsumerOptions(**{"auto_offset_reset": "earliest", **options})
        self.offsets = OffsetRequests(self.options, self.metadata, self.positions, backoff())
        self.fetches = FetchRequests(self.options, self.metadata, self.positions, self.offsets, backoff)
        self.positions.assign(partitions)
        for each in partitions:
            self.seek(each, 0)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions.seek(partition, offset)
        self.positions[partition].leader = self.metadata.leader(partition)

    def respond(self, request: UnsentRequest, now: float = NOW, code: int = 0, **records: Any) -> list[Any]:
        """Respond to a Fetch. `a=` is the records of partition a as bytes, or a dict of response fields."""
        response = registry.message("FetchResponse")
        partitions = []
        for name, content in records.items():
            fields = content if isinstance(content, dict) else {"records": content}
            partitions.append(response.PartitionData(partition_index="abc".index(name), high_watermark=99, **fields))
        topic = response.FetchableTopicResponse(topic_id=self.metadata.topic_id("p"), partitions=partitions)
        return self.fetches.on_response(request, round_trip(response(responses=[topic], error_code=code), 16), now)

    def take_ranges(self, bytes_max: float = float("inf")) -> list[tuple[str, int, int]]:
        return [(str(each.partition), each.first, each.next_offset) for each in self.fetches.take(bytes_max)]


def requested(request: UnsentRequest) -> dict[int, int]:
    return {each.partition: each.fetch_offset for topic in request.message.topics for each in topic.partitions}


def test_each_broker_has_one_request_under_way_for_all_its_partitions() -> None:
    play = Play(A, B, C)
    first, second = play.fetches.poll(NOW).requests
    assert [(each.node_id, requested(each)) for each in (first, second)] == [(1, {0: 0, 2: 0}), (2, {1: 0})]
    assert (first.message.session_id, first.message.session_epoch, first.message.max_wait_ms) == (0, -1, 500)
    (topic,) = second.message.topics
    assert topic.partitions[0].current_leader_epoch == 5
    no_request(play.fetches)
    assert play.respond(second, b=batch(0)) == [FetchArrived(partitions=frozenset({B}))]
    assert requested(only_request(play.fetches)) == {1: 10}, "further on, while nothing was taken yet"


def test_chunks_are_whole_batches_and_the_position_stays_until_records_are_returned() -> None:
    play = Play(A)
    play.seek(A, 5)
    play.respond(only_request(play.fetches), a=batch(0) + batch(10) + batch(20)[:-1])
    assert (play.positions[A].offset, play.positions[A].fetch_from) == (5, 20)
    (chunk,) = play.fetches.take()
    assert bytes(chunk.records) == batch(0) + batch(10)
    assert (chunk.first, chunk.next_offset, chunk.high_watermark) == (5, 20, 99)
    assert play.positions[A].offset == 5
    assert play.fetches.buffered_bytes == 0


def test_the_next_request_contains_the_epoch_of_the_last_record() -> None:
    play = Play(A)
    play.respond(only_request(play.fetches), a=batch(0, epoch=3))
    (topic,) = only_request(play.fetches).message.topics
    assert topic.partitions[0].last_fetched_epoch == 3


def test_a_full_buffer_stops_fetching_until_something_is_taken() -> None:
    play = Play(A, buffer_bytes_max=1000, max_partition_fetch_bytes=500, fetch_max_bytes=600)
    request = only_request(play.fetches)
    assert request.message.max_bytes == 500, "more cannot come of one partition"
    play.respond(request, a=batch(0) + batch(10))
    assert play.fetches.buffered_bytes == len(batch(0)) * 2 > 500
    assert no_request(play.fetches) == float("inf")
    assert len(play.take_ranges()) == 1
    assert requested(only_request(play.fetches)) == {0: 20}


def test_room_is_new_only_where_a_fetch_waits_for_it() -> None:
    """The application tells the network side of it after each poll that took records."""
    play = Play(A, buffer_bytes_max=1000, max_partition_fetch_bytes=500, fetch_max_bytes=600)
    for first in (0, 10):
        request = only_request(play.fetches)
        assert not play.fetches.has_new_room
        play.respond(request, a=batch(first))
    assert no_request(play.fetches) == float("inf")
    assert not play.fetches.has_new_room
    assert len(play.take_ranges(1)) == 1
    assert play.fetches.has_new_room
    assert requested(only_request(play.fetches)) == {0: 20}
    assert not play.fetches.has_new_room


def test_three_brokers_are_queried_with_the_limits_of_the_options() -> None:
    play = Play(A, B, C)
    play.metadata.nodes = {**play.metadata.nodes, 3: play.metadata.nodes[2]}
    play.metadata.note_leader(C, LeaderAndEpoch(3, 9))
    play.seek(C, 0)
    assert [each.node_id for each in play.fetches.poll(NOW).requests] == [1, 2, 3]


def test_a_waiting_fetch_keeps_no_other_broker_from_being_queried() -> None:
    play = Play(A, B, C, buffer_bytes_max=1000, max_partition_fetch_bytes=300, fetch_max_bytes=800)
    first, second = play.fetches.poll(NOW).requests
    assert [each.message.max_bytes for each in (first, second)] == [500, 300]


def test_fetches_are_not_made_small_by_a_buffer_that_is_nearly_full() -> None:
    size = len(batch(0))
    play = Play(A, C, buffer_bytes_max=10 * size, max_partition_fetch_bytes=2 * size, fetch_max_bytes=100 * size)
    for number in range(4):
        request = only_request(play.fetches)
        assert request.message.max_bytes == min(4, 10 - 2 * number) * size
        play.respond(request, a=batch(10 * number), c=batch(10 * number))
    request = only_request(play.fetches)
    assert request.message.max_bytes == 2 * size
    play.respond(request, a=batch(40))
    assert no_request(play.fetches) == float("inf")
    assert len(play.take_ranges(size)) == 1
    assert only_request(play.fetches).message.max_bytes == 2 * size


def test_paused_partitions_are_not_fetched_and_keep_what_was_there() -> None:
    play = Play(A, C)
    play.respond(only_request(play.fetches), a=batch(0), c=batch(0))
    play.positions.pause([A])
    assert play.fetches.has_records
    assert play.take_ranges() == [("p-2", 0, 10)]
    assert not play.fetches.has_records
    assert requested(only_request(play.fetches)) == {2: 10}
    play.positions.resume([A])
    assert play.take_ranges() == [("p-0", 0, 10)]


def test_records_of_a_paused_partition_do_not_keep_their_response() -> None:
    response = batch(0) + bytes(1 << 20)
    chunk = FetchedChunk(A, memoryview(response)[: len(batch(0))], 0, 10, (), 10, 10, 0)
    assert chunk.copied() == chunk
    assert type(chunk.copied().records) is bytes
    whole = chunk._replace(records=memoryview(batch(0)))
    assert whole.copied() is whole, "there is nothing else in memory"
    play = Play(A, C)
    play.respond(only_request(play.fetches), a=memoryview(response)[: len(batch(0))], c=batch(0))
    play.positions.pause([A])
    assert play.take_ranges() == [("p-2", 0, 10)]
    play.positions.resume([A])
    (fetched_chunk,) = play.fetches.take()
    assert (fetched_chunk.partition, bytes(fetched_chunk.records)) == (A, batch(0))
    assert play.fetches.buffered_bytes == 0


def test_buffered_records_of_a_partition_to_be_revoked_are_returned_only_if_it_stays() -> None:
    play = Play(A)
    play.respond(only_request(play.fetches), a=batch(0))
    play.positions.hold_back([A])
    assert play.take_ranges() == []
    no_request(play.fetches)
    play.positions.end_hold_back([A])
    (chunk,) = play.fetches.take()
    assert play.fetches.may_return(chunk)
    play.positions.hold_back([A])
    assert not play.fetches.may_return(chunk), "nor what was taken, and not returned yet"
    play.positions.end_hold_back([A])
    play.seek(A, 3)
    assert not play.fetches.may_return(chunk)


def test_a_seek_makes_buffered_records_and_requests_in_flight_stale() -> None:
    play = Play(A)
    play.respond(only_request(play.fetches), a=batch(0))
    request = only_request(play.fetches)
    play.seek(A, 50)
    assert play.respond(request, a=batch(10)) == []
    assert play.take_ranges() == []
    assert play.fetches.buffered_bytes == 0
    assert requested(only_request(play.fetches)) == {0: 50}


def test_chunks_of_a_partition_stay_in_order_when_little_is_taken() -> None:
    play = Play(A, C)
    play.respond(only_request(play.fetches), a=batch(0, 30), c=batch(0))
    play.respond(only_request(play.fetches), a=batch(30, 1))
    assert play.take_ranges(10) == [("p-0", 0, 30)], "one at least"
    assert play.take_ranges(len(batch(0)) + len(batch(0, 1))) == [("p-2", 0, 10), ("p-0", 30, 31)]
    play.respond(only_request(play.fetches), c=batch(10, 1))
    play.respond(only_request(play.fetches), a=batch(31, 30))
    play.respond(only_request(play.fetches), a=batch(61, 1))
    assert play.take_ranges(len(batch(0, 1)) * 2) == [("p-2", 10, 11)], (
        "the last would fit, and has to wait for its turn"
    )


def test_records_of_lost_partitions_are_dropped() -> None:
    play = Play(A, C)
    play.respond(only_request(play.fetches), a=batch(0), c=batch(0))
    play.positions.drop([A])
    play.fetches.drop([A])
    assert play.fetches.buffered_bytes == len(batch(0))
    assert play.take_ranges() == [("p-2", 0, 10)]
    request = only_request(play.fetches)
    play.fetches.clear()
    assert play.respond(request, c=batch(10)) == []


def test_an_offset_out_of_range_goes_to_the_reset_policy() -> None:
    play = Play(A)
    play.respond(only_request(play.fetches), a={"error_code": 1})
    assert play.positions[A].state is PositionState.RESETTING
    play = Play(A, auto_offset_reset="none")
    (event,) = play.respond(only_request(play.fetches), a={"error_code": 1})
    assert isinstance(event, BackgroundError)
    assert no_request(play.fetches) == pytest.approx(NOW + 0.1)


def test_a_stale_leader_is_looked_up_and_the_others_are_still_read() -> None:
    play = Play(A, C)
    leader = registry.message("FetchResponse").LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
    play.respond(only_request(play.fetches), a={"error_code": 6, "current_leader": leader}, c=batch(0))
    assert requested(only_request(play.fetches)) == {2: 10}
    assert play.metadata.leader(A) == LeaderAndEpoch(2, 9)
    assert len(play.metadata.poll(NOW + 1).requests) == 1
    play.offsets.poll(NOW + 1)
    assert requested(only_request(play.fetches, NOW + 1)) == {0: 0}, "at the new leader"


def test_a_follower_that_the_leader_names_is_read_until_it_refuses_fails_or_the_time_is_over() -> None:
    for end in ("refuses", "fails", "old", "gone"):
        play = Play(A, rack="r")
        first = only_request(play.fetches)
        assert (first.node_id, first.message.rack_id) == (1, "r")
        play.respond(first, a={"preferred_read_replica": 2})
        second = only_request(play.fetches)
        assert (second.node_id, requested(second)) == (2, {0: 0})
        now = NOW
        if end == "refuses":
            assert play.respond(second, a={"error_code": 1}) == []
            assert play.positions[A].state is PositionState.FETCHING, "the leader may well have the offset"
            no_request(play.fetches)
            now += 0.1
        elif end == "fails":
            play.fetches.on_response(second, LOST, NOW)
        else:
            play.respond(second, a=batch(0))
            assert only_request(play.fetches).node_id == 2
            play.fetches.clear()
            now += play.options.metadata_max_age_s * (end == "old")
            play.metadata.nodes = {1: play.metadata.nodes[1]} if end == "gone" else play.metadata.nodes
        assert only_request(play.fetches, now).node_id == 1, end


def test_a_diverging_epoch_takes_the_position_back() -> None:
    play = Play(A)
    play.seek(A, 50)
    diverging = registry.message("FetchResponse").EpochEndOffset(epoch=3, end_offset=40)
    play.respond(only_request(play.fetches), a={"diverging_epoch": diverging})
    assert (play.positions[A].offset, play.positions[A].record_epoch) == (40, 3)


def test_records_not_yet_returned_are_read_again_where_the_log_was_truncated() -> None:
    """Ten records wait in the buffer when the leader says that its log ends five before the next."""
    play = Play(A)
    play.respond(only_request(play.fetches), a=batch(0))
    diverging = registry.message("FetchResponse").EpochEndOffset(epoch=3, end_offset=5)
    play.respond(only_request(play.fetches), a={"diverging_epoch": diverging})
    assert (play.positions[A].offset, play.positions[A].record_epoch) == (0, -1)
    assert requested(only_request(play.fetches)) == {0: 0}


def test_an_offset_out_of_range_resets_only_once_what_was_fetched_before_it_is_returned() -> None:
    play = Play(A)
    play.respond(only_request(play.fetches), a=batch(0))
    out_of_range = {"error_code": 1}
    play.respond(only_request(play.fetches), a=out_of_range)
    assert play.positions[A].state is PositionState.FETCHING
    assert play.take_ranges() == [("p-0", 0, 10)]
    play.positions.consumed(A, 10)
    play.respond(only_request(play.fetches, NOW + 1), NOW + 1, a=out_of_range)
    assert play.positions[A].state is PositionState.RESETTING


def test_only_ranges_are_read_where_there_are_any() -> None:
    play = Play(A)
    play.positions.seek(A, 3, ranges=(OffsetSpan(0, 15), OffsetSpan(24, 26)))
    play.positions[A].leader = play.metadata.leader(A)
    assert requested(only_request(play.fetches)) == {0: 3}
    play = Play(A)
    play.positions.seek(A, 3, ranges=(OffsetSpan(0, 15), OffsetSpan(24, 26)))
    play.positions[A].leader = play.metadata.leader(A)
    play.respond(only_request(play.fetches), a=batch(0) + batch(10))
    assert play.positions[A].record_epoch == -1  # of the batch before the gap it would be wrong after it
    request = only_request(play.fetches)
    assert requested(request) == {0: 24}
    play.respond(request, a=batch(20))
    assert no_request(play.fetches) == float("inf")
    chunks = play.fetches.take()
    assert [(each.first, each.until, each.next_offset) for each in chunks] == [(3, 15, 15), (24, 26, 26)]


def test_a_broker_that_does_not_respond_is_queried_with_pauses_and_the_others_without() -> None:
    play = Play(A, B)
    first, second = play.fetches.poll(NOW).requests
    assert play.fetches.on_response(first, LOST, NOW) == []
    play.respond(second, b=batch(0))
    expected = play.fetches.poll(NOW)
    assert [each.node_id for each in expected.requests] == [2]
    assert expected.wake_at == pytest.approx(NOW + 0.1)
    (again,) = play.fetches.poll(NOW + 0.1).requests
    assert play.respond(again, NOW + 0.1, code=-1) == []
    assert no_request(play.fetches, NOW + 0.1) == pytest.approx(NOW + 0.3)
    (event,) = play.fetches.on_response(only_request(play.fetches, NOW + 0.31), BARRED, NOW)
    assert str(event.error) == "Fetch: no such user"


@pytest.mark.parametrize(("content", "text"), [
    ({"error_code": 29}, "Fetch of p-0: TOPIC_AUTHORIZATION_FAILED"),
    (b"\xff" * 100, "Fetch of p-0: "),
])  # fmt: skip
def test_unreadable_records_are_an_error_that_names_the_partition(content: Any, text: str) -> None:
    play = Play(A)
    (event,) = play.respond(only_request(play.fetches), a=content)
    assert text in str(event.error)
    assert event.partitions == {A}
    assert no_request(play.fetches) == pytest.approx(NOW + 0.1), "never without a pause"


def test_responses_about_other_partitions_are_skipped() -> None:
    play = Play(A)
    response = registry.message("FetchResponse")
    unknown = response.FetchableTopicResponse(topic_id=b"?" * 16, partitions=[response.PartitionData()])
    assert play.fetches.on_response(only_request(play.fetches), response(responses=[unknown]), NOW) == []
    assert play.respond(only_request(play.fetches), b=batch(0)) == []
    assert play.take_ranges() == []


def test_a_topic_without_an_id_is_fetched_by_name() -> None:
    """A view that does not exist yet: an id of zeros is unknown to every broker, and by its name the proxy creates
    it.
    """
    play = Play(A)
    play.metadata.topics["p"] = replace(play.metadata.topics["p"], topic_id=ZERO_UUID)
    (request,) = play.fetches.poll(NOW).requests
    assert request.versions == (12, 12)
    assert [(topic.topic, topic.topic_id) for topic in request.message.topics] == [("p", ZERO_UUID)]
    response = registry.message("FetchResponse")
    partition = response.PartitionData(partition_index=A.partition, high_watermark=99, records=batch(0, 3))
    topic = response.FetchableTopicResponse(topic="p", partitions=[partition])
    play.fetches.on_response(request, round_trip(response(responses=[topic]), 12), NOW)
    assert play.take_ranges() == [(str(A), 0, 3)]
