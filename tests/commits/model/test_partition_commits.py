"""One partition of one group against a set of offsets, with lost responses, failed appends, restarts and rewinds."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from kafka_share_proxy.commits.model.partition_commits import PartitionCommit, PartitionCommits
from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan, RangeChange, loaded

TOP = 60
OFFSETS = st.integers(0, TOP)
SPANS = st.lists(st.tuples(OFFSETS, st.integers(1, 6)).map(lambda s: (s[0], s[0] + s[1])), min_size=1, max_size=4)


class Compared(RuleBasedStateMachine):
    """`done` is the set that members saw as done since the last rewind; `topic` are the records, `committed` the
    broker's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.commits = PartitionCommits()
        self.committed = -1
        self.topic: dict[OffsetSpan, int] = {}
        self.done: set[int] = set()

    def _store(self, change: RangeChange, *, fails: bool = False) -> None:
        if fails:
            self.commits.not_stored(change)
            return
        for span in change.put:
            self.topic[span] = self.commits.committed
        for span in change.removed:
            self.topic.pop(span, None)

    def _know(self) -> None:
        if not self.commits.is_committed_known:
            self._store(self.commits.learn_committed(self.committed, -1))

    @rule(offset=OFFSETS, spans=SPANS, fails=st.booleans(), is_lost=st.booleans())
    def commit_individually(self, offset: int, spans: list[tuple[int, int]], fails: bool, is_lost: bool) -> None:
        self._know()
        commit = PartitionCommit(offset, OffsetRanges(spans))
        plan = self.commits.plan(commit)
        assert plan.moves == (plan.offset != self.committed)
        assert plan.offset >= self.committed
        if self.commits.keeps_committed(commit):
            assert plan.offset == self.committed
            assert plan.ranges <= len(self.commits.ranges) + len(commit.done or ())
        self.committed = plan.offset
        self.done |= set(range(offset))
        if is_lost:  # the broker has committed the offset, and no proxy knows
            self.commits.forget_committed()
            return
        self._store(self.commits.accepted(commit, plan.offset, -1), fails=fails)
        if not fails:
            self.done |= {each for span in spans for each in range(*span)}
        assert plan.ranges == len(self.commits.ranges)

    @rule(offset=OFFSETS, fails=st.booleans())
    def commit_plainly(self, offset: int, fails: bool) -> None:
        self._know()
        commit = PartitionCommit(offset)
        if offset < self.committed:
            self.done.clear()
        plan = self.commits.plan(commit)
        self.committed = plan.offset
        self.done |= set(range(offset))
        self._store(self.commits.accepted(commit, plan.offset, -1), fails=fails)

    @rule(offset=OFFSETS)
    def commit_past_the_proxy(self, offset: int) -> None:
        if offset < self.committed:
            self.done.clear()
        self.committed = offset
        self.done |= set(range(offset))
        self.commits.forget_committed()
        self._know()

    @rule()
    def restart(self) -> None:
        ranges, change = loaded(self.topic)
        self.commits = PartitionCommits(ranges, stored_committed=max(self.topic.values(), default=-1))
        self.commits.not_stored(change)

    @rule()
    def delete(self) -> None:
        self.committed = -1
        self.done.clear()
        self._store(self.commits.ended())

    @invariant()
    def nothing_counts_as_done_that_is_not_and_nothing_stored_is_forgotten(self) -> None:
        self._know()
        offset, ranges = self.commits.shown(self.committed)
        shown = set(range(max(offset, 0))) | {each for span in ranges for each in range(*span)}
        assert self.done <= shown
        stored = set(range(max(self.committed, 0))) | {each for span in self.topic for each in range(*span)}
        assert self.done <= stored


TestCompared = Compared.TestCase
TestCompared.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_moved_ahead_past_the_proxy_ranges_below_go() -> None:
    commits = PartitionCommits(OffsetRanges([(45, 48), (50, 51), (60, 61)]))
    commits.learn_committed(43, 3)
    change = commits.learn_committed(50, 4)
    assert change == RangeChange((), (OffsetSpan(45, 48),))
    assert commits.shown(50) == (51, OffsetRanges([(60, 61)]))


def test_ranges_in_the_brokers_metadata_are_put() -> None:
    commits = PartitionCommits(OffsetRanges([(45, 48)]))
    change = commits.learn_committed(43, 3, [(48, 50), (40, 43), (60, 61)])
    assert change == RangeChange((OffsetSpan(45, 50), OffsetSpan(60, 61)), (OffsetSpan(45, 48),))


def test_topic_of_another_id_has_no_ranges() -> None:
    commits = PartitionCommits(OffsetRanges([(45, 48)]), stored_committed=43, topic_id=b"1" * 16)
    assert not commits.topic_is(bytes(16))
    assert not commits.topic_is(b"1" * 16)
    assert commits.topic_is(b"2" * 16) == RangeChange((), (OffsetSpan(45, 48),))
    assert not commits.learn_committed(5, -1)
