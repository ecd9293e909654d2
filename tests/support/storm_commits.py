"""Weather for individual commits of one partition: what is shown as done, against sets of offsets.

Two sets bound it: offsets that must be shown as done, because a commit was confirmed, and offsets that may be, because
a member has committed them. Between them are unconfirmed ones: lost responses of the broker, appends that fail with any
number of their records in the topic, owners that end anywhere. Transactions commit and abort, groups are rewound and
moved ahead through the proxy and past it. Left out: a second commit in one transaction at an owner that took over
within it, which knows neither the committed offset nor what the first one said.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from kafka_share_proxy.commits.model.partition_commits import PartitionCommit, PartitionCommits
from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan, RangeChange, loaded

TOP = 80
LONGEST = 6
PRODUCER = (7, 0)


class CommitStorm:
    """One partition of one group: its owner, the topic of ranges, and the broker."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.held = PartitionCommits()
        self.topic: dict[OffsetSpan, int] = {}
        """Live records, and the committed offset in each."""
        self.committed, self.metadata = -1, OffsetRanges()
        """Committed offset and metadata at the broker."""
        self.pending: tuple[int, OffsetRanges, set[int]] | None = None
        """Open transaction: the coordinator's offset and ranges, the committed set."""
        self.must: set[int] = set()
        self.may: set[int] = set()
        self.story: list[str] = []

    def step(self) -> None:
        """Do one random operation. Then compare everything."""
        action = self._random.choice(
            (
                self._commit_individually,
                self._commit_individually,
                self._commit_individually,
                self._commit_plainly,
                self._rewind,
                self._commit_past_the_proxy,
                self._commit_in_transaction,
                self._end_transaction,
                self._restart,
                self._fetch,
            )
        )
        action()
        self.compare()

    def compare(self) -> None:
        """Compare with a member's view now. Raises AssertionError."""
        offset, ranges = self.held.shown(self.committed, self.metadata)
        shown = set(range(max(offset, 0))) | _offsets(ranges)
        assert self.must <= shown, f"forgotten: {sorted(self.must - shown)}"
        assert shown <= self.may, f"not done: {sorted(shown - self.may)}"
        assert offset < 0 or offset not in _offsets(ranges), "the committed offset stands before a range"
        reloaded, _ = _from_topic(self.topic)
        offset, ranges = reloaded.shown(self.committed, self.metadata)
        after_restart = set(range(max(offset, 0))) | _offsets(ranges)
        assert self.must <= after_restart, f"not stored: {sorted(self.must - after_restart)}"

    # What members do

    def _commit_individually(self) -> None:
        offset, spans = self._offset(), self._spans()
        self._tell("commit", offset, spans)
        if self.pending is not None or not self._know():
            return
        commit = PartitionCommit(offset, spans)
        plan = self.held.plan(commit)
        committed = set(range(offset)) | _offsets(spans)
        self.may |= committed
        if self._chance(0.1):
            return  # the broker refuses it
        self.committed, self.metadata = plan.offset, OffsetRanges()
        self.must |= set(range(plan.offset)) & self.may
        if self._chance(0.1):
            self.held.forget_committed()  # the response is lost
            return
        if self._store(self.held.accepted(commit, plan.offset, -1)):
            self.must |= committed

    def _commit_plainly(self) -> None:
        if self._know():
            self._commit(max(self.committed, 0) + self._random.randrange(8))

    def _rewind(self) -> None:
        if self._know() and self.committed > 0:
            self._commit(self._random.randrange(self.committed))

    def _commit(self, offset: int) -> None:
        self._tell("plain commit", offset)
        is_rewind = offset < self.committed
        plan = self.held.plan(PartitionCommit(offset))
        self.committed, self.metadata = plan.offset, OffsetRanges()
        if is_rewind:
            self.must = set(range(offset))
        else:
            self.may |= set(range(offset))
            self.must |= set(range(plan.offset)) & self.may
        if self._chance(0.1):
            self.held.forget_committed()
            return
        is_stored = self._store(self.held.accepted(PartitionCommit(offset), plan.offset, -1))
        if is_rewind and is_stored:
            self.may = set(range(offset))

    def _commit_in_transaction(self) -> None:
        offset, spans = self._offset(), self._spans()
        self._tell("commit in a transaction", offset, spans)
        if self.pending is None and not self._know():
            return
        if self.pending is not None and self.held.transaction is None:
            return
        commit = PartitionCommit(offset, spans)
        moved, ranges = self.held.in_transaction(commit, PRODUCER)
        before = set() if self.pending is None else self.pending[2]
        self.pending = moved, ranges, before | _offsets(spans)
        self.held.committed_in_transaction(commit, PRODUCER)

    def _end_transaction(self) -> None:
        if self.pending is None:
            return
        (offset, ranges, committed), self.pending = self.pending, None
        if self._chance(0.4):
            self._tell("abort")
            return
        self._tell("commit of the transaction", offset, ranges)
        self.may |= committed | set(range(offset))
        if offset < self.committed:
            self.must = set(range(offset))
        self.must |= committed | set(range(offset))
        self.committed, self.metadata = offset, ranges.copy()

    # What others do

    def _commit_past_the_proxy(self) -> None:
        if self.pending is not None:
            return
        offset = self._offset()
        self._tell("commit past the proxy", offset)
        is_rewind, is_seen = offset < self.committed, self.held.is_committed_known
        self.must = set(range(offset)) if is_rewind else self.must | set(range(offset))
        self.may |= set(range(offset))
        self.must -= _offsets(self.metadata) - set(range(offset))  # of a transaction, not moved into the topic yet
        self.committed, self.metadata = offset, OffsetRanges()
        self.held.forget_committed()
        if self._know() and is_rewind and is_seen and not self.held.unsure:
            self.may = set(range(offset))

    def _fetch(self) -> None:
        self._tell("fetch")
        self.held.forget_committed()
        self._know()

    def _restart(self) -> None:
        self._tell("another owner")
        self.held, change = _from_topic(self.topic)
        self.held.not_stored(change)

    # What the owner does

    def _know(self) -> bool:
        """Query the broker for the committed offset; its metadata has to be stored before anything overwrites it."""
        if self.pending is not None:
            return False
        if self.held.is_committed_known:
            return True
        was = max(self.held.stored_committed, self.held.committed)
        change = self.held.learn_committed(self.committed, -1, self.metadata)
        is_stored = self._store(change)
        if self.committed < was and is_stored:
            self.may &= self.must | set(range(max(self.committed, 0))) | _offsets(self.held.ranges)
        if not is_stored and change.put:
            self.held.forget_committed()
            return False
        return True

    def _store(self, change: RangeChange) -> bool:
        """Append what changed; False: it failed, with any number of its records in the topic."""
        if not change:
            return not self.held.unsure
        records = [(span, True) for span in change.put] + [(span, False) for span in change.removed]
        fails = self._chance(0.15)
        for span, is_put in records[: self._random.randrange(len(records) + 1)] if fails else records:
            if is_put:
                self.topic[span] = self.held.committed
            else:
                self.topic.pop(span, None)
        if fails:
            self._tell("append fails")
            self.held.not_stored(change)
        return not fails

    # Chance

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _offset(self) -> int:
        return self._random.randrange(TOP)

    def _spans(self) -> OffsetRanges:
        starts = [self._offset() for _ in range(self._random.randrange(1, 5))]
        return OffsetRanges([(start, start + self._random.randrange(1, LONGEST)) for start in starts])

    def _tell(self, *words: object) -> None:
        self.story.append(" ".join(map(str, words)))


def _from_topic(topic: dict[OffsetSpan, int]) -> tuple[PartitionCommits, RangeChange]:
    """Return what an owner holds that has read the topic."""
    ranges, change = loaded(topic)
    return PartitionCommits(ranges, stored_committed=max(topic.values(), default=-1)), change


def _offsets(ranges: Iterable[tuple[int, int]]) -> set[int]:
    return {offset for span in ranges for offset in range(*span)}


def run(seed: int, steps: int) -> CommitStorm:
    """Run one storm. Raises AssertionError with the seed and the end of the story."""
    storm = CommitStorm(seed)
    for _ in range(steps):
        try:
            storm.step()
        except Exception as error:
            error.add_note(f"seed {seed}, step {len(storm.story)}:\n" + "\n".join(storm.story[-30:]))
            raise
    return storm
