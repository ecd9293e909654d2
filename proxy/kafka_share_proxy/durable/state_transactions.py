"""Transactions of one state partition: records of other topics that become visible together with an append.

Pure. The caller sends what `requests` returns, and reports it with `begun` and its result. `StateProducer` sends the
state records of the transaction, because their sequence numbers are those of the partition.

    ADDING ─ AddPartitionsToTxn succeeded ─▶ WRITING ─ all outside records are stored ─▶ STORING ─┐
      │                                         └────────── any refusal, or too late ─▶ ABORTING  │
      └─ refused: nothing was begun                         ┌─────── refused, or too late ──┴─────┤
                                                            └▶ ABORTING                           ▼
                                                                 the state records are stored: COMMITTING

Rules: durable/README.md 39 to 46.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from typing import NamedTuple

from kafka_share_proxy.durable.interfaces import OutsideRecords
from kafka_share_proxy.durable.produce_errors import Follows, what_follows
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode, LocalProtocolError
from kafka_share_proxy.wire.records import compression
from kafka_share_proxy.wire.records.records import Record, build_batch
from kafka_share_proxy.wire.values import TopicPartition

OUTSIDE_BYTES_MAX = 8 << 20
"""Maximum bytes of the outside records of one transaction, uncompressed."""
OUTSIDE_RECORDS_MAX = 10_000
"""Maximum number of outside records of one transaction."""
OUTSIDE_PARTITIONS_MAX = 256
"""Maximum number of outside partitions of one transaction."""
WAITING_MAX = 8
"""Maximum number of transactions that wait for an earlier one of the same state partition."""
WAIT_MAX_S = 10.0
"""Seconds after which a waiting transaction is refused."""
OPEN_MAX_S = 20.0
"""Seconds after which an uncommitted transaction is aborted, well before its coordinator would do it and fence the
producer (`producer_messages.TRANSACTION_MS`).
"""
REFUSE_AFTER_S = 5.0
"""Seconds for which a definite but temporary refusal of an outside partition is retried."""
UNKNOWN_TOPIC_S = 2.0
"""Seconds for which an unknown topic is retried: brokers know a new one after up to 0.6 s."""
RETRY_MIN_S, RETRY_MAX_S = 0.002, 0.25
"""Shortest and longest delay in seconds between two attempts. Markers of the transaction before take about 2 ms."""
DENIED_S = 5.0
"""Seconds between two attempts to end a transaction while the identity lacks a right."""
SEQUENCES_MAX = 10_000
"""Maximum number of outside partitions whose sequence numbers are kept. Beyond it, a new epoch begins them anew."""
SEQUENCES = 1 << 31
COMPRESS_BYTES = 4 << 10
"""Minimum size of outside records for compression, in bytes."""

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors of coordinators and lookups after which the request is repeated."""
_MAY_BE_ADDED = frozenset(
    {
        None,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Results of AddPartitionsToTxn after which the partitions may be added: TransactionStateManager returns two of them if
replicas are missing.
"""
_LOST = _FENCED | {ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
"""Errors of EndTxn after which the log must be read to find out the outcome."""


class Locate(NamedTuple):
    """Lookup of the leaders of outside partitions."""

    topics: tuple[str, ...]


class AddPartitions(NamedTuple):
    """AddPartitionsToTxn for these outside partitions and the state partition."""

    places: tuple[TopicPartition, ...]


class Write(NamedTuple):
    """Transactional Produce to an outside partition, with acks=all."""

    place: TopicPartition
    batch: bytes


class End(NamedTuple):
    """EndTxn, which commits or aborts."""

    committed: bool


TransactionRequest = Locate | AddPartitions | Write | End


class TransactionStep(Enum):
    """Steps of a transaction."""

    ADDING = auto()
    WRITING = auto()
    STORING = auto()
    COMMITTING = auto()
    ABORTING = auto()


class Ended(NamedTuple):
    """End of a transaction. `code`: NONE if it is committed, else nothing of it is or will be visible."""

    token: object
    code: ErrorCode


class Fenced(NamedTuple):
    """Another proxy has taken over, or the outcome cannot be found out by this producer."""

    code: ErrorCode


TransactionOutcome = Ended | Fenced


@dataclass(slots=True)
class _Attempts:
    """Attempts of one request."""

    since: float = -1.0
    """Time of the first one, or negative."""
    is_in_flight: bool = False
    is_unknown: bool = False
    """True if an attempt without a definite result may have been processed."""
    retry_at: float = -inf
    pause_s: float = RETRY_MIN_S

    def may_begin(self, now: float) -> bool:
        return not self.is_in_flight and now >= self.retry_at

    def begin(self, now: float) -> None:
        self.is_in_flight = True
        if self.since < 0:
            self.since = now

    def take_back(self) -> None:
        if not self.is_in_flight:
            raise LocalProtocolError("a result of a request that was not sent")
        self.is_in_flight = False

    def again(self, now: float, code: ErrorCode | None = None) -> None:
        denied = code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        self.retry_at = now + (DENIED_S if denied else self.pause_s)
        self.pause_s = min(2 * self.pause_s, RETRY_MAX_S)


@dataclass(slots=True)
class _Part:
    """Records for one outside partition."""

    records: Sequence[Record]
    size: int
    batch: bytes = b""
    is_stored: bool = False
    attempts: _Attempts = field(default_factory=_Attempts)


@dataclass(slots=True)
class _Transaction:
    """One `append_with`."""

    records: Sequence[Record]
    """Records for the state partition."""
    parts: dict[TopicPartition, _Part]
    token: object
    since: float
    step: TransactionStep = TransactionStep.ADDING
    refusal: ErrorCode = NO_ERROR
    is_state_sent: bool = False
    is_in_doubt: bool = False
    """True if sequence numbers are unknown, or a request may still reach a broker. A new epoch must follow."""
    locate: _Attempts = field(default_factory=_Attempts)
    add: _Attempts = field(default_factory=_Attempts)
    end: _Attempts = field(default_factory=_Attempts)

    @property
    def is_ending(self) -> bool:
        return self.step in (TransactionStep.COMMITTING, TransactionStep.ABORTING)

    @property
    def is_quiet(self) -> bool:
        """True if no Produce to an outside partition is in flight."""
        return not any(part.attempts.is_in_flight for part in self.parts.values())


@dataclass(slots=True)
class StateTransactions:
    """Transactions of one state partition, one after the other. All times are `now`, in monotonic seconds."""

    needs_new_epoch: bool = False
    """True after a transaction that was in doubt."""
    current: _Transaction | None = None
    is_active: bool = False
    """True while there is a transaction, present or waiting."""
    _waiting: deque[_Transaction] = field(default_factory=deque)
    _sequences: dict[TopicPartition, int] = field(default_factory=dict)
    """Next sequence number in this epoch, by outside partition."""

    def add(self, records: Sequence[Record], outside: Sequence[OutsideRecords], token: object, now: float) -> ErrorCode:
        """Queue a transaction. Return the code with which it is refused, or NONE.

        Raises LocalProtocolError for a part without records, or two for one partition.
        """
        parts = {TopicPartition(each.topic, each.partition): _Part(each.records, each.size) for each in outside}
        if not records or len(parts) != len(outside) or not all(part.records for part in parts.values()):
            raise LocalProtocolError("a transaction with a part without records, or two parts for one partition")
        if (
            len(parts) > OUTSIDE_PARTITIONS_MAX
            or sum(part.size for part in parts.values()) > OUTSIDE_BYTES_MAX
            or sum(len(part.records) for part in parts.values()) > OUTSIDE_RECORDS_MAX
        ):
            return ErrorCode.MESSAGE_TOO_LARGE
        if len(self._waiting) >= WAITING_MAX:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._waiting.append(_Transaction(records, parts, token, now))
        self.is_active = True
        return NO_ERROR

    def tokens(self) -> list[object]:
        current = [] if self.current is None else [self.current]
        return [each.token for each in (*current, *self._waiting)]

    def places(self) -> list[TopicPartition]:
        """Return the outside partitions of the present transaction."""
        return [] if self.current is None else list(self.current.parts)

    @property
    def holds_appends(self) -> bool:
        """True if a plain append to the state partition would get INVALID_TXN_STATE."""
        current = self.current
        return current is not None and (
            current.step in (TransactionStep.STORING, TransactionStep.COMMITTING)
            or (current.step is TransactionStep.ABORTING and current.is_state_sent)
        )

    @property
    def to_store(self) -> Sequence[Record]:
        """Records that are due for the state partition, in the transaction."""
        current = self.current
        return current.records if current is not None and current.step is TransactionStep.STORING else ()

    def new_epoch(self) -> None:
        self._sequences.clear()
        self.needs_new_epoch = False

    # Requests

    def start(self, producer_id: int, producer_epoch: int, now: float) -> None:
        """Begin the next transaction if there is none."""
        if self.current is not None or not self._waiting or self.needs_new_epoch:
            return
        current = self.current = self._waiting.popleft()
        current.since = now
        for place, part in current.parts.items():
            part.batch = build_batch(
                0,
                part.records,
                codec=compression.ZSTD if part.size >= COMPRESS_BYTES else compression.NONE,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=self._sequences.get(place, 0),
                is_transactional=True,
            )

    def requests(self, now: float, located: Container[TopicPartition]) -> list[TransactionRequest]:
        """Return requests of the present transaction. `located`: outside partitions whose leader is known."""
        current = self.current
        if current is None or current.step is TransactionStep.STORING:
            return []
        if current.is_ending:
            is_due = current.is_quiet and current.end.may_begin(now)
            return [End(current.step is TransactionStep.COMMITTING)] if is_due else []
        remaining = {place: part for place, part in current.parts.items() if not part.is_stored}
        requests: list[TransactionRequest] = []
        missing = sorted({place.topic for place in remaining if place not in located})
        if missing and current.locate.may_begin(now):
            requests.append(Locate(tuple(missing)))
        if current.step is TransactionStep.WRITING:
            requests += [
                Write(place, part.batch)
                for place, part in remaining.items()
                if place in located and part.attempts.may_begin(now)
            ]
        elif not missing and current.add.may_begin(now):
            requests.append(AddPartitions(tuple(current.parts)))
        return requests

    def request_sent(self, request: TransactionRequest, now: float) -> None:
        """Report that a request was sent."""
        current = self._present()
        if isinstance(request, Write):
            current.parts[request.place].attempts.begin(now)
        elif isinstance(request, AddPartitions):
            current.add.begin(now)
        elif isinstance(request, Locate):
            current.locate.begin(now)
        else:
            current.end.begin(now)

    def next_deadline(self) -> float:
        """Return the time at which `requests` or `StateProducer.overdue` may have a result without another event."""
        deadline = self._waiting[0].since + WAIT_MAX_S if self._waiting else inf
        current = self.current
        if current is None:
            return deadline
        if current.is_ending:
            attempts = [current.end] if current.is_quiet else []
        else:
            deadline = min(deadline, current.since + OPEN_MAX_S)
            attempts = [current.locate, current.add, *(part.attempts for part in current.parts.values())]
        return min([deadline, *(each.retry_at for each in attempts if not each.is_in_flight and each.retry_at > -inf)])

    # Results. A code of None means that the outcome is unknown.

    def located(self, codes: Collection[ErrorCode | None], now: float) -> list[TransactionOutcome]:
        """Process a lookup. `codes`: of the topics and partitions without a leader."""
        current = self._present()
        current.locate.take_back()
        if not codes or current.step not in (TransactionStep.ADDING, TransactionStep.WRITING):
            current.locate = _Attempts()
            return []
        for code in codes:
            if code is not None and self._is_final(code, now - current.locate.since):
                return self._give_up(current, code)
        current.locate.again(now)
        return []

    def added(self, code: ErrorCode | None, now: float) -> list[TransactionOutcome]:
        current = self._present()
        current.add.take_back()
        if code == NO_ERROR:
            if current.step is TransactionStep.ADDING:
                current.step = TransactionStep.WRITING
            return []
        if code in _FENCED:
            return [Fenced(ErrorCode.of(code))]
        if code in _MAY_BE_ADDED:
            current.add.is_unknown = current.is_in_doubt = True
        if code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:  # the coordinator forgot the producer
            current.is_in_doubt, code = True, ErrorCode.COORDINATOR_NOT_AVAILABLE
            return self._give_up(current, code)
        if code is not None and self._is_final(code, now - current.add.since):
            return self._give_up(current, code)
        current.add.again(now)
        return []

    def written(self, place: TopicPartition, code: ErrorCode | None, now: float) -> list[TransactionOutcome]:
        current = self._present()
        part = current.parts[place]
        part.attempts.take_back()
        follows = Follows.UNKNOWN if code is None else what_follows(code)
        if follows is Follows.STORED:
            part.is_stored = True
            self._sequences[place] = (self._sequences.get(place, 0) + len(part.records)) % SEQUENCES
            if current.step is TransactionStep.WRITING and all(each.is_stored for each in current.parts.values()):
                current.step = TransactionStep.STORING
            return []
        if follows is Follows.FENCED and code is not None:
            return [Fenced(code)]
        part.attempts.is_unknown = part.attempts.is_unknown or follows is Follows.UNKNOWN
        current.is_in_doubt = current.is_in_doubt or follows is Follows.START_AGAIN
        if current.step is TransactionStep.WRITING and code is not None:
            waited = now - part.attempts.since
            if (
                follows in (Follows.NEVER, Follows.TOO_LARGE, Follows.START_AGAIN)
                or (code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and waited >= UNKNOWN_TOPIC_S)
                or (follows is Follows.NOT_NOW and waited >= REFUSE_AFTER_S)
            ):
                return self._give_up(current, code)
        part.attempts.again(now)
        return []

    def state_sent(self) -> None:
        self._present().is_state_sent = True

    def state_stored(self) -> None:
        self._present().step = TransactionStep.COMMITTING

    def state_refused(self, code: ErrorCode, *, in_doubt: bool) -> list[TransactionOutcome]:
        """Abort, because the state records are not stored, or it is not known."""
        current = self._present()
        current.is_in_doubt = current.is_in_doubt or in_doubt
        return self._give_up(current, code)

    def give_up(self) -> list[TransactionOutcome]:
        """Abort an uncommitted transaction: the producer needs a new epoch."""
        current = self.current
        if current is None or current.is_ending or current.add.is_in_flight:
            return []
        return self._give_up(current, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def is_late(self, now: float) -> bool:
        """True if the present transaction must be aborted."""
        current = self.current
        return current is not None and not current.is_ending and now >= current.since + OPEN_MAX_S

    def expired(self, now: float) -> list[TransactionOutcome]:
        """Refuse transactions that waited too long."""
        outcomes: list[TransactionOutcome] = []
        while self._waiting and now >= self._waiting[0].since + WAIT_MAX_S:
            outcomes.append(Ended(self._waiting.popleft().token, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self.is_active = self.current is not None or bool(self._waiting)
        return outcomes

    def ended(self, code: ErrorCode | None, now: float) -> list[TransactionOutcome]:
        """Process the result of EndTxn. INVALID_TXN_STATE for an abort: there is no open transaction."""
        current = self._present()
        current.end.take_back()
        is_commit = current.step is TransactionStep.COMMITTING
        if code is None:  # if it arrives late, it would end the next transaction of this epoch
            current.is_in_doubt = True
        if code == NO_ERROR or (code == ErrorCode.INVALID_TXN_STATE and not is_commit):
            return self._finish(current)
        if code in _LOST and code is not None:
            return [Fenced(code)]
        current.end.again(now, code)
        return []

    def _give_up(self, current: _Transaction, code: ErrorCode) -> list[TransactionOutcome]:
        current.refusal = code
        if current.step is TransactionStep.ADDING and not current.add.is_unknown:
            return self._finish(current)
        current.step = TransactionStep.ABORTING
        return []

    def _finish(self, current: _Transaction) -> list[TransactionOutcome]:
        doubtful = any(part.attempts.is_unknown and not part.is_stored for part in current.parts.values())
        has_too_many = len(self._sequences) > SEQUENCES_MAX
        self.needs_new_epoch = self.needs_new_epoch or current.is_in_doubt or doubtful or has_too_many
        self.current, self.is_active = None, bool(self._waiting)
        return [Ended(current.token, current.refusal)]

    def _is_final(self, code: ErrorCode, waited_s: float) -> bool:
        """Return True if an error of a coordinator or lookup ends the transaction."""
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return waited_s >= UNKNOWN_TOPIC_S
        return code not in _AGAIN

    def _present(self) -> _Transaction:
        if self.current is None:
            raise LocalProtocolError("a result without a transaction")
        return self.current
