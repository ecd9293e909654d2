"""Journals that fail in every way they can, for `tests/support/storm.py`.

`StormJournal` stores and responds on the storm's command. `LogJournal` is the writer of the product (`StateProducer`)
over leaders that append and then return an error, refuse, forget, lose unreplicated records and cut: the stored content
is what a takeover would read from their logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kafka_share_proxy.durable.interfaces import JournalRefused
from kafka_share_proxy.durable.partition_log import Replay
from kafka_share_proxy.durable.producer_requests import Append as Produce
from kafka_share_proxy.durable.producer_requests import Outcome, Refused, Stored
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.durable.state_producer import StateProducer, WriterStage
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.sharegroups.model.snapshot import ShareSnapshot
from kafka_share_proxy.sharegroups.state import state_records
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE, StateKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records.records import Record, decode_records, iter_batches

from tests.sharegroups.model.world import Chooser
from tests.support.state_leader import AFTER_APPEND, BEFORE_APPEND, CALM, CUT, NOT_ALLOWED, StateLeader, Weather


@dataclass(eq=False)
class Append:
    """One append on its way."""

    records: list[tuple[StateKey, bytes | None]]
    promise: Promise[None] = field(default_factory=Promise)
    unknown: bool = False
    """An attempt had no response: it is repeated until there is one, and cannot be refused any longer."""
    written: bool = False

    @property
    def lane(self) -> int:
        return state_partition(self.records[0][0].group_id) if self.records else -1


class StormJournal:
    """A compacted topic whose responses arrive on the storm's command, or never."""

    def __init__(self) -> None:
        self.stored: dict[StateKey, bytes] = {}
        self.waiting: list[Append] = []
        self.stopped = False
        """True after the loss of ownership: everything is refused immediately."""

    def append(self, records: object) -> Promise[None]:
        append = Append(list(records))  # type: ignore[call-overload]
        if self.stopped:
            append.promise.fail(JournalRefused(ErrorCode.NOT_COORDINATOR))
        else:
            self.waiting.append(append)
        return append.promise

    def firsts(self) -> list[Append]:
        """Return the appends that may be in flight: one of each partition."""
        by_key: dict[int, Append] = {}
        for append in self.waiting:
            by_key.setdefault(append.lane, append)
        return list(by_key.values())

    def write(self, append: Append) -> None:
        """Write it to the log, reported or not. A snapshot never takes back what an earlier one said."""
        if append.written:
            return
        append.written = True
        for key, value in append.records:
            before = self.stored.pop(key, None)
            if value is not None:
                self.stored[key] = value
            check_start_offset(key, before, value)

    def confirm(self, append: Append) -> None:
        self.write(append)
        self.waiting.remove(append)
        append.promise.set(None)

    def confirm_all(self) -> None:
        while self.waiting:
            self.confirm(self.waiting[0])

    def confirm_some(self, chooser: Chooser) -> None:
        if firsts := self.firsts():
            self.confirm(firsts[chooser.number(0, len(firsts) - 1)])

    def refuse_some(self, chooser: Chooser) -> None:
        if firsts := [append for append in self.firsts() if not append.unknown]:
            append = firsts[chooser.number(0, len(firsts) - 1)]
            self.waiting.remove(append)
            append.promise.fail(JournalRefused(ErrorCode.NOT_COORDINATOR))

    def lose_response(self, chooser: Chooser) -> None:
        """Time out an attempt with an unknown outcome."""
        if firsts := self.firsts():
            append = firsts[chooser.number(0, len(firsts) - 1)]
            append.unknown = True
            if chooser.number(0, 1):
                self.write(append)

    def change_hands(self, chooser: Chooser) -> list[Promise[None]]:
        """Replace the owner. Appends in flight are in the log or not. Return the unreported
        outcomes.
        """
        for append in self.firsts():
            if chooser.number(0, 1):
                self.write(append)
        waiting, self.waiting = self.waiting, []
        return [append.promise for append in waiting]


def check_start_offset(key: StateKey, before: bytes | None, value: bytes | None) -> None:
    """Check that a snapshot never takes back what an earlier one said, unless an administrator began anew."""
    if key.kind == "partition" and before is not None and value is not None:
        old, new = ShareSnapshot.decode(before), ShareSnapshot.decode(value)
        assert new.state_epoch > old.state_epoch or new.start_offset >= old.start_offset, "start offset stored"


TURN_S, PATIENCE_S = 0.7, 3.0
"""Between two exchanges; and where everything is refused until it is given up."""
TRIES_MAX = 100


