"""Producer of one state partition: sequence numbers, retries, fencing.

Pure. The caller sends what `next_request` returns and reports the result.

    IDENTIFYING ─ InitProducerId succeeded ──▶ TAKING_OVER ─ the takeover record is in the log ─▶ READY
      ▲   └─ a new producer id (epoch 0) ─▶ CHECKING ─ the caller proceeds ─▶ TAKING_OVER           │
      └─────── 45 (the broker forgot this producer), or the identity must be renewed ────────────────┘
    any ─ 47 or 90: another proxy took over ─▶ LOST, for good

Rules: durable/README.md 6 to 13, 16, 19 and 39 to 46.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf

from kafka_share_proxy.durable.interfaces import OutsideRecords
from kafka_share_proxy.durable.produce_errors import Follows, what_follows
from kafka_share_proxy.durable.producer_batches import Entry, ProducerBatch
from kafka_share_proxy.durable.producer_requests import (
    Append,
    AppendInTransaction,
    Identify,
    Lost,
    Outcome,
    Refused,
    RequestType,
    Stored,
    TakenOver,
    WentBack,
)
from kafka_share_proxy.durable.state_transactions import (
    Fenced,
    StateTransactions,
    TransactionOutcome,
    TransactionRequest,
)
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode, LocalProtocolError
from kafka_share_proxy.wire.records import compression
from kafka_share_proxy.wire.records.records import HEADER, Record, build_batch, bytes_max
from kafka_share_proxy.wire.values import TopicPartition

BATCH_BYTES_MAX = 128 << 10
"""Maximum bytes of the records in one append, below the limit of brokers (message.max.bytes, 1 MiB)."""
RECORD_OVERHEAD = 32
"""Maximum bytes of a record in addition to its key and value."""
COMPRESS_BYTES = 4 << 10
"""Minimum batch size for compression, in bytes."""
SMALLER_S = 60.0
"""Seconds for which batches are halved after one was too large."""
WAITING_BYTES_MAX = 64 << 20
"""Maximum bytes that wait for an append of one partition."""
REFUSE_AFTER_S = 5.0
"""Seconds for which a definite failure is retried: leaders move, replicas return."""
WAIT_MAX_S = 10.0
"""Seconds after which an entry is refused that waits for an append with an unknown outcome."""
RETRY_MIN_S, RETRY_MAX_S = 0.02, 0.25
"""Shortest and longest delay in seconds between two attempts. No append is confirmed meanwhile."""
MARKER_PAUSE_S = 0.002
"""Delay in seconds before an append is repeated that arrived before the marker of a transaction. Doubles each time."""
DENIED_S = 5.0
"""Seconds between two attempts while the identity lacks a right."""
KEEP_ALIVE_S = 6 * 3600.0
"""A quarter of Kafka's default for `producer.id.expiration.ms`."""
IDENTITY_S = 24 * 3600.0
"""Seconds between two renewals, because appends do not reset `transactional.id.expiration.ms` (7 days by default)."""
SEQUENCES = 1 << 31

