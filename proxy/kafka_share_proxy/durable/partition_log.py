"""Contents of a state partition: its log, read from the start to the offset of this proxy's takeover record.

How it works: the log is a sequence of reigns, each begun by a takeover record with the (producer id, epoch) of its
owner. A batch counts only if it was written under the latest takeover record before it (durable/README.md rule 15). The
last value of each key in those batches is the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_share_proxy.wire.records.records import BatchHeader, Record


class Reign(NamedTuple):
    """Period of one owner, identified by its producer."""

    producer_id: int
    producer_epoch: int


ENDLESS = (1 << 63) - 1
TAKEOVERS_KEPT = 64
"""Maximum number of takeover records kept. Beyond it, those that nothing depends on are deleted."""


@dataclass(slots=True)
class Replay:
    """State of one partition, as far as it was read."""

    reign_of: Callable[[bytes], Reign | None]
    """Return the reign that a record begins, by its key. None for other records. Raises for unreadable keys."""
    until: int
    """Offset of this proxy's takeover record, the last one to read. ENDLESS for followers."""
    next_offset: int = 0
    start: int = 0
    values: dict[bytes, bytes] = field(default_factory=dict)
    ignored: int = 0
    """Number of batches from producers that were no longer the owner."""
    sink: Callable[[Record], None] | None = None
    """Called with each record that counts, except takeover records, instead of filling `values`."""
    unwanted: bytes = b""
    """Prefix of keys that the sink ignores. Empty: none."""
    newest_ms: int = -1
    """Timestamp of the last batch that counted, in milliseconds since 1970."""
    reign: Reign | None = None
    _last_value: bytes = b""
    """Last value read. Equal consecutive values, as in one commit of many ranges, share one object."""
    _takeovers: dict[Reign, bytes] = field(default_factory=dict)
    """Reign -> key of its record, in the order of the log."""
    _reign_of_key: dict[bytes, Reign] = field(default_factory=dict)
    """Reign of the last record of each key, deletions included."""

    @property
    def done(self) -> bool:
        return self.next_offset > self.until

    def read(self, batch: BatchHeader, records: Callable[[], Iterable[Record]]) -> None:
        """Apply the next batch. `records` decodes it, and is not called for a batch that does not count.

        Raises:
            RemoteProtocolError: the batch cannot be read here. The next read begins with it again.
        """
        self._take_in(batch, records)
        self.next_offset = max(self.next_offset, batch.last_offset + 1)

    def _take_in(self, batch: BatchHeader, records: Callable[[], Iterable[Record]]) -> None:
        if batch.is_control or batch.base_offset > self.until:
            return
        writer = Reign(batch.producer_id, batch.producer_epoch)
        if writer != self.reign and not self._may_begin(writer):
            self.ignored += 1
            return
        for record in records():
            self._apply(writer, record)
        if writer != self.reign:
            self.ignored += 1
        elif batch.max_timestamp >= 0:
            self.newest_ms = batch.max_timestamp

    def superfluous(self) -> list[bytes]:
        """Return the keys of takeover records on which nothing depends. Empty while there are few."""
        if len(self._takeovers) <= TAKEOVERS_KEPT:
            return []
        needed = Counter(self._reign_of_key.values())
        return [key for reign, key in self._takeovers.items() if reign != self.reign and not needed[reign]]

    def _may_begin(self, writer: Reign) -> bool:
        """Return True if this producer may begin a reign. Epochs of one producer id only grow: a late takeover by an
        earlier owner does not restore it.
        """
        if writer.producer_id < 0:
            return False
        return writer not in self._takeovers and (
            self.reign is None
            or writer.producer_id != self.reign.producer_id
            or writer.producer_epoch > self.reign.producer_epoch
        )

    def _apply(self, writer: Reign, record: Record) -> None:
        key = record.key or b""
        begun = self.reign_of(key)
        if begun is not None:
            if record.value is not None and begun == writer:
                self.reign = writer
                self._takeovers.pop(writer, None)
                self._takeovers[writer] = key
            elif record.value is None and writer == self.reign:
                self._takeovers.pop(begun, None)
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
