"""Requests of producers, as brokers receive them."""

from __future__ import annotations

from kafka_share_proxy.brokers import producer_messages
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.values import TopicPartition


def test_a_transactional_produce_names_its_transactional_id_and_waits_for_all_replicas() -> None:
    plain, transactional = (producer_messages.produce("t", {3: b"x"}, name) for name in (None, "id"))
    assert (plain.transactional_id, transactional.transactional_id) == (None, "id")
    assert (plain.acks, transactional.acks) == (-1, -1)
    assert [(topic.name, topic.partition_data[0].index) for topic in plain.topic_data] == [("t", 3)]


def test_partitions_are_added_by_topic() -> None:
    places = [TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("a", 2)]
    request = producer_messages.add_partitions("id", 7, 2, places)
    assert (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch) == (7, 2)
    listed = {topic.name: list(topic.partitions) for topic in request.v3_and_below_topics}
    assert listed == {"a": [0, 2], "b": [1]}


def test_a_transaction_ends_by_commit_or_abort() -> None:
    for committed in (True, False):
        request = producer_messages.end_txn("id", 7, 2, committed=committed)
        assert (request.producer_id, request.producer_epoch, request.committed) == (7, 2, committed)


def test_a_missing_response_has_no_partitions() -> None:
    assert producer_messages.by_partition(None) == {}
    entry = messages.ProduceResponse.PartitionProduceResponse(index=4)
    topic = messages.ProduceResponse.TopicProduceResponse(name="t", partition_responses=[entry])
    assert producer_messages.by_partition(messages.ProduceResponse(responses=[topic])) == {4: entry}
