"""One share partition in a world of members, a log that grows and shrinks, a slow store, and time.

`World.step` lets a `Chooser` pick what happens next, does it to the engine and to the naive model, and compares them.
The chooser may be hypothesis (which shrinks), a seeded random generator (which is fast), or an enumeration of all.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from kafka_share_proxy.sharegroups.model import offset_runs
from kafka_share_proxy.sharegroups.model.acquiring import ReadRecords
from kafka_share_proxy.sharegroups.model.offset_runs import LockIndex
from kafka_share_proxy.sharegroups.model.partition import Refusal, SharePartition, Transition
from kafka_share_proxy.sharegroups.model.snapshot import ShareSnapshot

from tests.sharegroups.model.naive import FREE, HELD, Change, Naive


class Chooser(Protocol):
    def number(self, low: int, high: int) -> int: ...


class RandomChooser:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class EveryChoice:
    """Goes through all sequences of choices, one per `begin()`, like an odometer."""

    def __init__(self) -> None:
        self._digits: list[list[int]] = []
        self._position = 0
        self._turned = -1
        self._done = False

    def begin(self) -> bool:
        """Start the next sequence; False when all were seen."""
        self._position = 0
        return not self._done

    def number(self, low: int, high: int) -> int:
        if self._position == len(self._digits):
            self._digits.append([low, high])
        value = self._digits[self._position][0]
        self._position += 1
        return value

    def end(self) -> None:
        while self._digits and self._digits[-1][0] == self._digits[-1][1]:
            self._digits.pop()
        if self._digits:
            self._digits[-1][0] += 1
        self._turned = len(self._digits) - 1
        self._done = not self._digits

    @property
    def new(self) -> bool:
        """True if the choices made so far differ from those of all earlier sequences."""
        return self._position > self._turned


@dataclass(frozen=True)
class Batch:
    base_offset: int
    last_offset: int
    aborted: bool = False


@dataclass(frozen=True)
class Settings:
    lock_duration_s: float = 30.0
    delivery_count_limit: int = 5
    max_record_locks: int = 20
    renew_enabled: bool = True
    read_committed: bool = False


MEMBERS = ("ann", "bob", "cid")


class World:
    def __init__(self, chooser: Chooser, settings: Settings | None = None, actions: Sequence[str] = ()) -> None:
        self.chooser = chooser
        self.settings = settings or Settings()
        self.now = 1000.0
        self.log: list[Batch] = []
        self.log_end = 0
        self.index = LockIndex()
        self.engine = SharePartition(0, 3, locks=self.index, key="orders-0")
        self.model = Naive(0)
        self.pending: list[tuple[Transition, Change]] = []
        self.deliveries: Counter[int] = Counter()
        """Deliveries of each offset since the last restart or loss of log."""
        self.accepted: set[int] = set()
        self.start_seen = 0
        self.limit_seen = self.settings.delivery_count_limit
        self.story: list[str] = []
        self.actions: list[Callable[[], None]] = [getattr(self, name) for name in actions or ACTIONS]

    # Choices.

    def number(self, low: int, high: int) -> int:
        return self.chooser.number(low, high)

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.number(0, len(options) - 1)]

    def chance(self, one_in: int) -> bool:
        return self.number(1, one_in) == one_in

    def step(self) -> None:
        action = self.pick(self.actions)
        self.story.append(action.__name__)
        action()
        self.compare()
        self.check()

    def tell(self, text: object) -> None:
        self.story[-1] += f" {text}"

    # What may happen.

    def append(self) -> None:
        base = self.log_end + (self.number(1, 3) if self.chance(8) else 0)
        size = self.number(1, 8)
        self.log.append(Batch(base, base + size - 1, self.chance(4)))
        self.log_end = base + size
        self.tell(self.log[-1])

    def fetch(self) -> None:
        self.fetch_as(self.pick(MEMBERS[:2]), self.number(1, 12), self.number(1, 6), self.chance(3), self.number(1, 4))

    def fetch_as(
        self, member: str, max_records: int, batch_size: int = 500, record_limit: bool = False, log_batches: int = 9
    ) -> None:
        fetch_offset = self.engine.next_fetch_offset()
        assert fetch_offset == self.model.next_fetch_offset()
        if self.engine.acquirable_from(self.settings) is None:
            assert fetch_offset > self.engine.end_offset
            assert self.engine.end_offset - self.engine.start_offset + 1 >= self.settings.max_record_locks
            return
        batches = [batch for batch in self.log if batch.last_offset >= fetch_offset][:log_batches]
        aborted = [(b.base_offset, b.last_offset) for b in batches if b.aborted and self.settings.read_committed]
        self.tell((member, fetch_offset, max_records, batch_size, record_limit, self.settings, batches))
        acquisition = self.engine.acquire(
            member,
            ReadRecords(fetch_offset, batches, aborted),
            max_records,
            batch_size,
            record_limit,
            self.settings,
            self.now,
        )
        expected = self.model.acquire(
            member, fetch_offset, batches, aborted, max_records, batch_size, record_limit, self.settings, self.now
        )
        assert list(acquisition.ranges) == expected, (acquisition, expected)
        assert acquisition.acquired == sum(last - first + 1 for first, last, _ in expected)
        self.check_acquisition(acquisition, batches, max_records, record_limit)

    def acknowledge(self) -> None:
        held = self.engine.locks()
        member = self.pick(MEMBERS)
        renew = self.chance(3)
        batches: list[Any] = []
        below = 0
        for _ in range(self.number(1, 3)):
            if held and not self.chance(5):
                lock = self.pick(held)
                member = lock.member_id if not batches else member
                first, last = lock.first, lock.last
                if self.chance(2):
                    first = self.number(first, last)
                    last = self.number(first, last)
                if self.chance(6):
                    last += self.number(1, 4)
                if self.chance(6):
                    first = max(0, first - self.number(1, 4))
            else:
                first = max(0, self.engine.start_offset + self.number(-3, 6))
                last = first + self.number(0, 5) - (1 if self.chance(10) else 0)
            if first < below and not self.chance(5):
                continue
            below = last
            one = self.number(0, 4 if renew else 3)
            types = [one]
            if self.chance(3) and last >= first:
                types = [self.number(0, 4 if renew else 3) for _ in range(first, last + 1)]
            batches.append((first, last, types))
        self.acknowledge_as(member, batches, renew)

    def acknowledge_as(
        self, member: str, batches: Sequence[tuple[int, int, Sequence[int]]], renew: bool = True
    ) -> None:
        self.tell((member, batches, renew))
        decided = self.engine.decide_acknowledge(member, batches, renew, self.settings, self.now)
        expected = self.model.acknowledge(member, batches, renew, self.settings, self.now)
        if isinstance(expected, int):
            assert isinstance(decided, Refusal), (decided, expected)
            assert decided.error == expected, (decided, expected)
        else:
            assert isinstance(decided, Transition), (decided, expected)
            self.wait(decided, expected)

    def release(self) -> None:
        member = self.pick(MEMBERS)
        self.tell(member)
        decided = self.engine.decide_release(member, self.settings)
        self.wait(decided, self.model.release(member, self.settings))

    def release_all(self) -> None:
        decided = self.engine.decide_release_all(self.settings)
        self.wait(decided, self.model.release(None, self.settings))

    def wait(self, decided: Transition | None, expected: Change | None) -> None:
        assert (decided is None) == (expected is None)
        if decided is None or expected is None:
            return
        changes = {o: state for first, last, state, _ in decided.changes for o in range(first, last + 1)}
        assert changes == expected.targets
        if changes:
            self.pending.append((decided, expected))

    def store(self) -> None:
        if self.pending:
            transition, change = self.pending.pop(self.number(0, len(self.pending) - 1))
            accepted = {o for o, target in change.targets.items() if target == 2 and self.model.waits(o, change)}
            self.tell(transition)
            before = self.engine.snapshot(transition)
            self.engine.apply(transition)
            self.model.apply(change)
            assert before == self.engine.snapshot(), "a snapshot shows what apply() makes"
            self.accepted |= accepted

    def refuse(self) -> None:
        if self.pending:
            transition, change = self.pending.pop(self.number(0, len(self.pending) - 1))
            self.tell(transition)
            self.engine.revert(transition, self.now, self.settings)
            self.model.revert(change, self.now, self.settings)

    def pass_time(self) -> None:
        self.pass_exactly(self.pick((0.5, 7.0, 12.0, 31.0)))

    def pass_exactly(self, seconds: float) -> None:
        self.now += seconds
        self.tell(self.now)
        expected = any(r.state == HELD and r.deadline <= self.now and not r.change for r in self.model.records.values())
        assert not expected or self.index.next_deadline() <= self.now
        expired = self.index.expired(self.now)
        assert set(expired) <= {self.engine}
        transition = self.engine.expire(expired.get(self.engine, []), self.settings, self.now)
        assert (transition is not None) == self.model.expire(self.now, self.settings) == expected
        if transition is not None:
            self.engine.apply(transition)
            self.model.advance()
        assert self.index.next_deadline() > self.now
        assert not self.index.expired(self.now)

    def trim(self) -> None:
        offset = min(self.log_end, self.engine.start_offset + self.number(0, 9))
        self.tell(offset)
        self.log = [batch for batch in self.log if batch.last_offset >= offset]
        self.engine.move_log_start(offset)
        self.model.move_log_start(offset)

    def compact(self) -> None:
        if self.log:
            lost = self.log.pop(self.number(0, len(self.log) - 1))
            self.tell(lost)

    def truncate(self) -> None:
        """The log loses its end, as after an unclean leader election."""
        self.log_end = max(0, self.log_end - self.number(1, 6))
        self.log = [batch for batch in self.log if batch.last_offset < self.log_end]
        self.tell(self.log_end)
        self.engine.move_log_end(self.log_end)
        self.model.move_log_end(self.log_end)
        self.start_seen = min(self.start_seen, self.log_end)
        self.forget(self.log_end)

    def forget(self, offset: int) -> None:
        self.accepted = {o for o in self.accepted if o < offset}
        self.deliveries = Counter({o: n for o, n in self.deliveries.items() if o < offset})

    def configure(self) -> None:
        self.settings = replace(
            self.settings,
            lock_duration_s=self.pick((30.0, 15.0, 45.0)),
            delivery_count_limit=self.pick((5, 2, 3, 4, 7, 10)),
            max_record_locks=self.pick((20, 5, 40)),
            renew_enabled=not self.chance(4),
            read_committed=self.chance(2),
        )
        self.limit_seen = max(self.limit_seen, self.settings.delivery_count_limit)
        self.tell(self.settings)

    def restart(self) -> None:
        """The proxy ends and another takes over from what was stored."""
        snapshot = self.engine.snapshot()
        self.engine.decide_release_all(self.settings)
        self.index = LockIndex()
        self.engine = SharePartition.from_snapshot(snapshot, locks=self.index, key="orders-0")
        self.model = self.model.reload()
        self.pending.clear()
        self.deliveries.clear()
        assert self.engine.snapshot() == snapshot, "a reload loses nothing that was stored"

    # What must hold.

    def compare(self) -> None:
        """The engine is where the model is, offset by offset."""
        engine, model = self.engine, self.model
        assert (engine.start_offset, engine.end_offset) == (model.start, model.end)
        assert engine.next_fetch_offset() == model.next_fetch_offset()
        actual: dict[int, tuple[Any, ...]] = {}
        unread = set()
        for run in engine.runs:
            for offset in range(run.first, run.last + 1):
                if run.state == offset_runs.UNREAD:
                    unread.add(offset)
                    continue
                held = run.state == offset_runs.ACQUIRED
                deadline = run.deadline() if held and run.lock is not None else None
                target = run.target if run.pending is not None else None
                bounds = None
                if run.state == offset_runs.AVAILABLE:
                    bounds = (run.exploded_batch or run).first, (run.exploded_batch or run).last
                actual[offset] = run.state, run.count, run.owner, deadline, run.renewals, target, bounds
        expected = {}
        for offset, record in model.records.items():
            deadline = record.deadline if record.state == HELD and record.deadline > self.now else None
            target = record.change.targets[offset] if record.change else None
            bounds = (record.delivery.first, record.delivery.last) if record.state == FREE else None
            expected[offset] = (record.state, record.count, record.owner, deadline, record.renewals, target, bounds)
        assert actual == expected, {
            o: (actual.get(o), expected.get(o)) for o in actual | expected if actual.get(o) != expected.get(o)
        }
        assert unread == model.unread
        some = [pair for pair in self.pending if pair[0].changes and self.chance(2)] if self.pending else []
        self.compare_snapshot(
            engine.snapshot(*[transition for transition, _ in some]), model.stored(*[change for _, change in some])
        )

    def compare_snapshot(self, snapshot: ShareSnapshot, stored: tuple[int, dict[int, tuple[int, int]]]) -> None:
        snapshot_states = {
            o: (state, count) for first, last, state, count in snapshot.batches for o in range(first, last + 1)
        }
        assert (snapshot.start_offset, snapshot_states) == stored
        assert snapshot.delivery_complete_count == sum(1 for state, _ in snapshot_states.values() if state != 0)
        for left, right in zip(snapshot.batches, snapshot.batches[1:], strict=False):
            assert left[1] < right[0]
            assert left[1] + 1 < right[0] or left[2:] != right[2:], "neighbours that are alike are one batch"

    def check(self) -> None:
        """The engine's own order."""
        engine = self.engine
        assert engine.firsts == [run.first for run in engine.runs]
        end = engine.start_offset - 1
        held = 0
        for run in engine.runs:
            assert end < run.first <= run.last <= engine.end_offset
            end = run.last
            assert run.partition is engine
            assert (run.owner is not None) == (run.state == offset_runs.ACQUIRED)
            assert run.pending is None or run.state == offset_runs.ACQUIRED
            assert run.lock is None or run.state == offset_runs.ACQUIRED
            assert run.lock is not None or run.state != offset_runs.ACQUIRED or run.pending is not None
            held += run.lock is not None
        assert end == engine.end_offset, "the window ends with a tracked offset"
        locked = [run for runs in self.index.holders() for run in runs]
        assert len(locked) == held == len(set(locked))
        assert set(locked) <= set(engine.runs), "only what is tracked is locked"
        assert engine.start_offset >= self.start_seen, "the start offset never moves back"
        self.start_seen = engine.start_offset
        statistics = engine.statistics()
        assert statistics.acquired == sum(r.state == HELD for r in self.model.records.values())
        assert statistics.in_flight == engine.end_offset - engine.start_offset + 1

    def check_acquisition(self, acquisition: Any, batches: Sequence[Batch], max_records: int, exact: bool) -> None:
        if not acquisition.ranges:
            assert (acquisition.first_batch, acquisition.last_batch) == (0, -1)
            return
        if exact:
            assert acquisition.acquired <= max_records
        end = -1
        for first, last, count in acquisition.ranges:
            assert end < first <= last
            end = last
            for offset in range(first, last + 1):
                assert offset not in self.accepted, f"{offset} was accepted and is delivered again"
                self.deliveries[offset] += 1
                assert self.deliveries[offset] <= count
                assert count <= self.limit_seen
        sent = batches[acquisition.first_batch : acquisition.last_batch + 1]
        with_records = [
            b for b in batches for f, last, _ in acquisition.ranges if b.base_offset <= last and b.last_offset >= f
        ]
        assert set(with_records) <= set(sent), "every acquired record is sent"


ACTIONS = [
    *["append"] * 3, *["fetch"] * 6, *["acknowledge"] * 6, *["store"] * 5, *["pass_time"] * 2,
    "refuse", "release", "release_all", "trim", "compact", "truncate", "configure", "restart",
]  # fmt: skip
