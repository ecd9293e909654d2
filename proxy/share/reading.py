"""Which of the records read were aborted (share-groups.md 4.8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol


class TransactionalBatch(Protocol):
    """What is needed of a batch header (wire.records.BatchHeader has it)."""

    @property
    def base_offset(self) -> int:
        """First offset."""

    @property
    def last_offset(self) -> int:
        """Last offset."""

    @property
    def producer_id(self) -> int:
        """-1 when it has none."""

    @property
    def is_transactional(self) -> bool:
        """Written inside a transaction."""

    @property
    def is_control(self) -> bool:
        """Holds a marker instead of records."""


class AbortedTransaction(Protocol):
    """An element of a Fetch response's AbortedTransactions."""

    @property
    def producer_id(self) -> int:
        """Who aborted."""

    @property
    def first_offset(self) -> int:
        """First offset of the producer's aborted transaction."""


def aborted_ranges(
    batches: Iterable[TransactionalBatch], aborted_transactions: Sequence[AbortedTransaction] | None
) -> tuple[tuple[int, int], ...]:
    """Offset ranges (first, last) of data batches that belong to aborted transactions, ascending, neighbours merged."""
    pending = sorted(aborted_transactions or (), key=lambda transaction: transaction.first_offset, reverse=True)
    if not pending:
        return ()
    aborted_producers: set[int] = set()
    ranges: list[tuple[int, int]] = []
    for batch in batches:
        if batch.producer_id < 0:
            continue
        while pending and pending[-1].first_offset <= batch.last_offset:
            aborted_producers.add(pending.pop().producer_id)
        if batch.is_control:
            # A producer's marker ends its transaction, whichever kind it is: a commit marker cannot stand between
            # the first record of an aborted transaction and its abort marker. So the record need not be opened.
            aborted_producers.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in aborted_producers:
            if ranges and ranges[-1][1] + 1 == batch.base_offset:
                ranges[-1] = (ranges[-1][0], batch.last_offset)
            else:
                ranges.append((batch.base_offset, batch.last_offset))
    return tuple(ranges)
