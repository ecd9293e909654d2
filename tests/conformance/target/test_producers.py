"""Sequences and epochs of producers."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.producers import (
    BATCHES_KEPT,
    SEQUENCE_MAX,
    ProducerEntry,
    check_append,
    find_duplicate,
    last_sequence_of,
    record_append,
)
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import BatchHeader

from tests.support.target_caller import batch


def header(epoch: int, sequence: int, *values: str) -> BatchHeader:
    data = batch(*(values or ("a",)), producer_id=7, producer_epoch=epoch, base_sequence=sequence)
    return records.read_header(data)


def test_the_last_batches_are_recognised_as_duplicates() -> None:
    entry = ProducerEntry(7)
    for number in range(BATCHES_KEPT + 1):
        record_append(entry, header(0, number), 10 + number)
    assert find_duplicate(entry, header(0, 0)) is None
    duplicate = find_duplicate(entry, header(0, 1))
    assert duplicate is not None
    assert duplicate.base_offset == 11


def test_sequences_wrap() -> None:
    entry = ProducerEntry(7)
    record_append(entry, header(0, SEQUENCE_MAX, "a"), 0)
    assert check_append(entry, header(0, 0), new_transaction=False) == ErrorCode.NONE
    assert last_sequence_of(header(0, SEQUENCE_MAX, "a", "b")) == 0


def test_a_new_epoch_begins_with_sequence_0() -> None:
    entry = ProducerEntry(7)
    record_append(entry, header(1, 5), 0)
    codes = [check_append(entry, header(*each), new_transaction=False) for each in ((2, 0), (2, 1), (0, 6), (1, 6))]
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.NONE,
    ]


def test_an_unknown_producer_begins_anywhere_unless_in_a_new_transaction() -> None:
    assert check_append(None, header(0, 5), new_transaction=False) == ErrorCode.NONE
    assert check_append(None, header(0, 5), new_transaction=True) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
