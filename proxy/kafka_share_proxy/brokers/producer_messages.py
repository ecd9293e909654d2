"""Requests of the proxy's own producers, plain and transactional, and the versions used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.values import TopicPartition

INIT_PRODUCER_ID_VERSION_MAX = 4
PRODUCE_VERSION_MAX = 11
"""Highest version used: 12 may begin a transaction, and 13 names topics by id."""
ADD_PARTITIONS_VERSION_MAX = 3
"""Highest version of clients."""
END_TXN_VERSION_MAX = 3
"""Highest version used: 4 may return another code, and 5 raises the epoch."""
REPLICAS_MS = 5_000
"""Milliseconds that a leader waits for its replicas, unless the caller names others."""
TRANSACTION_MS = 60_000
"""Milliseconds after which a coordinator aborts a transaction and fences its producer."""
ALL_REPLICAS = -1

PartitionProduced: TypeAlias = "messages.ProduceResponse.PartitionProduceResponse"


def init_producer_id(transactional_id: str, producer_id: int, producer_epoch: int) -> messages.InitProducerIdRequest:
    return messages.InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=TRANSACTION_MS,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def produce(
    topic: str, batches: Mapping[int, bytes], transactional_id: str | None = None, *, timeout_ms: int = REPLICAS_MS
) -> messages.ProduceRequest:
    """Return a request with acks=all. `batches`: by partition. `transactional_id`: None for plain batches."""
    request = messages.ProduceRequest
    data = [request.PartitionProduceData(index=partition, records=batch) for partition, batch in batches.items()]
    return request(
        transactional_id=transactional_id,
        acks=ALL_REPLICAS,
        timeout_ms=timeout_ms,
        topic_data=[request.TopicProduceData(name=topic, partition_data=data)],
    )


def by_partition(response: messages.ProduceResponse | None) -> dict[int, PartitionProduced]:
    """Return the entries of the only topic."""
    topics = [] if response is None else response.responses
    return {entry.index: entry for topic in topics for entry in topic.partition_responses}


def add_partitions(
    transactional_id: str, producer_id: int, producer_epoch: int, places: Iterable[TopicPartition]
) -> messages.AddPartitionsToTxnRequest:
    request = messages.AddPartitionsToTxnRequest
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    return request(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=producer_epoch,
        v3_and_below_topics=[
            request.AddPartitionsToTxnTopic(name=name, partitions=partitions) for name, partitions in topics.items()
        ],
    )


def end_txn(transactional_id: str, producer_id: int, producer_epoch: int, *, committed: bool) -> messages.EndTxnRequest:
    return messages.EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
    )
