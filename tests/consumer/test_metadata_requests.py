"""Known metadata of the cluster."""

from __future__ import annotations

import pytest
from kafka_share_proxy.consumer.events import BackgroundError
from kafka_share_proxy.consumer.metadata_requests import LeaderAndEpoch, MetadataRequests
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.troubles import Troubles
from kafka_share_proxy.wire import slot_weights
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.managers import (
    BARRED,
    LOST,
    NOW,
    OPTIONS,
    backoff,
    known_topics,
    no_request,
    on_topics,
    only_request,
)

P0 = TopicPartition("p", 0)


def test_watched_topics_are_requested_and_again_when_they_are_old() -> None:
    metadata = known_topics(p=2)
    assert metadata.leader(P0) == LeaderAndEpoch(1, 5)
    assert metadata.topic_name(metadata.topic_id("p") or b"") == "p"
    assert no_request(metadata) == NOW + OPTIONS.metadata_max_age_s
    only_request(metadata, NOW + OPTIONS.metadata_max_age_s)
    no_request(metadata, NOW + 400)


def test_nothing_watched_sends_no_request() -> None:
    no_request(MetadataRequests(OPTIONS, backoff()))


@pytest.mark.parametrize("allowed", [False, True])
def test_missing_topics_are_made_only_where_that_is_allowed(allowed: bool) -> None:
    metadata = MetadataRequests(OPTIONS, backoff(), creates_topics=allowed)
    metadata.watch({"a"})
    assert only_request(metadata).message.allow_auto_topic_creation is allowed


def test_topics_of_others_are_requested_on_demand() -> None:
    metadata = known_topics(p=2)
    assert metadata.partition_counts(["p", "q", "x"]) is None
    request = only_request(metadata, NOW + 1)
    assert [each.name for each in request.message.topics] == ["p", "q", "x"]
    on_topics(metadata, request, p=2, q=3, x=0)
    assert metadata.partition_counts(["p", "q", "x"]) == {"p": 2, "q": 3}, "x does not exist"


def test_an_older_epoch_is_not_believed_and_a_topic_made_anew_is() -> None:
    metadata = known_topics(p=1)
    metadata.note_leader(P0, LeaderAndEpoch(2, 9))
    metadata.note_leader(P0, LeaderAndEpoch(1, 8))
    metadata.request_update()
    on_topics(metadata, only_request(metadata, NOW + 1), p=1)
    assert metadata.leader(P0) == LeaderAndEpoch(2, 9)
    metadata.request_update()
    response = registry.message("MetadataResponse")
    partition = response.MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=0)
    topic = response.MetadataResponseTopic(name="p", topic_id=b"n" * 16, partitions=[partition])
    broker = response.MetadataResponseBroker(node_id=1, host="h", port=1)
    metadata.on_response(only_request(metadata, NOW + 2), response(brokers=[broker], topics=[topic]), NOW + 2)
    assert metadata.leader(P0) == LeaderAndEpoch(1, 0)


def test_a_pattern_requests_all_topics_and_leaves_internal_ones_out() -> None:
    metadata = MetadataRequests(OPTIONS, backoff())
    metadata.watch((), "or.*")
    request = only_request(metadata)
    assert request.message.topics is None
    on_topics(metadata, request, orders=1, other=1, organs=1)
    metadata.topics["organs"].internal = True
    assert metadata.matching() == {"orders"}
    with pytest.raises(ValueError, match="no regular expression"):
        metadata.watch((), "(")


def test_without_a_leader_it_is_queried_again_with_pauses() -> None:
    metadata = known_topics(p=1)
    assert metadata.leader(TopicPartition("p", 5)) == LeaderAndEpoch()
    assert no_request(metadata) == pytest.approx(NOW + OPTIONS.retry_backoff_s), "never without a pause"
    only_request(metadata, NOW + 1)


