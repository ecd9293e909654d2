"""What is remembered of producers."""

from __future__ import annotations

from kafka_share_proxy.conformance.judge.producer_history import RETRIED_MAX, SEQUENCES, batches
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.judged import JudgedClient, batch, produce, produced

INIT = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)


def test_the_next_sequence_number_wraps_to_zero() -> None:
    client = JudgedClient()
    client.send(produce(batch(3, producer=(7, 0, SEQUENCES - 3))), produced(), version=9)
    assert client.judge.history.producers.producers[7].next_sequence == {("t", 0): 0}


def test_a_new_epoch_begins_with_new_sequence_numbers() -> None:
    client = JudgedClient()
    client.send(produce(batch(3, producer=(7, 0, 0))), produced(), version=9)
    client.send(produce(batch(1, producer=(7, 1, 0))), produced(), version=9)
    producer = client.judge.history.producers.producers[7]
    assert (producer.epoch, producer.next_sequence) == (1, {("t", 0): 1})
    client.send(INIT, messages.InitProducerIdResponse(producer_id=7, producer_epoch=2), version=4)
    assert client.judge.history.producers.producers[7].next_sequence == {}


def test_after_a_failure_a_bounded_number_of_batches_may_have_any_sequence_number() -> None:
    client = JudgedClient()
    failed = produced(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    client.send(produce(batch(1, producer=(7, 0, 0))), failed, version=9)
    assert client.judge.history.producers.producers[7].doubtful == {("t", 0): RETRIED_MAX}
    for _ in range(RETRIED_MAX):
        client.send(produce(batch(1, producer=(7, 0, 5))), produced(), version=9)
    assert client.judge.history.producers.producers[7].doubtful == {}


def test_records_that_are_no_batch_have_no_header() -> None:
    client = JudgedClient()
    request = client.send(produce(b"\0" * 80), produced(), version=9)
    assert list(batches(request)) == [(("t", 0), None)]
