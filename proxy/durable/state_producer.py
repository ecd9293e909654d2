"""One writer of one state partition: sequence numbers, repetition, fences.

Theory of operation. A pure machine; the caller sends what `next_request` gives and reports what became of it.

    IDENTIFYING ─ InitProducerId answered ─▶ TAKING_OVER ─ the takeover record is in the log ─▶ READY
      ▲   └─ a producer id nobody had before ─▶ CHECKING ─ the caller proceeds ─▶ TAKING_OVER    │
      └─────── 45 (the broker forgot us), or the identity is to be renewed ──────────────────────┘
    any ─ 47 or 90: somebody else took over ─▶ LOST, for good

- One append at a time; whatever waits when it starts goes with it.
- What an answer says is in `produce_errors`. An append whose outcome is unknown (no answer, or a code that a broker may
  give after it has appended) is repeated byte for byte until it is accepted or fenced. Only an append none of whose
  attempts was unknown can be refused; nothing of it is in the log then, so the next one takes its sequence numbers.
  Sequence numbers are never used for other content otherwise: the broker would answer that with success, and not store
  it.
- 45 means that the broker does not know our sequence any more. InitProducerId with our own (producer id, epoch) tells
  whether we were replaced (90); if not, a new takeover record begins a new epoch and the same content follows it.
- A broker forgets a producer that is silent, and with it the fence: something is appended every `keep_alive_s`, and the
  identity renewed every `identity_s`.
- A new producer id (epoch 0) fences nobody who has another: before the takeover record is written the caller looks into
  the log, and if an owner with another id was there, waits until that one has stopped by its own clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from typing import NamedTuple

from proxy.durable.produce_errors import Follows, what_follows
from proxy.wire import compression
from proxy.wire.errors import ErrorCode, LocalProtocolError
from proxy.wire.records import HEADER, Record, build_batch

BATCH_BYTES_MAX = 128 << 10
"""Records in one append; below what a broker takes by default (message.max.bytes 1 MiB). One entry may be larger."""
RECORD_OVERHEAD = 32
"""What a record takes beside its key and value, at most: attributes, timestamp, offset, and four lengths."""
COMPRESS_BYTES = 4 << 10
"""Smaller batches are not worth compressing."""
SMALLER_S = 60.0
"""After a batch was too large for the broker, batches are half that size for so long."""
WAITING_BYTES_MAX = 64 << 20
"""What waits for its append, per state partition."""
REFUSE_AFTER_S = 5.0
"""An append that definitely failed is tried again for so long: leaders move, replicas come back."""
WAIT_MAX_S = 10.0
"""What could not even be tried for so long is refused: the append in front of it has an unknown outcome."""
RETRY_MIN_S, RETRY_MAX_S = 0.02, 0.25
"""Between two attempts: until the next one nothing is confirmed, though there may be a leader by now."""
DENIED_S = 5.0
"""Between two attempts while the identity lacks a right: somebody has to give it."""
KEEP_ALIVE_S = 6 * 3600.0
"""A quarter of Kafka's default for `producer.id.expiration.ms`."""
IDENTITY_S = 24 * 3600.0
"""`transactional.id.expiration.ms` is 7 days by default, and appends do not count there."""
SEQUENCES = 1 << 31

DENIED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""The proxy's own identity lacks a right."""
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""What InitProducerId answers to a writer that was replaced."""


class WriterStage(Enum):
    """How far the writer is."""

    IDENTIFYING = auto()
    CHECKING = auto()
    TAKING_OVER = auto()
    READY = auto()
    LOST = auto()


_READY, _LOST = WriterStage.READY, WriterStage.LOST
"""Looked up with every append, which is slow in an enum (CPython 3.11)."""


class Identify(NamedTuple):
    """Send InitProducerId with the partition's transactional id; (-1, -1) claims it, else it renews."""

    producer_id: int
    producer_epoch: int


class Append(NamedTuple):
    """Send this record batch with acks=all."""

    batch: bytes


class Stored(NamedTuple):
    """All in-sync replicas have the append."""

    token: object


class Refused(NamedTuple):
    """Definitely not stored, now and later."""

    token: object
    code: ErrorCode


class TakenOver(NamedTuple):
    """The takeover record is at this offset: whatever an earlier owner wrote is in front of it."""

    offset: int
    producer_id: int
    producer_epoch: int


