"""What a state partition holds: its log, read from the start to the offset of one's own takeover record.

Theory of operation. The log is a sequence of reigns, each begun by a takeover record that names the (producer id,
epoch) of its owner. A batch counts only if it was written under the latest takeover record before it: a broker that
forgot an old owner would have taken its late appends (durable/README.md rule 15). Of what counts, the last value of a
key is the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.wire.records import BatchHeader, Record


class Reign(NamedTuple):
    """An owner's time, by its identity."""

    producer_id: int
    producer_epoch: int


ENDLESS = (1 << 63) - 1
"""An offset behind all that there can be."""
TAKEOVERS_KEPT = 64
"""So many takeover records are left alone; of more, those that nothing depends on are deleted."""


@dataclass(slots=True)
class Replay:
    """The state of one partition, as far as it was read."""

    reign_of: Callable[[bytes], Reign | None]
    """The reign that a record begins, by its key; None for every other record. Raises for keys it cannot read."""
    until: int
    """The offset of one's own takeover record: nothing behind it is read. ENDLESS for who only follows."""
    next_offset: int = 0
    """Where the next read starts."""
    values: dict[bytes, bytes] = field(default_factory=dict)
    """Key -> last value."""
    ignored: int = 0
    """Batches of somebody who was not the owner any more."""
    sink: Callable[[Record], None] | None = None
    """Given each record that counts, takeovers left out, in place of `values`."""
    unwanted: bytes = b""
    """Keys that begin so are nothing to the sink; empty: it wants them all."""
    newest_ms: int = -1
    """The time of the last batch that counted, in milliseconds since 1970."""
    reign: Reign | None = None
    _last_value: bytes = b""
    """Values that come again and again, as those of one commit of many ranges, are in memory once."""
    _takeovers: dict[Reign, bytes] = field(default_factory=dict)
    """Reign -> the key of its record, in the order of the log."""
    _reign_of_key: dict[bytes, Reign] = field(default_factory=dict)
    """Where the last record of each key was written, deletions included."""

    @property
    def done(self) -> bool:
        """Whether everything was read."""
        return self.next_offset > self.until

    def read(self, batch: BatchHeader, records: Callable[[], Iterable[Record]]) -> None:
        """Take in the next batch; `records` opens it, which is not done for one that does not count.

        Raises:
            RemoteProtocolError: it cannot be read here; the next read begins with it again.
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
        """Keys of takeover records on which nothing depends any more; none while there are few."""
        if len(self._takeovers) <= TAKEOVERS_KEPT:
            return []
        needed = Counter(self._reign_of_key.values())
        return [key for reign, key in self._takeovers.items() if reign != self.reign and not needed[reign]]

    def _may_begin(self, writer: Reign) -> bool:
        """Epochs of one producer id only grow; a late owner's takeover of its own does not bring it back."""
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
