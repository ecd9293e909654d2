"""The leader of one state partition and the coordinator of its writer, as Kafka 3.9 and 4.3 have them.

Appends, refusals and duplicates of a leader follow UnifiedLog, ProducerAppendInfo and ProducerStateEntry; the test
decides on responses and their times: see `exchange`.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kafka_share_proxy.durable.producer_requests import Append, Identify, Outcome
from kafka_share_proxy.durable.state_producer import StateProducer
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records.records import iter_batches

BATCHES_REMEMBERED = 5
"""ProducerStateEntry.NUM_BATCHES_TO_RETAIN."""
CUT, UNSENT = "cut", "unsent"
PID = 7


class Weather(NamedTuple):
    """Fate of one Produce."""

    appended: bool
    """True if it reaches the log of the leader."""
    response: ErrorCode | str
    """Response to the writer: a code, CUT or UNSENT."""


CALM = Weather(True, ErrorCode.NONE)
AFTER_APPEND = [
    Weather(True, response)
    for response in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        CUT,
    )
]
BEFORE_APPEND = [
    Weather(False, response)
    for response in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        CUT,
        UNSENT,
    )
]
NOT_ALLOWED = Weather(False, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class StateLeader:
    """One log, what is known of the one producer id that writes to it, and that id's epoch."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.losses = 0
        """How often batches were lost."""
        self.committed = 0
        """Batches that every in-sync replica has."""
        self.epoch = -1
        """Given by InitProducerId."""
        self.ever: dict[tuple[int, int], bytes] = {}
        """(epoch, sequence) -> what was appended under it, here or at a leader whose log is lost."""
        self._producer_epoch = -1
        self._last_sequence = -1
        self._batches: deque[tuple[int, int, int]] = deque(maxlen=BATCHES_REMEMBERED)

    def identify(self, request: Identify) -> tuple[ErrorCode, int, int]:
        """Respond to InitProducerId: (code, producer id, epoch)."""
        if request.producer_id >= 0 and request.producer_epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED, -1, -1
        self.epoch += 1
        return ErrorCode.NONE, PID, self.epoch

    def append(self, data: bytes) -> ErrorCode:
        """Append, or find a duplicate, whatever its content, or refuse; replicas are not awaited."""
        header = next(iter_batches(data))
        epoch, first = header.producer_epoch, header.base_sequence
        last = first + header.records_count - 1
        if (epoch, first, last) in self._batches:
            return ErrorCode.NONE
        if epoch < self._producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        expected = self._last_sequence + 1 if epoch == self._producer_epoch else 0
        if self._producer_epoch >= 0 and first != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        before = self.ever.setdefault((epoch, first), data)
        assert before == data, f"sequence {first} of epoch {epoch} was used for other content"
        self.log.append(data)
        self._remember(epoch, first, last)
        return ErrorCode.NONE

    def commit(self) -> None:
        """Replicate everything."""
        self.committed = len(self.log)

    def lose_tail(self) -> None:
        """Change the leader. Records that the replicas did not have are lost."""
        del self.log[self.committed :]
        self.losses += 1
        self._producer_epoch = self._last_sequence = -1
        self._batches.clear()
        for data in self.log:
            header = next(iter_batches(data))
            first = header.base_sequence
            self._remember(header.producer_epoch, first, first + header.records_count - 1)

    def _remember(self, epoch: int, first: int, last: int) -> None:
        if epoch != self._producer_epoch:
            self._batches.clear()
        self._producer_epoch, self._last_sequence = epoch, last
        self._batches.append((epoch, first, last))

    def exchange(self, producer: StateProducer, now: float, weather: Weather) -> list[Outcome]:
        """Give the writer's next request to the leader, and the response to the writer; nothing if it wants nothing."""
        request = producer.next_request(now)
        if isinstance(request, Identify):
            return producer.identified(*self.identify(request), now)
        if not isinstance(request, Append):
            return []
        code = self.append(request.batch) if weather.appended else ErrorCode.NONE
        if weather.response == CUT:
            return producer.in_flight(now)
        if weather.response == UNSENT:
            return producer.unsent(now)
        if code == ErrorCode.NONE:
            assert isinstance(weather.response, ErrorCode), weather.response
            code = weather.response
            if code == ErrorCode.NONE:
                self.commit()
        return producer.appended(code, self._offset_of(request.batch), now)

    def _offset_of(self, data: bytes) -> int:
        """Return the offset of the first record of a batch; -1 if it is not in the log."""
        if data not in self.log:
            return -1
        return sum(next(iter_batches(each)).records_count for each in self.log[: self.log.index(data)])
