"""Contents of a state partition: its log, read from the start to the offset of this proxy's takeover record.

The log is a sequence of owner epochs, each begun by a takeover record (durable/README.md rules 13 to 15). Batches of a
transaction count from its commit marker on (durable/README.md rule 45).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.records import records as record_batches
from kafka_share_proxy.wire.records.records import BatchHeader, Record


class OwnerEpoch(NamedTuple):
    """Producer id and epoch of an owner, from its takeover record to that of the next."""

    producer_id: int
    producer_epoch: int


class _OpenBatch(NamedTuple):
    """Batch of a transaction without a marker so far."""

    writer: OwnerEpoch
    records: Sequence[Record]
    max_timestamp: int


ENDLESS = (1 << 63) - 1
UNKNOWN_START = -1
COMMIT = (1).to_bytes(2, "big")
"""Type in the key of a commit marker, after its version (int16)."""
RUN_BYTES = 256 << 10
"""Bytes of plain batches that are taken in without a checkpoint: up to a millisecond."""
TAKEOVERS_KEPT = 64
"""Maximum number of takeover records kept."""


@dataclass(slots=True)
class Replay:
    """State of one partition, as far as it was read."""

    owner_epoch_of: Callable[[bytes], OwnerEpoch | None]
    """Return the owner epoch of a takeover record, None for other records. Raises for unreadable keys."""
    until: int
    """Offset of this proxy's takeover record. ENDLESS for followers, and before that record is stored."""
    next_offset: int = 0
    start: int = UNKNOWN_START
    """First offset of the log."""
    values: dict[bytes, bytes] = field(default_factory=dict)
    ignored: int = 0
    """Batches of producers that were no longer the owner."""
    sink: Callable[[Record], None] | None = None
    """Receiver of each record that counts, except takeover records."""
    unwanted: bytes = b""
    """Prefix of keys that the sink ignores."""
    plain: bytes = b""
    """Types of keys, two bytes each, whose batches are read without a call of `owner_epoch_of`. Empty with a sink."""
    newest_ms: int = -1
    """Milliseconds since 1970 of the last batch that counted."""
    owner_epoch: OwnerEpoch | None = None
    """Epoch of the last takeover record. None before the first."""
    _open: dict[int, list[_OpenBatch]] = field(default_factory=dict)
    """Batches of open transactions, by producer id."""
    _last_value: bytes = b""
    """Equal consecutive values share one object."""
    _takeovers: dict[OwnerEpoch, bytes] = field(default_factory=dict)
    """Key of the takeover record, by owner epoch in the order of the log."""
    _epoch_of_key: dict[bytes, OwnerEpoch] = field(default_factory=dict)
    """Owner epoch of the last record of each key, deletions included."""

    @property
    def done(self) -> bool:
        return self.next_offset > self.until

    def ending(self, until: int) -> Replay:
        """Return the replay that ends at `until`: this one, or one that has read nothing if this one has read more."""
        if self.next_offset > until + 1:
            return Replay(self.owner_epoch_of, until, sink=self.sink, unwanted=self.unwanted, plain=self.plain)
        self.until = until
        return self

    def read_plain(self, data: Buffer, position: int) -> int:
        """Read plain batches of the present owner, without an object for each. Return the position after them."""
        if self.owner_epoch is None or not self.plain:
            return position
        after, self.next_offset, newest_ms = record_batches.keep_last(
            data,
            position,
            position + RUN_BYTES,
            self.next_offset,
            self.until,
            self.plain,
            self.values,
            self._epoch_of_key,
            self.owner_epoch,
        )
        if newest_ms >= 0:
            self.newest_ms = newest_ms
        return after

    def read(self, batch: BatchHeader, records: Callable[[], Iterable[Record]]) -> None:
        """`records` decodes the batch, if it counts.

        Raises:
            RemoteProtocolError: the batch cannot be read here. The next read begins with it again.
        """
        self._take_in(batch, records)
        self.next_offset = max(self.next_offset, batch.last_offset + 1)

    def _take_in(self, batch: BatchHeader, records: Callable[[], Iterable[Record]]) -> None:
        if batch.base_offset > self.until:
            return
        if batch.is_control:
            self._end_transaction(batch.producer_id, records)
            return
        writer = OwnerEpoch(batch.producer_id, batch.producer_epoch)
        if writer != self.owner_epoch and not self._may_begin(writer):
            self.ignored += 1
            return
        if batch.is_transactional:
            opened = _OpenBatch(writer, list(records()), batch.max_timestamp)
            self._open.setdefault(batch.producer_id, []).append(opened)
            return
        self._count(writer, records(), batch.max_timestamp)

    def _end_transaction(self, producer_id: int, records: Callable[[], Iterable[Record]]) -> None:
        """Process a marker: commit or abort the open batches of its producer."""
        batches = self._open.pop(producer_id, ())
        if batches and any((record.key or b"")[2:4] == COMMIT for record in records()):
            for batch in batches:
                self._count(*batch)

    def _count(self, writer: OwnerEpoch, records: Iterable[Record], max_timestamp: int) -> None:
        for record in records:
            self._apply(writer, record)
        if writer != self.owner_epoch:
            self.ignored += 1
        elif max_timestamp >= 0:
            self.newest_ms = max_timestamp

    def superfluous(self) -> list[bytes]:
        """Return the keys of takeover records on which nothing depends, if there are many."""
        if len(self._takeovers) <= TAKEOVERS_KEPT:
            return []
        needed = Counter(self._epoch_of_key.values())
        return [key for epoch, key in self._takeovers.items() if epoch != self.owner_epoch and not needed[epoch]]

    def _may_begin(self, writer: OwnerEpoch) -> bool:
        """Check the epoch, which only grows: a late takeover does not restore an earlier owner."""
        if writer.producer_id < 0:
            return False
        return writer not in self._takeovers and (
            self.owner_epoch is None
            or writer.producer_id != self.owner_epoch.producer_id
            or writer.producer_epoch > self.owner_epoch.producer_epoch
        )

    def _apply(self, writer: OwnerEpoch, record: Record) -> None:
        key = record.key or b""
        key_epoch = self.owner_epoch_of(key)
        if key_epoch is not None:
            if record.value is not None and key_epoch == writer:
                self.owner_epoch = writer
                self._takeovers.pop(writer, None)
                self._takeovers[writer] = key
            elif record.value is None and writer == self.owner_epoch:
                self._takeovers.pop(key_epoch, None)
            return
        if writer != self.owner_epoch:
            return
        if self.sink is not None:
            self.sink(record)
            return
        self._epoch_of_key[key] = writer
        if record.value is None:
            self.values.pop(key, None)
        else:
            if record.value != self._last_value:
                self._last_value = bytes(record.value)
            self.values[key] = self._last_value