DENIED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Errors for a missing right of the proxy's identity."""
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""InitProducerId errors of a producer that was replaced."""


class WriterStage(Enum):
    """Stage of the takeover."""

    IDENTIFYING = auto()
    CHECKING = auto()
    TAKING_OVER = auto()
    READY = auto()
    LOST = auto()


_READY, _LOST = WriterStage.READY, WriterStage.LOST
"""Attribute access on an enum is slow in CPython 3.11."""


_REQUEST_BEFORE_READY: Mapping[WriterStage, type[Identify] | type[Append]] = {
    WriterStage.IDENTIFYING: Identify,
    WriterStage.TAKING_OVER: Append,
}
"""Other stages send nothing."""


@dataclass(slots=True)
class StateProducer:
    """Producer of one state partition. All times are `now`, in monotonic seconds."""

    takeover: Callable[[int, int], Record]
    """Build the takeover record for a (producer id, epoch), with a unique key (durable/README.md rule 14)."""
    keep_alive: Record
    keep_alive_s: float = KEEP_ALIVE_S
    identity_s: float = IDENTITY_S
    stage: WriterStage = WriterStage.IDENTIFYING
    producer_id: int = -1
    producer_epoch: int = -1
    waiting_bytes: int = 0
    batch_bytes_max: int = BATCH_BYTES_MAX
    _smaller_bytes: int = 0
    _smaller_until: float = -inf
    _sequence: int = 0
    _log_end: int = 0
    _waiting: deque[Entry] = field(default_factory=deque)
    _batch: ProducerBatch | None = None
    _is_in_flight: bool = False
    """True while a request is in flight."""
    _retry_at: float = -inf
    _retry_s: float = RETRY_MIN_S
    append_by: float = inf
    """Time at which a keep-alive is due."""
    identify_by: float = inf
    """Time at which the renewal of the identity is due."""
    transactions: StateTransactions = field(default_factory=StateTransactions)
    _awaits_marker: bool = False
    """True if the marker of the last transaction may not be in the partition yet."""
    _marker_pause_s: float = MARKER_PAUSE_S

    def renew_every(self, keep_alive_s: float, identity_s: float, now: float) -> None:
        self.keep_alive_s, self.identity_s = keep_alive_s, identity_s
        self.append_by = min(self.append_by, now + keep_alive_s)
        self.identify_by = min(self.identify_by, now + identity_s)

    def limit_batches(self, message_bytes: int) -> None:
        """Limit batches. Compression does not count: the broker may decompress the batch (`compression.type`)."""
        self.batch_bytes_max = min(BATCH_BYTES_MAX, message_bytes)

    def add(self, records: Sequence[Record], token: object, now: float) -> bool:
        """Queue records to be stored all or none, as `token`. False if too much waits, or the partition is lost."""
        size = RECORD_OVERHEAD * len(records)
        for record in records:
            size += len(record.key or b"") + len(record.value or b"")
        if self.stage is _LOST or self.waiting_bytes + size > WAITING_BYTES_MAX:
            return False
        self._waiting.append(Entry(records, token, size, now))
        self.waiting_bytes += size
        return True

    def wants(self, now: float) -> RequestType | None:
        """Return the type of the next request, whose destination may have to be looked up."""
        if self._is_in_flight or now < self._retry_at:
            return None
        transactions, batch = self.transactions, self._batch
        if self.stage is not _READY:
            is_open = transactions.current is not None and self.stage is WriterStage.IDENTIFYING
            return None if is_open else _REQUEST_BEFORE_READY.get(self.stage)
        if batch is not None:
            return AppendInTransaction if batch.is_transactional else Append
        if transactions.current is None:
            if now >= self.identify_by or transactions.needs_new_epoch:
                return Identify
        elif transactions.to_store:
            return AppendInTransaction
        elif transactions.holds_appends:
            return None
        return Append if self._waiting or now >= self.append_by else None

    def next_request(self, now: float) -> Identify | Append | AppendInTransaction | None:
        """Return a request, whose result the caller reports (`identified`, `appended`, `in_flight` or `unsent`)."""
        request_type = self.wants(now)
        if request_type is None:
            return None
        if request_type is Identify:
            return self.next_identify()
        batch = self.next_batch(now)
        return Append(batch) if request_type is Append else AppendInTransaction(batch)

    def next_identify(self) -> Identify:
        """Return the request that `wants` has named. See `next_request`."""
        self._is_in_flight = True
        self.stage = WriterStage.IDENTIFYING
        return Identify(self.producer_id, self.producer_epoch)

    def next_batch(self, now: float) -> bytes:
        """Return the batch of the append that `wants` has named. See `next_request`."""
        self._is_in_flight = True
        batch = self._batch
        if batch is None:
            batch = self._batch = self._next_batch(now)
        if batch.is_transactional:
            self.transactions.state_sent()
            self._awaits_marker, self._marker_pause_s = True, MARKER_PAUSE_S
        return batch.data

    def transaction_requests(self, now: float, located: Container[TopicPartition]) -> list[TransactionRequest]:
        """Return requests of a transaction, except the append of its state. See StateTransactions.requests."""
        if self.stage is _READY and now < self.identify_by:
            self.transactions.start(self.producer_id, self.producer_epoch, now)
        return self.transactions.requests(now, located)

    def proceed(self) -> None:
        """Take over: no owner with another producer id is left."""
        if self.stage is not WriterStage.CHECKING:
            raise LocalProtocolError(f"proceed while {self.stage.name}")
        self.stage = WriterStage.TAKING_OVER

    def next_deadline(self) -> float:
        """Return the time at which a request or `overdue` may have a result without another event."""
        if self.stage is _LOST:
            return inf
        deadline, transactions = self._next_deadline(), self.transactions
        return min(deadline, transactions.next_deadline()) if transactions.is_active else deadline

    def _next_deadline(self) -> float:
        oldest = self._oldest_unsent() + WAIT_MAX_S
        if self._is_in_flight or (self.stage is not _READY and self.stage is WriterStage.CHECKING):
            return oldest
        if self._batch is None and self.transactions.holds_appends:
            return max(self._retry_at, 0.0) if self.transactions.to_store else oldest
        if self.stage is not _READY or self._batch is not None or self._waiting:
            return min(max(self._retry_at, 0.0), oldest)
        return max(self._retry_at, min(self.append_by, self.identify_by))

    def identified(self, code: ErrorCode, producer_id: int, producer_epoch: int, now: float) -> list[Outcome]:
        self._take_back()
        if code in FENCED:
            return self._lose(code)
        if code != ErrorCode.NONE:
            self._retry_later(now, code)
            return []
        self._retry_s = RETRY_MIN_S
        is_new = self.producer_id < 0 and producer_epoch == 0
        self.producer_id, self.producer_epoch, self._sequence = producer_id, producer_epoch, 0
        self.transactions.new_epoch()
        self._awaits_marker = False
        self.stage = WriterStage.CHECKING if is_new else WriterStage.TAKING_OVER
        self.identify_by = now + self.identity_s
        return []

    def appended(self, code: ErrorCode, offset: int, now: float) -> list[Outcome]:
        """Process the response. `offset`: of the first record."""
        self._take_back()
        batch = self._batch
        if batch is None:
            raise LocalProtocolError("a Produce response without a Produce in flight")
        if batch.is_transactional:
            return self._appended_in_transaction(batch, code, offset, now)
        if code == NO_ERROR:
            return self._accepted(batch, offset, now)
        if self.is_before_marker(code):
            return self._before_marker(batch, now)
        match what_follows(code):
            case Follows.STORED:
                return self._accepted(batch, offset, now)
            case Follows.FENCED:
                return self._lose(code)
            case Follows.START_AGAIN:
                self._start_again(batch)
                return self.settle(self.transactions.give_up())
            case Follows.NOT_NOW:
                return self._refused(batch, code, now, final=now - batch.since >= REFUSE_AFTER_S)
            case Follows.NEVER:
                return self._refused(batch, code, now, final=True)
            case Follows.TOO_LARGE:
                return self._too_large(batch, code, now)
            case Follows.UNKNOWN:
                return self._unknown(batch, now)

    def in_flight(self, now: float) -> list[Outcome]:
        """Process a request that was sent at least in part, with an unknown outcome."""
        self._take_back()
        if self.stage is WriterStage.IDENTIFYING or self._batch is None:
            self._retry_later(now)  # a repetition returns the same identity, or the next epoch
            return []
        return self._unknown(self._batch, now)

    def unsent(self, now: float) -> list[Outcome]:
        self._take_back()
        if self.stage is WriterStage.IDENTIFYING or self._batch is None:
            self._retry_later(now)
            return []
        final = now - self._batch.since >= REFUSE_AFTER_S
        return self._refused(self._batch, ErrorCode.COORDINATOR_NOT_AVAILABLE, now, final=final)

    def overdue(self, now: float) -> list[Outcome]:
        """Refuse entries that waited too long for an append that cannot be settled, and abort a late transaction."""
        late = self._late_transactions(now) if self.transactions.is_active else []
        if not self._waiting or self._waiting[0].since + WAIT_MAX_S > now:
            return late  # the first one is the oldest
        retained_entries, outcomes = deque[Entry](), late
        for entry in self._waiting:
            if entry.unknown or entry.since + WAIT_MAX_S > now:
                retained_entries.append(entry)
            else:
                self.waiting_bytes -= entry.size
                outcomes.append(Refused(entry.token, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self._waiting = retained_entries
        return outcomes

    def _oldest_unsent(self) -> float:
        for entry in self._waiting:
            if not entry.unknown:
                return entry.since
        return inf

    def tokens(self) -> list[object]:
        entries = [*(self._batch.entries if self._batch is not None else ()), *self._waiting]
        return [*(entry.token for entry in entries), *self.transactions.tokens()]

    # Transactions

    def add_transaction(
        self, records: Sequence[Record], outside: Sequence[OutsideRecords], token: object, now: float
    ) -> ErrorCode:
        """Queue a transaction. Return the code with which it is refused, or NONE."""
        if self.stage is _LOST:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if len(records) > 1 and bytes_max(records) > self.batch_bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE
        return self.transactions.add(records, outside, token, now)

    def settle(self, results: Iterable[TransactionOutcome]) -> list[Outcome]:
        """Return the outcomes of results of `transactions`."""
        outcomes: list[Outcome] = []
        for result in results:
            if isinstance(result, Fenced):
                outcomes += self._lose(result.code)
            elif result.code == ErrorCode.NONE:
                outcomes.append(Stored(result.token))
            else:
                outcomes.append(Refused(result.token, result.code))
        return outcomes

    def _late_transactions(self, now: float) -> list[Outcome]:
        transactions, batch = self.transactions, self._batch
        if self.stage is _LOST:
            return []
        results = transactions.expired(now)
        if self.stage is _READY and not transactions.is_late(now):
            return self.settle(results)
        if batch is None or not batch.is_transactional:
            results += transactions.give_up()
        elif not self._is_in_flight:
            results += self._abort(batch, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self.settle(results)

    def _appended_in_transaction(self, batch: ProducerBatch, code: ErrorCode, offset: int, now: float) -> list[Outcome]:
        follows = what_follows(code)
        if follows is Follows.STORED:
            outcomes = self._accepted(batch, offset, now)
            if self.stage is _READY:
                self.transactions.state_stored()
            return outcomes
        if follows is Follows.FENCED:
            return self._lose(code)
        if follows is Follows.UNKNOWN:
            return self._unknown(batch, now)
        if follows is Follows.NOT_NOW and now - batch.since < REFUSE_AFTER_S:
            self._retry_later(now)
            return []
        return self.settle(self._abort(batch, code, forgotten=follows is Follows.START_AGAIN))

    def _abort(self, batch: ProducerBatch, code: ErrorCode, *, forgotten: bool = False) -> list[TransactionOutcome]:
        """Abort a transaction whose state is not stored, or may be. `forgotten`: the broker forgot the producer."""
        self._batch = None
        return self.transactions.state_refused(code, in_doubt=batch.unknown or forgotten)

    def is_before_marker(self, code: ErrorCode) -> bool:
        """Return True if a plain append got this code because the marker of the last transaction follows it."""
        return code == ErrorCode.INVALID_TXN_STATE and self._awaits_marker

    def _before_marker(self, batch: ProducerBatch, now: float) -> list[Outcome]:
        """Process the refusal of a plain append that arrived before the marker of the last transaction."""
        if now - batch.since >= REFUSE_AFTER_S and not batch.may_be_stored:
            return self._refused(batch, ErrorCode.COORDINATOR_NOT_AVAILABLE, now, final=True)
        self._retry_at = now + self._marker_pause_s
        self._marker_pause_s = min(2 * self._marker_pause_s, RETRY_MAX_S)
        return []

    # What to append

    def _next_batch(self, now: float) -> ProducerBatch:
        records: Sequence[Record]
        entries: Sequence[Entry] = ()
        size, is_takeover, is_transactional = 0, False, False
        if self.stage is not _READY:
            records, is_takeover = [self.takeover(self.producer_id, self.producer_epoch)], True
        elif to_store := self.transactions.to_store:
            records, size, is_transactional = to_store, bytes_max(to_store), True
        elif self._waiting:
            entries, size = self._next_entries(now)
            records = entries[0].records if len(entries) == 1 else [each for entry in entries for each in entry.records]
        else:
            records = [self.keep_alive]
        data = build_batch(
            0,
            records,
            codec=compression.ZSTD if size >= COMPRESS_BYTES else compression.NONE,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self._sequence,
            is_transactional=is_transactional,
        )
        return ProducerBatch(data, len(records), now, entries, is_takeover, is_transactional)

    def _next_entries(self, now: float) -> tuple[list[Entry], int]:
        """Remove the waiting entries that fit in one batch, at least one. Return them and their size."""
        waiting = self._waiting
        first = waiting.popleft()
        entries, size = [first], first.size
        if waiting:
            limit = (self.batch_bytes_max if now >= self._smaller_until else self._smaller_bytes) - HEADER.size
            while waiting and size + waiting[0].size <= limit:
                entries.append(waiting.popleft())
                size += entries[-1].size
        self.waiting_bytes -= size
        return entries, size

    # Outcomes of appends

    def _accepted(self, batch: ProducerBatch, offset: int, now: float) -> list[Outcome]:
        if 0 <= offset < self._log_end:
            self.stage = WriterStage.LOST
            return [WentBack(offset)]
        self._log_end = max(self._log_end, offset + batch.count)
        self._batch = None
        self._retry_s = RETRY_MIN_S
        self._sequence = (self._sequence + batch.count) % SEQUENCES
        self.append_by = now + self.keep_alive_s
        self._awaits_marker = self._awaits_marker and batch.is_transactional
        if batch.is_takeover:
            self.stage = WriterStage.READY
            return [TakenOver(offset, self.producer_id, self.producer_epoch)]
        return [Stored(entry.token) for entry in batch.entries]

    def _refused(self, batch: ProducerBatch, code: ErrorCode, now: float, *, final: bool) -> list[Outcome]:
        """Process a refusal. `final`: give up instead of retrying."""
        if not final or batch.is_takeover or batch.may_be_stored:
            self._retry_later(now, code)
            return []
        self._batch = None
        if not batch.entries:
            self._retry_later(now)
        return [Refused(entry.token, code) for entry in batch.entries]

    def _too_large(self, batch: ProducerBatch, code: ErrorCode, now: float) -> list[Outcome]:
        """Halve the batch. A single entry that is too large is refused."""
        if len(batch.entries) < 2:
            return self._refused(batch, code, now, final=True)
        self._smaller_bytes, self._smaller_until = batch.size // 2, now + SMALLER_S
        if batch.unknown:  # these sequence numbers must never be reused for other content
            self._start_again(batch)
        else:
            self._put_back(batch)
        return []

    def _unknown(self, batch: ProducerBatch, now: float) -> list[Outcome]:
        batch.unknown = True
        for entry in batch.entries:
            entry.unknown = True
        self._retry_later(now)
        return []

    def _start_again(self, batch: ProducerBatch) -> None:
        """Abandon sequence numbers. The same content will follow a new takeover record."""
        self._put_back(batch)
        self.stage = WriterStage.IDENTIFYING

    def _put_back(self, batch: ProducerBatch) -> None:
        self._batch = None
        self._waiting.extendleft(reversed(batch.entries))
        self.waiting_bytes += sum(entry.size for entry in batch.entries)

    def _lose(self, code: ErrorCode) -> list[Outcome]:
        self.stage = WriterStage.LOST
        return [Lost(code)]

    def _retry_later(self, now: float, code: ErrorCode = ErrorCode.NONE) -> None:
        self._retry_at = now + (DENIED_S if code in DENIED else self._retry_s)
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    def _take_back(self) -> None:
        if not self._is_in_flight:
            raise LocalProtocolError("an outcome of a request that was not sent")
        self._is_in_flight = False