class LogLane:
    """One state partition: its leader, its present writer, and what a takeover would read."""

    def __init__(self) -> None:
        self.leader = StateLeader()
        self.now = 0.0
        self.late: list[bytes] = []
        """Requests of which the connection was cut: they may still arrive."""
        self._replay, self._batches, self._losses = _replay(), 0, 0
        """How far the log was read, after how many losses."""
        self.take_over()

    def take_over(self) -> None:
        """Make a new writer, which nothing hinders."""
        self.producer = StateProducer(
            lambda pid, epoch: SHARE_STATE.takeover("storm", 0, pid, epoch), SHARE_STATE.keep_alive()
        )
        while self.producer.stage is not WriterStage.READY:
            if self.producer.stage is WriterStage.CHECKING:
                self.producer.proceed()
            self.exchange(CALM)
        self.leader.commit()

    def exchange(self, weather: Weather, turn_s: float = TURN_S) -> None:
        """Complete one request, and report it to its waiters."""
        self.now += turn_s
        outcomes = self.leader.exchange(self.producer, self.now, weather)
        out = self.producer._batch
        if weather.response == CUT and out is not None:
            self.late.append(out.data)
        self._tell([*outcomes, *self.producer.overdue(self.now)])

    def _tell(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Stored):
                outcome.token.set(None)  # type: ignore[attr-defined]
            elif isinstance(outcome, Refused):
                outcome.token.fail(JournalRefused(outcome.code))  # type: ignore[attr-defined]

    def stored(self) -> dict[StateKey, bytes]:
        """Return what a takeover at this moment would read."""
        log = self.leader.log
        if self._losses != self.leader.losses:
            self._losses, self._replay, self._batches = self.leader.losses, _replay(), 0
        for data in log[self._batches :]:
            before = dict(self._replay.values)
            self._replay.read(next(iter_batches(data)), lambda data=data: decode_records(data))  # type: ignore[misc]
            for record in decode_records(data):
                key = record.key or b""
                if key in before and key in self._replay.values:
                    check_start_offset(state_records.decode_key(key), before[key], self._replay.values[key])
        self._batches = len(log)
        return {state_records.decode_key(key): value for key, value in self._replay.values.items()}


def _replay() -> Replay:
    return Replay(SHARE_STATE.owner_epoch_of, until=1 << 62)


class LogJournal:
    """Writers and leaders of as many state partitions as are used."""

    def __init__(self) -> None:
        self.lanes: dict[int, LogLane] = {}
        self.stopped = False
        """True after the loss of ownership: everything is refused immediately."""

    def append(self, records: Sequence[tuple[StateKey, bytes | None]]) -> Promise[None]:
        promise: Promise[None] = Promise()
        if self.stopped:
            promise.fail(JournalRefused(ErrorCode.NOT_COORDINATOR))
            return promise
        number = state_partition(records[0][0].group_id)
        lane = self.lanes.setdefault(number, LogLane())
        encoded = [Record(state_records.encode_key(key), value) for key, value in records]
        assert lane.producer.add(encoded, promise, lane.now)
        return promise

    @property
    def stored(self) -> dict[StateKey, bytes]:
        by_key: dict[StateKey, bytes] = {}
        for lane in self.lanes.values():
            by_key |= lane.stored()
        return by_key

    def _busy(self) -> list[LogLane]:
        return [lane for lane in self.lanes.values() if lane.producer.tokens()]

    def _some(self, chooser: Chooser) -> LogLane | None:
        busy = self._busy()
        return busy[chooser.number(0, len(busy) - 1)] if busy else None

    def confirm_all(self) -> None:
        for _ in range(TRIES_MAX * 100):
            busy = self._busy()
            if not busy:
                return
            busy[0].exchange(CALM)
        raise AssertionError("the writer never ends")

    def confirm_some(self, chooser: Chooser) -> None:
        """Run without faults until one more append is reported, or must be repeated after a new takeover."""
        if lane := self._some(chooser):
            before = len(lane.producer.tokens())
            for _ in range(TRIES_MAX):
                lane.exchange(CALM)
                if len(lane.producer.tokens()) < before:
                    return

    def refuse_some(self, chooser: Chooser) -> None:
        """Refuse definitely: immediately, or because it was never appended for long enough."""
        if lane := self._some(chooser):
            if chooser.number(0, 1):
                lane.exchange(NOT_ALLOWED)
            else:
                self._starve(lane)

    def _starve(self, lane: LogLane) -> None:
        """Have too few replicas for longer than any attempt lasts."""
        for _ in range(3):
            lane.exchange(Weather(False, ErrorCode.NOT_ENOUGH_REPLICAS), PATIENCE_S)

    def lose_response(self, chooser: Chooser) -> None:
        """Cause any fault, some of them twice in a row, with their consequences: lost tails and late requests."""
        if lane := self._some(chooser):
            kinds = (AFTER_APPEND, AFTER_APPEND, BEFORE_APPEND)
            for _ in range(chooser.number(1, 2)):
                kind = kinds[chooser.number(0, 2)]
                lane.exchange(kind[chooser.number(0, len(kind) - 1)], (TURN_S, PATIENCE_S)[chooser.number(0, 1)])
            if chooser.number(0, 3) == 0:
                lane.leader.lose_tail()
            elif chooser.number(0, 1):
                self._starve(lane)
            if lane.late and chooser.number(0, 1):
                lane.leader.append(lane.late[chooser.number(0, len(lane.late) - 1)])

    def change_hands(self, chooser: Chooser) -> list[Promise[None]]:
        """Change the writers. Return the unreported outcomes."""
        open_promises: list[Promise[None]] = []
        for lane in self.lanes.values():
            open_promises += [token for token in lane.producer.tokens() if isinstance(token, Promise)]
            request = lane.producer.next_request(lane.now + PATIENCE_S) if chooser.number(0, 1) else None
            if isinstance(request, Produce):
                lane.leader.append(request.batch)
            if chooser.number(0, 1):
                lane.leader.lose_tail()
            lane.take_over()
        return open_promises
