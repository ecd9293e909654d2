"""A share partition to play with: short words for what members do, and what they get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kafka_share_proxy.sharegroups.model.acquiring import Acquisition, ReadRecords
from kafka_share_proxy.sharegroups.model.partition import Refusal, SharePartition, Transition
from kafka_share_proxy.sharegroups.model.snapshot import ShareSnapshot
from kafka_share_proxy.wire.errors import ErrorCode

from tests.sharegroups.model.world import Batch, Settings

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Ranges = list[tuple[int, int, int]]


class Play:
    """One partition over a log of the given (first, last) batches; time and settings are attributes."""

    def __init__(self, *log: tuple[int, int], partition: SharePartition | None = None, **settings: Any) -> None:
        self.log = [Batch(first, last) for first, last in log]
        self.settings = Settings(**({"max_record_locks": 2000} | settings))
        self.partition = partition or SharePartition(log[0][0] if log else 0)
        self.now = 0.0
        self.last: Acquisition | None = None

    @classmethod
    def reloaded(cls, start: int, stored: Sequence[tuple[int, int, int, int]], *log: tuple[int, int], **s: Any) -> Play:
        """A partition made from a snapshot, as after a restart."""
        return cls(*log, partition=SharePartition.from_snapshot(ShareSnapshot(start, 3, -1, tuple(stored))), **s)

    def set(self, **changes: Any) -> None:
        self.settings = replace(self.settings, **changes)

    def poll(
        self, records: int = 500, *, member: str = "ann", size: int = 500, exact: bool = False,
        at: int | None = None, log: Sequence[tuple[int, int]] | None = None,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> Ranges:  # fmt: skip
        """Read from the next fetch offset (or `at`) and acquire; the AcquiredRecords."""
        offset = self.partition.next_fetch_offset() if at is None else at
        batches = self.log if log is None else [Batch(first, last) for first, last in log]
        batches = [batch for batch in batches if batch.last_offset >= offset]
        read = ReadRecords(offset, batches, aborted)
        self.last = self.partition.acquire(member, read, records, size, exact, self.settings, self.now)
        return list(self.last.ranges)

    def decide(
        self, *batches: tuple[int, int, int | list[int]], member: str = "ann", renew: bool = True
    ) -> Transition | Refusal:
        listed = [(first, last, types if isinstance(types, list) else [types]) for first, last, types in batches]
        return self.partition.decide_acknowledge(member, listed, renew, self.settings, self.now)

    def ack(
        self, *batches: tuple[int, int, int | list[int]], member: str = "ann", renew: bool = True
    ) -> ErrorCode | None:
        """Acknowledge and store; the error code, None when it went well."""
        decided = self.decide(*batches, member=member, renew=renew)
        if isinstance(decided, Refusal):
            return decided.error
        self.partition.apply(decided)
        return None

    def release(self, member: str | None = None) -> None:
        """End of one member's session, or of all."""
        if member is None:
            transition = self.partition.decide_release_all(self.settings)
        else:
            transition = self.partition.decide_release(member, self.settings)
        if transition is not None:
            self.partition.apply(transition)

    def wait(self, seconds: float) -> None:
        """Let time pass and locks end."""
        self.now += seconds
        for runs in self.partition.index.expired(self.now).values():
            transition = self.partition.expire(runs, self.settings, self.now)
            if transition is not None:
                self.partition.apply(transition)

    @property
    def state(self) -> Ranges:
        """(first, last, state) of what is tracked; -1 is a hole to be read again."""
        merged: Ranges = []
        for run in self.partition.runs:
            if merged and merged[-1][1] + 1 == run.first and merged[-1][2] == run.state:
                merged[-1] = (merged[-1][0], run.last, run.state)
            else:
                merged.append((run.first, run.last, run.state))
        return merged

    @property
    def window(self) -> tuple[int, int]:
        return self.partition.start_offset, self.partition.end_offset
