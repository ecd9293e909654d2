"""Rules for producers and fetch sessions."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_share_proxy.conformance.judge.events import ReceivedRequest
from kafka_share_proxy.conformance.judge.history import History
from kafka_share_proxy.conformance.judge.producer_history import IMPLICIT_FROM, batches, produced
from kafka_share_proxy.conformance.judge.rule import ClientRules
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import records

PRODUCE = frozenset({ApiKey.PRODUCE})
FETCH = frozenset({ApiKey.FETCH})
SESSIONLESS = frozenset({0, -1})
"""Session epochs of a full fetch: a new session, or none (KIP-227)."""

RULES = ClientRules()


@RULES.rule("produce-batch-invalid", "ProduceRequest.validateRecords; LogValidator", keys=PRODUCE)
def _batch(event: ReceivedRequest, _: History) -> Iterator[str]:
    """Each partition has one batch of magic 2, from base offset 0, with its checksum."""
    for place, data in produced(event):
        name = f"partition {place[1]}"
        try:
            headers = list(records.iter_batches(data))
        except RemoteProtocolError as error:
            yield f"{name}: {error}"
            continue
        if len(headers) != 1 or headers[0].end != len(data):
            yield f"{name}: {len(headers)} batches in {len(data)} bytes instead of one"
        for header in headers[:1]:
            yield from (f"{name}: {problem}" for problem in _problems(header, data))


def _problems(header: records.BatchHeader, data: bytes) -> Iterator[str]:
    if header.magic != 2:
        yield f"magic {header.magic}"
        return
    if header.base_offset != 0:
        yield f"base offset {header.base_offset} instead of 0"
    if header.is_control:
        yield "a control batch"
    if header.last_offset - header.base_offset + 1 != header.records_count:
        yield f"{header.records_count} records, but a last offset delta of {header.last_offset - header.base_offset}"
    if not records.has_valid_checksum(data[: header.end]):
        yield "the checksum is wrong"


@RULES.rule("produce-sequence-gap", "KIP-98; ProducerAppendInfo.checkSequence", keys=PRODUCE)
def _sequence(event: ReceivedRequest, history: History) -> Iterator[str]:
    """The sequence numbers of a partition continue without gap or repetition, except after an error."""
    for place, batch in batches(event):
        producer = None if batch is None else history.producers.producers.get(batch.producer_id)
        if batch is None or producer is None or place in producer.doubtful or batch.producer_epoch != producer.epoch:
            continue
        expected = producer.next_sequence.get(place, 0)
        if batch.base_sequence != expected:
            yield f"partition {place[1]}: sequence {batch.base_sequence} after {expected - 1}"


@RULES.rule("producer-epoch-lower", "KIP-98; KIP-360", keys=PRODUCE)
def _epoch(event: ReceivedRequest, history: History) -> Iterator[str]:
    """The epoch of a producer never decreases."""
    for place, batch in batches(event):
        producer = None if batch is None else history.producers.producers.get(batch.producer_id)
        if batch is not None and producer is not None and batch.producer_epoch < producer.epoch:
            yield f"partition {place[1]}: producer epoch {batch.producer_epoch} after {producer.epoch}"


@RULES.rule("transaction-partition-missing", "KIP-98; KIP-890", keys=PRODUCE)
def _transaction(event: ReceivedRequest, history: History) -> Iterator[str]:
    """Before Produce v12 a partition is added to the transaction before its first batch."""
    for place, batch in batches(event):
        if batch is None or not batch.is_transactional:
            continue
        if event.request.transactional_id is None:
            yield f"partition {place[1]}: a transactional batch without TransactionalId"
        producer = history.producers.producers.get(batch.producer_id)
        if event.version < IMPLICIT_FROM and producer is not None and place not in producer.added:
            yield f"partition {place[1]} of {place[0]!r} is not part of the transaction"


@RULES.rule("fetch-session-epoch", "KIP-227; FetchMetadata.nextEpoch", keys=FETCH)
def _session(event: ReceivedRequest, history: History) -> Iterator[str]:
    """The epoch of a fetch session increases by one with each request."""
    request = event.request
    if event.version < 7 or request.session_epoch in SESSIONLESS:
        return
    expected = history.fetch_epochs.get((event.node, request.session_id))
    if expected is not None and request.session_epoch != expected:
        yield f"session epoch {request.session_epoch} instead of {expected}"


@RULES.rule("fetch-forgets-nothing", "KIP-227", keys=FETCH, severity="advice")
def _forgotten(event: ReceivedRequest, _: History) -> Iterator[str]:
    """Only incremental fetches forget partitions."""
    if event.version >= 7 and event.request.session_epoch in SESSIONLESS and event.request.forgotten_topics_data:
        yield f"a full fetch (session epoch {event.request.session_epoch}) forgets partitions"