def test_failures_are_repeated_and_in_the_end_the_bootstrap_servers_are_queried() -> None:
    options = ConsumerOptions(rebootstrap_after_s=10.0)
    metadata = MetadataRequests(options, backoff())
    metadata.watch(["p"])
    on_topics(metadata, only_request(metadata), p=1)
    metadata.request_update()
    now = NOW + 1
    while metadata.nodes and now < NOW + 100:
        for request in metadata.poll(now).requests:
            assert metadata.on_response(request, LOST, now) == []
        now += 0.5
    assert NOW + 10 < now < NOW + 14
    assert metadata.topics, "topics are still known"
    (event,) = metadata.on_response(only_request(metadata, now + 5), BARRED, now)
    assert isinstance(event, BackgroundError)


def test_a_broker_may_require_a_rebootstrap() -> None:
    metadata = known_topics(p=1)
    metadata.request_update()
    response = registry.message("MetadataResponse")(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    metadata.on_response(only_request(metadata, NOW + 1), response, NOW)
    assert metadata.nodes == {}
    only_request(metadata, NOW + 2)


def test_a_topic_that_is_barred_is_an_error_that_names_it() -> None:
    """And is not said to be absent."""
    troubles = Troubles()
    metadata = MetadataRequests(OPTIONS, backoff(), troubles=troubles)
    metadata.watch(["p"])
    response = registry.message("MetadataResponse")
    topic = response.MetadataResponseTopic(name="p", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    (event,) = metadata.on_response(only_request(metadata), response(topics=[topic]), NOW)
    assert str(event.error) == "Metadata of topic p: TOPIC_AUTHORIZATION_FAILED"
    assert troubles.why() == "topic 'p': TOPIC_AUTHORIZATION_FAILED"


def test_a_leader_without_an_address_is_no_partition_without_a_leader() -> None:
    """A rebootstrap forgets addresses, not leaders."""
    troubles = Troubles()
    metadata = MetadataRequests(OPTIONS, backoff(), troubles=troubles)
    metadata.watch({"p"})
    on_topics(metadata, only_request(metadata), p=1)
    metadata.nodes = {}
    assert metadata.leader(P0) == LeaderAndEpoch()
    assert not troubles.is_any


def test_racks_are_those_of_the_brokers_that_have_a_partition() -> None:
    metadata = known_topics(p=1)
    metadata.request_update()
    response = registry.message("MetadataResponse")
    partition = response.MetadataResponsePartition(
        partition_index=0, leader_id=1, leader_epoch=6, replica_nodes=[1, 2, 3, 9]
    )
    topic = response.MetadataResponseTopic(name="p", topic_id=b"p" * 16, partitions=[partition])
    racks = {1: "a", 2: "b", 3: None}
    brokers = [
        response.MetadataResponseBroker(node_id=number, host="h", port=9092, rack=rack)
        for number, rack in racks.items()
    ]
    metadata.on_response(only_request(metadata, NOW + 1), response(brokers=brokers, topics=[topic]), NOW + 1)
    assert metadata.replica_racks(["p", "q"]) == {P0: frozenset("ab")}, "one broker is away, one names no rack"


def test_weights_of_slots_are_requested_only_where_an_assignor_needs_them() -> None:
    plain, weighing = MetadataRequests(OPTIONS, backoff()), MetadataRequests(OPTIONS, backoff(), needs_weights=True)
    plain.watch({"p"})
    weighing.watch({"p"})
    assert only_request(plain).message.unknown_tags == ()
    request = only_request(weighing)
    assert slot_weights.is_requested(request.message.unknown_tags)
    response = registry.message("MetadataResponse")
    topics = [
        response.MetadataResponseTopic(name="p", topic_id=b"p" * 16, partitions=[], unknown_tags=tags)
        for tags in [(slot_weights.tag_of([0.75, 0.25]),)]
    ]
    topics.append(response.MetadataResponseTopic(name="q", topic_id=b"q" * 16, partitions=[]))
    weighing.on_response(request, response(brokers=[], topics=topics), NOW)
    assert weighing.slot_weights(["p", "q", "x"]) == {"p": (0.75, 0.25)}
