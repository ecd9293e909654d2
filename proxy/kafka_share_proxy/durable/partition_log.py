"""Contents of a state partition: its log, read from the start to the offset of this proxy's takeover record.

The log is a sequence of reigns, each begun by a takeover record (durable/README.md rules 13 to 15). Batches of a
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


class Reign(NamedTuple):
    """Period of one owner, identified by its producer."""

    producer_id: int
    producer_epoch: int


class _OpenBatch(NamedTuple):
    """Batch of a transaction without a marker so far."""

    writer: Reign
    records: Sequence[Record]
    max_timestamp: int


ENDLESS = (1 << 63) - 1
UNKNOWN = -1
COMMIT = (1).to_bytes(2, "big")
"""Type in the key of a commit marker, after its version (int16)."""
RUN_BYTES = 256 << 10
"""Bytes of plain batches that are taken in without a checkpoint: up to a millisecond."""
TAKEOVERS_KEPT = 64
"""Maximum number of takeover records kept."""


@dataclass(slots=True)
class Replay:
    """State of one partition, as far as it was read."""

    reign_of: Callable[[bytes], Reign | None]
    """Function that returns the reign of a takeover record, None for other records. Raises for unreadable keys."""
    until: int
    """Offset of this proxy's takeover record. ENDLESS for followers, and before that record is stored."""
    next_offset: int = 0
    start: int = UNKNOWN
    """First offset of the log."""
    values: dict[bytes, bytes] = field(default_factory=dict)
    ignored: int = 0
    """Batches of producers that were no longer the owner."""
    sink: Callable[[Record], None] | None = None
    """Receiver of each record that counts, except takeover records."""
    unwanted: bytes = b""
    """Prefix of keys that the sink ignores."""
    plain: bytes = b""
    """Types of keys, two bytes each, whose batches are read without a call of `reign_of`. Empty with a sink."""
    newest_ms: int = -1
    """Milliseconds since 1970 of the last batch that counted."""
    reign: Reign | None = None
    _open: dict[int, list[_OpenBatch]] = field(default_factory=dict)
    """Batches of open transactions, by producer id."""
    _last_value: bytes = b""
    """Equal consecutive values share one object."""
    _takeovers: dict[Reign, bytes] = field(default_factory=dict)
    """Key of the takeover record, by reign in the order of the log."""
    _reign_of_key: dict[bytes, Reign] = field(default_factory=dict)
    """Reign of the last record of each key, deletions included."""

    @property
    def done(self) -> bool:
        return self.next_offset > self.until

    def ending(self, until: int) -> Replay:
        """Return the replay that ends at `until`: this one, or one that has read nothing if this one has read more."""
        if self.next_offset > until + 1:
            return Replay(self.reign_of, until, sink=self.sink, unwanted=self.unwanted, plain=self.plain)
        self.until = until
        return self

    def read_plain(self, data: Buffer, position: int) -> int:
        """Read plain batches of the present owner, without an object for each. Return the position after them."""
        if self.reign is None or not self.plain:
            return position
        after, self.next_offset, newest_ms = record_batches.keep_last(
            data,
            position,
            position + RUN_BYTES,
            self.next_offset,
            self.until,
            self.plain,
            self.values,
            self._reign_of_key,
            self.reign,
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
        writer = Reign(batch.producer_id, batch.producer_epoch)
        if writer != self.reign and not self._may_begin(writer):
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

    def _count(self, writer: Reign, records: Iterable[Record], max_timestamp: int) -> None:
        for record in records:
            self._apply(writer, record)
        if writer != self.reign:
            self.ignored += 1
        elif max_timestamp >= 0:
            self.newest_ms = max_timestamp

    def superfluous(self) -> list[bytes]:
        """Return the keys of takeover records on which nothing depends, if there are many."""
        if len(self._takeovers) <= TAKEOVERS_KEPT:
            return []
        needed = Counter(self._reign_of_key.values())
        return [key for reign, key in self._takeovers.items() if reign != self.reign and not needed[reign]]

    def _may_begin(self, writer: Reign) -> bool:
        """Check the epoch, which only grows: a late takeover does not restore an earlier owner."""
        if writer.producer_id < 0:
            return False
        return writer not in self._takeovers and (
            self.reign is None
            or writer.producer_id != self.reign.producer_id
            or writer.producer_epoch > self.reign.producer_epoch
        )

    def _apply(self, writer: Reign, record: Record) -> None:
        key = record.key or b""
        key_reign = self.reign_of(key)
        if key_reign is not None:
            if record.value is not None and key_reign == writer:
                self.reign = writer
                self._takeovers.pop(writer, None)
                self._takeovers[writer] = key
            elif record.value is None and writer == self.reign:
                self._takeovers.pop(key_reign, None)
            return
        if writer != self.reign:
            return
        if self.sink is not None:
            self.sink(record)
            return
        self._reign_of_key[key] = writer
        if record.value is None:
            self.values.pop(key, None)
        else:
            if record.value != self._last_value:
                self._last_value = bytes(record.value)
            self.values[key] = self._last_value
