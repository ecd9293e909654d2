"""Records of a share partition that wait until their dead letters are written (sharegroups/README.md rules 85-94).

How it works: such records are REJECTED or EXHAUSTED, which is neither free nor settled, and stored as ARCHIVING. A
`DeadLetterWrite` marks some of them. Its snapshot, in which they are archived, is stored in one transaction with their
dead letters. Then it is applied, or reverted so that they wait again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from kafka_share_proxy.sharegroups.model.offset_runs import ARCHIVED, REJECTED, OffsetRun, Transition, Window

WAITING_MIN = REJECTED
"""Lowest state of a record that waits for its dead letter."""


class DeadLetter(NamedTuple):
    """One record that failed."""

    offset: int
    delivery_count: int
    is_rejected: bool
    """True if a member rejected it. Otherwise its deliveries are used up."""


class DeadLetterWrite(Transition):
    """A change that archives records together with their dead letters."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """Number of records."""
        return sum([last - first + 1 for first, last, _, _ in self.changes])

    def letters(self) -> list[DeadLetter]:
        """Return the records by offset. Only before it is applied or reverted."""
        return [
            DeadLetter(offset, run.count, run.state == REJECTED)
            for run in self.runs
            for offset in range(run.first, run.last + 1)
        ]

    def is_of(self, window: Window) -> bool:
        """Return True if all its records still wait for it in this window."""
        return all(run.pending is self and run.partition is window for run in self.runs)


def choose(window: Window, records_max: int) -> DeadLetterWrite | None:
    """Mark the first waiting records, at most `records_max`. None if none waits."""
    chosen: list[OffsetRun] = []
    for run in [run for run in window.runs if run.state >= WAITING_MIN and run.pending is None]:
        if records_max <= 0:
            break
        part = window.isolate(run.first, min(run.last, run.first + records_max - 1))
        part.target = ARCHIVED
        records_max -= part.last - part.first + 1
        chosen.append(part)
    if not chosen:
        return None
    write = DeadLetterWrite(chosen)
    for run in chosen:
        run.pending = write
    return write


def count_waiting(window: Window) -> int:
    """Return the number of records without a dead letter yet, including those being written."""
    return sum(run.last - run.first + 1 for run in window.runs if run.state >= WAITING_MIN)


def give_up(window: Window) -> None:
    """Archive all waiting records, because the group no longer has a topic for dead letters."""
    for run in list(window.runs):
        if run.state >= WAITING_MIN:
            window.free(run, ARCHIVED)
        elif run.target >= WAITING_MIN:
            run.target = ARCHIVED


def undo(write: DeadLetterWrite, window: Window) -> None:
    """Let the records of a refused write wait again."""
    for run in write.runs:
        if run.pending is write and run.partition is window:
            run.pending = None


@contextmanager
def archived(transitions: Sequence[Transition]) -> Iterator[None]:
    """Show the records of these writes as archived, for a snapshot that contains their change."""
    shown = [
        (run, run.state)
        for write in transitions
        if isinstance(write, DeadLetterWrite)
        for run in write.runs
        if run.pending is write
    ]
    for run, _ in shown:
        run.state = ARCHIVED
    try:
        yield
    finally:
        for run, state in shown:
            run.state = state