class Lost(NamedTuple):
    """Somebody else is the owner now; nothing that is still waiting was or will be confirmed."""

    code: ErrorCode


class WentBack(NamedTuple):
    """The append is at an offset that was taken: this is another log, or its end is gone, takeover record and all."""

    offset: int


Outcome = Stored | Refused | TakenOver | Lost | WentBack


_WANTED_BEFORE: Mapping[WriterStage, type[Identify] | type[Append]] = {
    WriterStage.IDENTIFYING: Identify,
    WriterStage.TAKING_OVER: Append,
}
"""What a writer that is not ready wants; at all other stages nothing."""


@dataclass(slots=True)
class _Entry:
    """What one caller wants stored, all or none."""

    records: Sequence[Record]
    token: object
    size: int
    since: float
    unknown: bool = False
    """Some attempt may have stored it."""


@dataclass(slots=True)
class _Batch:
    """The append that is under way."""

    data: bytes
    count: int
    since: float
    """Of its first attempt."""
    entries: Sequence[_Entry] = ()
    is_takeover: bool = False
    unknown: bool = False
    """Some attempt had no answer that says it was not appended: these sequence numbers may stand for it."""

    @property
    def size(self) -> int:
        """Bytes of its entries."""
        return sum(entry.size for entry in self.entries)

    @property
    def may_be_stored(self) -> bool:
        """Whether anything of it may be in the log, under these sequence numbers or those of an earlier epoch."""
        return self.unknown or any(entry.unknown for entry in self.entries)


