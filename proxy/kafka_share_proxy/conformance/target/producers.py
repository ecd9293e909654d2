"""State of the producers of one partition: sequences, epochs and open transactions (ProducerStateManager, 4.3)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records.records import BatchHeader

BATCHES_KEPT = 5
"""Number of last batches of a producer that are recognised as duplicates (ProducerStateEntry)."""
SEQUENCE_MAX = (1 << 31) - 1
NO_EPOCH = -1


class AppendedBatch(NamedTuple):
    """One of the last batches of a producer."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int
    """Largest timestamp, in milliseconds."""


@dataclass
class ProducerEntry:
    """One producer id in one partition."""

    producer_id: int
    epoch: int = NO_EPOCH
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    coordinator_epoch: int = -1
    transaction_start: int = -1
    """First offset of its open transaction, -1 without one."""
    last_timestamp: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1


def last_sequence_of(batch: BatchHeader) -> int:
    """Return the sequence of the last record. Sequences wrap to 0."""
    return (batch.base_sequence + batch.last_offset - batch.base_offset) % (SEQUENCE_MAX + 1)


def find_duplicate(entry: ProducerEntry | None, batch: BatchHeader) -> AppendedBatch | None:
    """Return the appended batch with the same epoch and sequences."""
    if entry is None or entry.epoch != batch.producer_epoch:
        return None
    sequences = (batch.base_sequence, last_sequence_of(batch))
    return next((each for each in entry.batches if (each.first_sequence, each.last_sequence) == sequences), None)


def check_append(entry: ProducerEntry | None, batch: BatchHeader, new_transaction: bool) -> ErrorCode:
    """Check epoch and sequence of a batch that is no duplicate (ProducerAppendInfo, 4.3).

    `new_transaction`: the transaction has no record here yet, and its producer has an epoch for each (KIP-890).
    """
    if entry is None:
        is_late = new_transaction and batch.base_sequence != 0
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_late else ErrorCode.NONE
    if entry.transaction_start >= 0 and not batch.is_transactional:
        return ErrorCode.INVALID_TXN_STATE
    if batch.producer_epoch < entry.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if batch.producer_epoch != entry.epoch:
        expected = {0} if entry.epoch != NO_EPOCH else {batch.base_sequence}
    else:
        expected = (
            {batch.base_sequence} if entry.epoch == NO_EPOCH else {(entry.last_sequence + 1) % (SEQUENCE_MAX + 1)}
        )
    return ErrorCode.NONE if batch.base_sequence in expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def record_append(entry: ProducerEntry, batch: BatchHeader, base_offset: int) -> None:
    """Add a batch that was appended at `base_offset`."""
    if batch.producer_epoch != entry.epoch:
        entry.epoch = batch.producer_epoch
        entry.batches.clear()
    appended = AppendedBatch(batch.base_sequence, last_sequence_of(batch), base_offset, batch.max_timestamp)
    entry.batches.append(appended)
    entry.last_timestamp = batch.max_timestamp
    if batch.is_transactional and entry.transaction_start < 0:
        entry.transaction_start = base_offset
