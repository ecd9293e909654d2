"""The leaders of a state partition and of outside partitions, and the transaction coordinator of its writer, in memory.

They follow TransactionCoordinator, ProducerAppendInfo and the verification of KIP-890 part 1, of Kafka 3.9 and 4.3. The
test decides with `Fate` what becomes of each request. A request may also arrive after its writer has given up on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka_share_proxy.durable.partition_log import ENDLESS, Replay
from kafka_share_proxy.durable.producer_requests import AppendInTransaction, Identify, Outcome
from kafka_share_proxy.durable.state_producer import StateProducer
from kafka_share_proxy.durable.state_transactions import AddPartitions, End, Locate, Write
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records.records import Record, build_batch, decode_records, iter_batches
from kafka_share_proxy.wire.values import TopicPartition

BATCHES_REMEMBERED = 5
PID = 7
STATE = TopicPartition("state", 0)
OK, CONCURRENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS


class Fate(NamedTuple):
    """What becomes of one request."""

    arrives: bool = True
    code: ErrorCode | None = OK
    """Code of the response instead of success. None: there is no response."""
    arrives_late: bool = False
    """True if it is processed at some later time."""


CALM = Fate()


@dataclass
class Log:
    """One partition: its batches and markers, and what is known of the producer."""

    data: bytes = b""
    end: int = 0
    epoch: int = -1
    last_sequence: int = -1
    batches: deque[tuple[int, int, int, int]] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))
    is_open: bool = False
    """True if a transaction has begun here."""
    ever: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def append(self, data: bytes, *, is_verified: bool) -> tuple[ErrorCode, int]:
        header = next(iter_batches(data))
        epoch, first = header.producer_epoch, header.base_sequence
        last = first + header.records_count - 1
        for known in self.batches:
            if known[:3] == (epoch, first, last):
                return OK, known[3]
        if header.is_transactional and not self.is_open and not is_verified:
            return ErrorCode.INVALID_TXN_STATE, -1
        if epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        expected = self.last_sequence + 1 if epoch == self.epoch else 0
        if self.epoch >= 0 and first != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        if self.is_open and not header.is_transactional:
            return ErrorCode.INVALID_TXN_STATE, -1
        before = self.ever.setdefault((epoch, first), data)
        assert before == data, f"sequence {first} of epoch {epoch} was used for other content"
        if epoch != self.epoch:
            self.batches.clear()
        offset = self._put(data, header.records_count)
        self.epoch, self.last_sequence = epoch, last
        self.batches.append((epoch, first, last, offset))
        self.is_open = self.is_open or header.is_transactional
        return OK, offset

    def mark(self, epoch: int, *, committed: bool) -> None:
        """Append a marker."""
        key = b"\0\0" + int(committed).to_bytes(2, "big")
        data = build_batch(
            0, [Record(key, bytes(6))], producer_id=PID, producer_epoch=epoch, is_transactional=True, is_control=True
        )
        self._put(data, 1)
        if epoch != self.epoch:
            self.epoch, self.last_sequence = epoch, -1
            self.batches.clear()
        self.is_open = False

    def _put(self, data: bytes, count: int) -> int:
        offset, self.end = self.end, self.end + count
        self.data += offset.to_bytes(8, "big") + data[8:]
        return offset

    def committed(self) -> list[bytes]:
        """Return the values that a read_committed reader receives, in the order of their commits."""
        values: list[bytes] = []
        opened: list[bytes] = []
        for batch in iter_batches(self.data):
            records = decode_records(self.data[batch.position : batch.end])
            if batch.is_control:
                values += opened if bytes(records[0].key or b"")[2:4] == b"\0\1" else []
                opened = []
            else:
                (opened if batch.is_transactional else values).extend(bytes(r.value or b"") for r in records)
        return values


class Brokers:
    """A coordinator with one transactional id, and the leaders of all partitions."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, Log] = {STATE: Log()}
        self.epoch = -1
        self.state = "Empty"
        """Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort."""
        self.added: set[TopicPartition] = set()
        self.late: list[Callable[[], object]] = []
        """Requests that arrive when the test calls `arrive`."""
        self.sent: list[str] = []
        """Names of the requests, in order."""
        self.markers_wait = False
        """True if markers are written only by `write_markers`."""

    # The coordinator

    def identify(self, request: Identify) -> tuple[ErrorCode, int, int]:
        if self.state.startswith("Prepare"):
            self.write_markers()
            return CONCURRENT, -1, -1
        if self.state == "Ongoing":  # the expected epoch is not compared in this state
            self.epoch += 1
            self.state = "PrepareAbort"
            return CONCURRENT, -1, -1
        if request.producer_id >= 0 and request.producer_epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED, -1, -1
        self.epoch, self.state, self.added = self.epoch + 1, "Empty", set()
        return OK, PID, self.epoch

    def add(self, epoch: int, places: tuple[TopicPartition, ...]) -> ErrorCode:
        if epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        if self.state.startswith("Prepare"):
            self._markers_soon()
            return CONCURRENT
        self.added = {*(self.added if self.state == "Ongoing" else ()), STATE, *places}
        self.state = "Ongoing"
        return OK

    def end(self, epoch: int, *, committed: bool) -> ErrorCode:
        if epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        kind = "Commit" if committed else "Abort"
        if self.state == "Ongoing":
            self.state = f"Prepare{kind}"
            self._markers_soon()
            return OK
        if self.state == f"Prepare{kind}":
            self._markers_soon()
            return CONCURRENT
        return OK if self.state == f"Complete{kind}" else ErrorCode.INVALID_TXN_STATE

    def _markers_soon(self) -> None:
        if not self.markers_wait:
            self.write_markers()

    def write_markers(self) -> None:
        if self.state.startswith("Prepare"):
            for place in self.added:
                self._log(place).mark(self.epoch, committed=self.state == "PrepareCommit")
            self.state = self.state.replace("Prepare", "Complete")

    # Leaders

    def _log(self, place: TopicPartition) -> Log:
        return self.logs.setdefault(place, Log())

    def append(self, place: TopicPartition, data: bytes) -> tuple[ErrorCode, int]:
        header = next(iter_batches(data))
        is_verified = self.state == "Ongoing" and place in self.added and header.producer_epoch == self.epoch
        return self._log(place).append(data, is_verified=is_verified)

    # Exchanges

    def exchange(self, producer: StateProducer, now: float, fate: Callable[[str], Fate]) -> list[Outcome]:
        """Process all requests that the writer has now. `fate` is called with the name of each."""
        outcomes = producer.overdue(now)
        for request in producer.transaction_requests(now, self._everywhere):
            producer.transactions.request_sent(request, now)
            outcomes += producer.settle(self._transact(producer, now, request, fate))
        append = producer.next_request(now)
        if isinstance(append, Identify):
            outcomes += self._identify(producer, now, append, fate("identify"))
        elif append is not None:
            name = "store" if isinstance(append, AppendInTransaction) else "append"
            self.sent.append(name)
            code, offset = self._process(lambda: self.append(STATE, append.batch), outcome := fate(name))
            if outcome.code is None:
                outcomes += producer.in_flight(now)
            else:
                outcomes += producer.appended(code if outcome.code == OK else outcome.code, offset, now)
        return outcomes

    @property
    def _everywhere(self) -> Any:
        class Everywhere:
            __contains__ = staticmethod(lambda _place: True)

        return Everywhere()

    def _identify(self, producer: StateProducer, now: float, request: Identify, fate: Fate) -> list[Outcome]:
        self.sent.append("identify")
        code, pid, epoch = self.identify(request) if fate.arrives else (OK, -1, -1)
        if fate.code is None:
            return producer.in_flight(now)
        return producer.identified(code if fate.code == OK else fate.code, pid, epoch, now)

    def _transact(self, producer: StateProducer, now: float, request: Any, fate: Callable[[str], Fate]) -> Any:
        epoch, transactions = producer.producer_epoch, producer.transactions
        assert not isinstance(request, Locate), "every leader is known"
        if isinstance(request, AddPartitions):
            self.sent.append("add")
            code, _ = self._process(lambda: (self.add(epoch, request.places), 0), outcome := fate("add"))
            return transactions.added(_code(code, outcome), now)
        if isinstance(request, Write):
            self.sent.append("write")
            code, _ = self._process(lambda: self.append(request.place, request.batch), outcome := fate("write"))
            return transactions.written(request.place, _code(code, outcome), now)
        assert isinstance(request, End)
        name = "commit" if request.committed else "abort"
        self.sent.append(name)
        code, _ = self._process(lambda: (self.end(epoch, committed=request.committed), 0), outcome := fate(name))
        return transactions.ended(_code(code, outcome), now)

    def _process(self, action: Callable[[], tuple[ErrorCode, int]], fate: Fate) -> tuple[ErrorCode, int]:
        if fate.arrives:
            return action()
        if fate.arrives_late:
            self.late.append(action)
        return OK, -1

    def arrive(self) -> None:
        """Process the requests that are late."""
        late, self.late = self.late, []
        for action in late:
            action()

    # Contents

    def stored(self, owner_epoch_of: Callable[[bytes], Any]) -> dict[bytes, bytes]:
        """Return the state that a takeover would read."""
        replay, data = Replay(owner_epoch_of, ENDLESS), self.logs[STATE].data
        for batch in iter_batches(data):
            replay.read(batch, lambda batch=batch: decode_records(data[batch.position : batch.end]))  # type: ignore[misc]
        return {bytes(key): bytes(value) for key, value in replay.values.items()}

    def outside(self) -> Iterator[tuple[TopicPartition, list[bytes]]]:
        for place, log in self.logs.items():
            if place != STATE:
                yield place, log.committed()


def _code(code: ErrorCode, fate: Fate) -> ErrorCode | None:
    return code if fate.code == OK else fate.code