@dataclass(slots=True)
class StateProducer:
    """The writer of one state partition. All times are `now`, monotonic seconds."""

    takeover: Callable[[int, int], Record]
    """The takeover record for a (producer id, epoch). Its key is never written again: compaction would take the first
    one away, and with it what says that the batches behind it count."""
    keep_alive: Record
    """A record that says nothing."""
    keep_alive_s: float = KEEP_ALIVE_S
    identity_s: float = IDENTITY_S
    stage: WriterStage = WriterStage.IDENTIFYING
    producer_id: int = -1
    producer_epoch: int = -1
    waiting_bytes: int = 0
    batch_bytes_max: int = BATCH_BYTES_MAX
    """Records in one append, when none is larger alone."""
    _smaller_bytes: int = 0
    _smaller_until: float = -inf
    _sequence: int = 0
    _log_end: int = 0
    """Every append of ours is in front of it."""
    _waiting: deque[_Entry] = field(default_factory=deque)
    _batch: _Batch | None = None
    _is_out: bool = False
    """A request is on its way."""
    _retry_at: float = -inf
    _retry_s: float = RETRY_MIN_S
    _append_by: float = inf
    _identify_by: float = inf

    def renew_every(self, keep_alive_s: float, identity_s: float, now: float) -> None:
        """Append, and renew the identity, at least so often from now on."""
        self.keep_alive_s, self.identity_s = keep_alive_s, identity_s
        self._append_by = min(self._append_by, now + keep_alive_s)
        self._identify_by = min(self._identify_by, now + identity_s)

    def limit_batches(self, message_bytes: int) -> None:
        """The topic takes record batches of so many bytes (`max.message.bytes`).

        Compression does not count: where the topic has another (`compression.type`), the broker opens the batch.
        """
        self.batch_bytes_max = min(BATCH_BYTES_MAX, message_bytes)

    def add(self, records: Sequence[Record], token: object, now: float) -> bool:
        """Have this stored, all or none; `token` names it in the outcome. False: too much waits, or it is lost."""
        size = RECORD_OVERHEAD * len(records)
        for key, value, *_ in records:
            size += len(key or b"") + len(value or b"")
        if self.stage is _LOST or self.waiting_bytes + size > WAITING_BYTES_MAX:
            return False
        self._waiting.append(_Entry(records, token, size, now))
        self.waiting_bytes += size
        return True

    def wants(self, now: float) -> type[Identify] | type[Append] | None:
        """What `next_request` would give: where it goes may have to be found first."""
        if self._is_out or now < self._retry_at:
            return None
        if self.stage is not _READY:
            return _WANTED_BEFORE.get(self.stage)
        if self._batch is None:
            if now >= self._identify_by:
                return Identify
            if not self._waiting and now < self._append_by:
                return None
        return Append

    def next_request(self, now: float) -> Identify | Append | None:
        """What to send now; the caller must report on it (`identified`, `appended`, `unanswered` or `unsent`)."""
        wanted = self.wants(now)
        if wanted is None:
            return None
        self._is_out = True
        if wanted is Identify:
            self.stage = WriterStage.IDENTIFYING
            return Identify(self.producer_id, self.producer_epoch)
        if self._batch is None:
            self._batch = self._next_batch(now)
        return Append(self._batch.data)

    def proceed(self) -> None:
        """No owner with another producer id is left: take over. Only while CHECKING."""
        if self.stage is not WriterStage.CHECKING:
            raise LocalProtocolError(f"proceed while {self.stage.name}")
        self.stage = WriterStage.TAKING_OVER

    def next_deadline(self) -> float:
        """When `next_request` or `overdue` may have something, if nothing else happens; inf while a request is out."""
        if self.stage is _LOST:
            return inf
        oldest = self._oldest_unsent() + WAIT_MAX_S
        if self._is_out or (self.stage is not _READY and self.stage is WriterStage.CHECKING):
            return oldest
        if self.stage is not _READY or self._batch is not None or self._waiting:
            return min(max(self._retry_at, 0.0), oldest)
        return max(self._retry_at, min(self._append_by, self._identify_by))

    def identified(self, code: ErrorCode, producer_id: int, producer_epoch: int, now: float) -> list[Outcome]:
        """Take the answer to InitProducerId."""
        self._take_back()
        if code in FENCED:
            return self._lose(code)
        if code != ErrorCode.NONE:
            self._later(now, code)
            return []
        self._retry_s = RETRY_MIN_S
        is_new = self.producer_id < 0 and producer_epoch == 0
        self.producer_id, self.producer_epoch, self._sequence = producer_id, producer_epoch, 0
        self.stage = WriterStage.CHECKING if is_new else WriterStage.TAKING_OVER
        self._identify_by = now + self.identity_s
        return []

    def appended(self, code: ErrorCode, offset: int, now: float) -> list[Outcome]:
        """The append was answered; `offset` is that of its first record."""
        self._take_back()
        batch = self._batch
        if batch is None:
            raise LocalProtocolError("an answer to an append that was not sent")
        match what_follows(code):
            case Follows.STORED:
                return self._accepted(batch, offset, now)
            case Follows.FENCED:
                return self._lose(code)
            case Follows.START_AGAIN:
                self._start_again(batch)
                return []
            case Follows.NOT_NOW:
                return self._refused(batch, code, now, final=now - batch.since >= REFUSE_AFTER_S)
            case Follows.NEVER:
                return self._refused(batch, code, now, final=True)
            case Follows.TOO_LARGE:
                return self._too_large(batch, code, now)
            case Follows.UNKNOWN:
                return self._unknown(batch, now)

    def unanswered(self, now: float) -> list[Outcome]:
        """The request was sent, at least in part, and no answer will come: what became of it is unknown."""
        self._take_back()
        if self.stage is WriterStage.IDENTIFYING or self._batch is None:
            self._later(now)  # repeated, it gives the same answer, or one epoch more
            return []
        return self._unknown(self._batch, now)

    def unsent(self, now: float) -> list[Outcome]:
        """Not a byte of the request was sent."""
        self._take_back()
        if self.stage is WriterStage.IDENTIFYING or self._batch is None:
            self._later(now)
            return []
        final = now - self._batch.since >= REFUSE_AFTER_S
        return self._refused(self._batch, ErrorCode.COORDINATOR_NOT_AVAILABLE, now, final=final)

    def overdue(self, now: float) -> list[Outcome]:
        """Refuse what has waited too long behind something that cannot be settled, and was never sent itself."""
        if not self._waiting or self._oldest_unsent() + WAIT_MAX_S > now:
            return []
        kept, outcomes = deque[_Entry](), list[Outcome]()
        for entry in self._waiting:
            if entry.unknown or entry.since + WAIT_MAX_S > now:
                kept.append(entry)
            else:
                self.waiting_bytes -= entry.size
                outcomes.append(Refused(entry.token, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self._waiting = kept
        return outcomes

    def _oldest_unsent(self) -> float:
        """Since when what can be refused has waited; inf when nothing does."""
        for entry in self._waiting:
            if not entry.unknown:
                return entry.since
        return inf

    def tokens(self) -> list[object]:
        """Everything whose outcome is open."""
        entries = [*(self._batch.entries if self._batch is not None else ()), *self._waiting]
        return [entry.token for entry in entries]

    # What to append

    def _next_batch(self, now: float) -> _Batch:
        if self.stage is not _READY:
            return self._build([self.takeover(self.producer_id, self.producer_epoch)], (), now, is_takeover=True)
        entries: list[_Entry] = []
        limit = self.batch_bytes_max if now >= self._smaller_until else self._smaller_bytes
        size = HEADER.size
        while self._waiting and (not entries or size + self._waiting[0].size <= limit):
            entry = self._waiting.popleft()
            self.waiting_bytes -= entry.size
            entries.append(entry)
            size += entry.size
        if not entries:
            return self._build([self.keep_alive], (), now)
        first = entries[0].records
        records = first if len(entries) == 1 else [record for entry in entries for record in entry.records]
        return self._build(records, entries, now, size=size - HEADER.size)

    def _build(
        self,
        records: Sequence[Record],
        entries: Sequence[_Entry],
        now: float,
        *,
        size: int = 0,
        is_takeover: bool = False,
    ) -> _Batch:
        """`size`: bytes of the entries."""
        data = build_batch(
            0,
            records,
            codec=compression.ZSTD if size >= COMPRESS_BYTES else compression.NONE,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self._sequence,
        )
        return _Batch(data, len(records), now, entries, is_takeover)

    # What became of it

    def _accepted(self, batch: _Batch, offset: int, now: float) -> list[Outcome]:
        if 0 <= offset < self._log_end:
            self.stage = WriterStage.LOST
            return [WentBack(offset)]
        self._log_end = max(self._log_end, offset + batch.count)
        self._batch = None
        self._retry_s = RETRY_MIN_S
        self._sequence = (self._sequence + batch.count) % SEQUENCES
        self._append_by = now + self.keep_alive_s
        if batch.is_takeover:
            self.stage = WriterStage.READY
            return [TakenOver(offset, self.producer_id, self.producer_epoch)]
        return [Stored(entry.token) for entry in batch.entries]

    def _refused(self, batch: _Batch, code: ErrorCode, now: float, *, final: bool) -> list[Outcome]:
        """Nothing of this attempt is in the log. `final`: it has been tried for long enough."""
        if not final or batch.is_takeover or batch.may_be_stored:
            self._later(now, code)
            return []
        self._batch = None
        if not batch.entries:
            self._later(now)
        return [Refused(entry.token, code) for entry in batch.entries]

    def _too_large(self, batch: _Batch, code: ErrorCode, now: float) -> list[Outcome]:
        """Half of it at a time; an entry that is too large alone is refused."""
        if len(batch.entries) < 2:
            return self._refused(batch, code, now, final=True)
        self._smaller_bytes, self._smaller_until = batch.size // 2, now + SMALLER_S
        if batch.unknown:  # under these sequence numbers there may never be anything else
            self._start_again(batch)
        else:
            self._put_back(batch)
        return []

    def _unknown(self, batch: _Batch, now: float) -> list[Outcome]:
        batch.unknown = True
        for entry in batch.entries:
            entry.unknown = True
        self._later(now)
        return []

    def _start_again(self, batch: _Batch) -> None:
        """The sequence numbers are of no use any more: the same content will follow a new takeover record."""
        self._put_back(batch)
        self.stage = WriterStage.IDENTIFYING

    def _put_back(self, batch: _Batch) -> None:
        """Its entries go first again, in batches to be made anew."""
        self._batch = None
        self._waiting.extendleft(reversed(batch.entries))
        self.waiting_bytes += sum(entry.size for entry in batch.entries)

    def _lose(self, code: ErrorCode) -> list[Outcome]:
        self.stage = WriterStage.LOST
        return [Lost(code)]

    def _later(self, now: float, code: ErrorCode = ErrorCode.NONE) -> None:
        self._retry_at = now + (DENIED_S if code in DENIED else self._retry_s)
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    def _take_back(self) -> None:
        if not self._is_out:
            raise LocalProtocolError("an outcome of a request that was not sent")
        self._is_out = False
