"""Aborted transactions of one Fetch answer, resolved here instead of in the consumer.

Under read_committed an answer of a view carries no aborted record, no marker and no aborted list: KafkaJS takes at most
one entry off that list per record it sees, and would hand out aborted records of a thinned stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from proxy.errors import RemoteProtocolError
from proxy.views.slicing import CodecUnavailable, CorruptBatch
from proxy.wire import compression, records
from proxy.wire.records import BatchHeader

ABORT = 0
"""Type of the marker that ends an aborted transaction (ControlRecordType of Kafka's clients)."""


class AbortedTransaction(Protocol):
    """An entry of the aborted list of a Fetch answer."""

    producer_id: int
    first_offset: int


class AbortResolver:
    """Says of each batch of one partition of one answer, in their order, whether it is kept."""

    __slots__ = ("_active", "_waiting")

    def __init__(self, aborted: Iterable[AbortedTransaction] | None) -> None:
        waiting = sorted((entry.first_offset, entry.producer_id) for entry in aborted or ())
        waiting.reverse()
        self._waiting = waiting
        self._active: set[int] = set()

    def keep(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a consumer that reads what is committed gets records of this batch; never those of a marker.

        Args:
            header: of the batch.
            batch: exactly the batch; looked at only if it is a marker.

        Raises:
            CorruptBatch: a marker that cannot be read.
        """
        while self._waiting and self._waiting[-1][0] <= header.last_offset:
            self._active.add(self._waiting.pop()[1])
        if header.is_control:
            if header.producer_id in self._active and _is_abort(batch):
                self._active.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._active)


def _is_abort(batch: memoryview) -> bool:
    """Compaction may have taken the marker out of its batch; then it says nothing."""
    try:
        found = records.decode_records(batch)
        return bool(found) and records.control_record(found[0]).type == ABORT
    except compression.CodecMissing as error:
        raise CodecUnavailable(str(error)) from error
    except RemoteProtocolError as error:
        raise CorruptBatch(str(error)) from error
