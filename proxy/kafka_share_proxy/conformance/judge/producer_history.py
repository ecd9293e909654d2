"""History of producers: epochs, next sequence numbers, and partitions of transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kafka_share_proxy.conformance.judge.events import ReceivedRequest, SentResponse
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError
from kafka_share_proxy.wire.records import records

PRODUCERS_MAX = 10_000
RETRIED_MAX = 10
"""Maximum number of batches in flight after one that failed, and of their repetitions."""
SEQUENCES = 1 << 31
"""Number of sequence numbers; they wrap around to 0."""
IMPLICIT_FROM = 12
"""Version of Produce from which a transaction adds its partitions implicitly (KIP-890)."""

Place = tuple[str | bytes, int]
"""Topic name or id, and partition."""


@dataclass(slots=True)
class ProducerHistory:
    """One producer id."""

    producer_id: int
    epoch: int
    next_sequence: dict[Place, int] = field(default_factory=dict)
    doubtful: dict[Place, int] = field(default_factory=dict)
    """Number of following batches with any sequence number, by partition: one before failed, or its outcome is
    unknown.
    """
    added: set[Place] = field(default_factory=set)
    """Partitions of the current transaction, by topic name."""


@dataclass(slots=True)
class ProducerHistories:
    """All producers."""

    producers: dict[int, ProducerHistory] = field(default_factory=dict)

    def on_request(self, event: ReceivedRequest) -> None:
        if event.key == ApiKey.PRODUCE:
            for place, batch in batches(event):
                if batch is not None and batch.producer_id >= 0:
                    self._on_batch(place, batch)

    def on_response(self, event: SentResponse) -> None:
        key = event.received.key
        if key == ApiKey.INIT_PRODUCER_ID:
            self._on_init(event)
        elif key == ApiKey.ADD_PARTITIONS_TO_TXN and event.received.version < 4:
            self._on_added(event)
        elif key == ApiKey.END_TXN and (producer := self.producers.get(event.received.request.producer_id)) is not None:
            producer.added.clear()
        elif key == ApiKey.PRODUCE and event.response is not None:
            self._on_produced(event)

    def _on_batch(self, place: Place, batch: records.BatchHeader) -> None:
        producer = self._producer(batch.producer_id, batch.producer_epoch)
        if batch.producer_epoch > producer.epoch:
            producer.epoch, producer.next_sequence = batch.producer_epoch, {}
        producer.next_sequence[place] = (batch.base_sequence + batch.records_count) % SEQUENCES
        remaining = producer.doubtful.pop(place, 0) - 1
        if remaining > 0:
            producer.doubtful[place] = remaining

    def _on_init(self, event: SentResponse) -> None:
        response: Any = event.response
        if response.error_code == ErrorCode.NONE:
            self.producers.pop(response.producer_id, None)
            if event.delivered:
                self._producer(response.producer_id, response.producer_epoch)

    def _on_added(self, event: SentResponse) -> None:
        request = event.received.request
        producer = self.producers.get(request.v3_and_below_producer_id)
        if producer is not None:
            for topic in request.v3_and_below_topics:
                producer.added.update((topic.name, partition) for partition in topic.partitions)

    def _on_produced(self, event: SentResponse) -> None:
        response: Any = event.response
        failed = {
            (topic.name or bytes(topic.topic_id), partition.index)
            for topic in response.responses
            for partition in topic.partition_responses
            if partition.error_code != ErrorCode.NONE
        }
        if failed or not event.delivered:
            self._doubt(event.received, failed if event.delivered else None)

    def on_unknown_outcome(self, event: ReceivedRequest) -> None:
        """Accept repetitions of a request whose connection ended before the response."""
        if event.key == ApiKey.PRODUCE:
            self._doubt(event, None)

    def _doubt(self, event: ReceivedRequest, places: set[Place] | None) -> None:
        """Accept repetitions of the batches for these partitions. None: all of the request."""
        for place, batch in batches(event):
            producer = None if batch is None else self.producers.get(batch.producer_id)
            if producer is not None and (places is None or place in places):
                producer.doubtful[place] = RETRIED_MAX

    def _producer(self, producer_id: int, epoch: int) -> ProducerHistory:
        if producer_id not in self.producers:
            while len(self.producers) >= PRODUCERS_MAX:
                del self.producers[next(iter(self.producers))]
            self.producers[producer_id] = ProducerHistory(producer_id, epoch)
        return self.producers[producer_id]


@lru_cache(maxsize=1)
def batches(event: ReceivedRequest) -> Sequence[tuple[Place, records.BatchHeader | None]]:
    """Return the partitions of a Produce with the header of their first batch; None if it cannot be read.

    The last result is cached, because five rules and the history need it.
    """
    return [(place, _first_header(data)) for place, data in produced(event)]


def _first_header(data: bytes) -> records.BatchHeader | None:
    try:
        return next(records.iter_batches(data), None)
    except RemoteProtocolError:
        return None


def produced(event: ReceivedRequest) -> Iterator[tuple[Place, bytes]]:
    """Yield the partitions of a Produce with their records."""
    for topic in event.request.topic_data:
        for partition in topic.partition_data:
            yield (topic.name or bytes(topic.topic_id), partition.index), bytes(partition.records or b"")
