"""Size of a batch in flight, and whether it may be stored, by its entries."""

from __future__ import annotations

from kafka_share_proxy.durable.producer_batches import Entry, ProducerBatch


def entry(size: int, *, unknown: bool = False) -> Entry:
    return Entry((), None, size, 0.0, unknown)


def test_a_batch_has_the_size_of_its_entries() -> None:
    assert ProducerBatch(b"", 2, 0.0, (entry(3), entry(4))).size == 7


def test_a_batch_may_be_stored_once_an_attempt_of_it_or_of_an_entry_has_an_unknown_outcome() -> None:
    assert not ProducerBatch(b"", 1, 0.0, (entry(1),)).may_be_stored
    assert ProducerBatch(b"", 1, 0.0, (entry(1, unknown=True),)).may_be_stored
    assert ProducerBatch(b"", 1, 0.0, (entry(1),), unknown=True).may_be_stored
