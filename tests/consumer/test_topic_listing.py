"""Listing topics: one Metadata request for each call, repeated after what passes."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.consumer.events import BrokerRefused, CallDone, ConsumerError
from kafka_share_proxy.consumer.topic_listing import PartitionInfo, TopicListing
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

from tests.consumer.managers import BARRED, LOST, NOW, OPTIONS, backoff, no_request, only_request


def response(*topics: tuple[str, int, int]) -> Any:
    """A Metadata response of topics: name, error code, number of partitions."""
    response_class = messages.MetadataResponse
    return response_class(
        topics=[
            response_class.MetadataResponseTopic(
                name=name,
                error_code=code,
                partitions=[
                    response_class.MetadataResponsePartition(
                        partition_index=number,
                        leader_id=1 if number else -1,
                        replica_nodes=[1, 2],
                        isr_nodes=[1],
                        offline_replicas=[2],
                    )
                    for number in reversed(range(count))
                ],
            )
            for name, code, count in topics
        ]
    )


def test_all_topics_are_listed_by_name() -> None:
    listing = TopicListing(OPTIONS, backoff())
    no_request(listing)
    listing.query(1, None)
    request = only_request(listing)
    assert request.message.topics is None
    no_request(listing)
    (done,) = listing.on_response(request, response(("b", 0, 2), ("hidden", 29, 0), ("a", 0, 0)), NOW)
    assert isinstance(done, CallDone)
    assert list(done.value) == ["a", "b"]
    assert done.value["b"] == (
        PartitionInfo("b", 0, None, (1, 2), (1,), (2,)),
        PartitionInfo("b", 1, 1, (1, 2), (1,), (2,)),
    )
    no_request(listing)


def test_a_topic_that_does_not_exist_is_an_error_of_its_call() -> None:
    listing = TopicListing(OPTIONS, backoff())
    listing.query(1, "x")
    request = only_request(listing)
    assert request.message.allow_auto_topic_creation is False
    (done,) = listing.on_response(request, response(("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)), NOW)
    assert isinstance(done, CallDone)
    assert isinstance(done.error, BrokerRefused)
    assert str(done.error) == "Metadata of topic 'x': UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize("outcome", [LOST, response(("x", ErrorCode.LEADER_NOT_AVAILABLE, 0))])
def test_retriable_errors_are_retried_after_a_pause(outcome: Any) -> None:
    listing = TopicListing(OPTIONS, backoff())
    listing.query(1, "x")
    assert listing.on_response(only_request(listing), outcome, NOW) == []
    assert no_request(listing) == pytest.approx(NOW + 0.1)
    only_request(listing, NOW + 0.1)


def test_a_refused_login_ends_the_call() -> None:
    listing = TopicListing(OPTIONS, backoff())
    listing.query(1, None)
    (done,) = listing.on_response(only_request(listing), BARRED, NOW)
    assert isinstance(done, CallDone)
    assert isinstance(done.error, ConsumerError)


def test_a_call_that_was_given_up_is_forgotten() -> None:
    listing = TopicListing(OPTIONS, backoff())
    listing.query(1, None)
    request = only_request(listing)
    listing.give_up(1)
    assert listing.on_response(request, response(), NOW) == []
    no_request(listing)
