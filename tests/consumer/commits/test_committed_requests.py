"""Committed offsets."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.consumer.commits.committed_requests import CommittedRequests
from kafka_share_proxy.consumer.events import BrokerRefused, ConsumerError
from kafka_share_proxy.consumer.groups.classic_messages import MemberIdentity
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.managers import BARRED, LOST, NOW, backoff, found_coordinator, no_request, only_request
from tests.consumer.messages import round_trip

A, B = TopicPartition("p", 0), TopicPartition("p", 1)


class Play:
    """Lookups, and their delivered results."""

    def __init__(self, who: MemberIdentity = MemberIdentity(), **options: Any) -> None:  # noqa: B008 - a tuple
        self.coordinator = found_coordinator()
        self.committed = CommittedRequests(
            ConsumerOptions(group_id="g", **options), self.coordinator, backoff(), lambda: who
        )
        self.results: list[Any] = []

    def query(self, *partitions: TopicPartition) -> None:
        self.committed.query(frozenset(partitions), lambda result: self.results.append(result) or [])  # type: ignore[func-returns-value]

    def respond(self, now: float = NOW, code: int = 0, **committed: Any) -> None:
        """Respond to the only request. `a=(offset, metadata, code)` is the content for partition a."""
        response = registry.message("OffsetFetchResponse")
        partitions = [
            response.OffsetFetchResponsePartitions(
                partition_index="ab".index(name), committed_offset=offset, metadata=metadata, error_code=error,
                committed_leader_epoch=3,
            )
            for name, (offset, metadata, error) in committed.items()
        ]  # fmt: skip
        topics = [response.OffsetFetchResponseTopics(name="p", partitions=partitions)]
        group = response.OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=code)
        received = round_trip(response(groups=[group]), 9)
        assert self.committed.on_response(only_request(self.committed, now), received, now) == []


def test_all_queries_are_one_request_and_each_gets_its_result() -> None:
    play = Play()
    play.query(A)
    play.query(A, B)
    play.respond(a=(7, "ic/1;9-9", 0), b=(-1, None, 0))
    assert play.results == [{A: OffsetAndMetadata(7, "ic/1;9-9", 3)}, {A: OffsetAndMetadata(7, "ic/1;9-9", 3), B: None}]
    no_request(play.committed)


def test_nothing_that_a_transaction_may_undo_is_taken() -> None:
    play = Play()
    play.query(A)
    assert play.committed.poll(NOW).requests[0].message.require_stable


def test_an_offset_in_an_open_transaction_is_requested_again() -> None:
    play = Play()
    play.query(A, B)
    play.respond(a=(1, "", 0), b=(-1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT))
    assert play.results == []
    assert no_request(play.committed) == pytest.approx(NOW + 0.1)
    play.respond(NOW + 0.1, b=(2, "", 0))
    assert list(play.results[0]) == [A, B]


@pytest.mark.parametrize("code", [14, 15, 16, 25, 113])
def test_a_retriable_error_of_the_group_repeats_the_query(code: int) -> None:
    play = Play()
    play.query(A)
    play.respond(code=code)
    no_request(play.committed)
    assert play.results == []
    assert (play.coordinator.node_id is None) == (code in (15, 16))


def test_a_permanent_error_is_delivered_to_all_queries() -> None:
    play = Play()
    play.query(A)
    play.query(B)
    play.respond(code=30)
    assert [type(each) for each in play.results] == [BrokerRefused] * 2
    play.query(A)
    no_request(play.committed)
    play.respond(NOW + 1, a=(-1, "", 29))
    assert str(play.results[2]) == "OffsetFetch of p-0: TOPIC_AUTHORIZATION_FAILED"
    play.query(A)
    play.committed.on_response(only_request(play.committed, NOW + 2), BARRED, NOW + 2)
    assert isinstance(play.results[3], ConsumerError)


def test_without_a_response_the_coordinator_is_looked_up() -> None:
    play = Play()
    play.query(A)
    request = only_request(play.committed)
    no_request(play.committed)
    play.committed.on_response(request, LOST, NOW)
    play.committed.on_response(request, LOST, NOW)
    assert play.coordinator.node_id is None
    no_request(play.committed, NOW + 5)


def test_a_member_of_kip_848_says_who_it_is() -> None:
    who = MemberIdentity("m", 3)
    for protocol, reported in (("classic", (None, -1)), ("consumer", ("m", 3))):
        play = Play(who, group_protocol=protocol)
        play.query(A)
        (group,) = only_request(play.committed).message.groups
        assert (group.member_id, group.member_epoch) == reported
