"""LetterPace of the writer of one topic: gathering, retries, and how many records one transaction has. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

GATHER_S = 0.05
"""Minimum seconds between two transactions of one state partition: at most 20 a second."""
GATHER_MAX_S = 0.8
"""Maximum seconds between two transactions while dead letters wait."""
SHARE_MAX, CREDIT_MAX_S = 0.03, 0.05
"""Maximum fraction of its time that a state partition spends in transactions, in which no other change is stored, and
the seconds of transactions that may follow each other faster.
"""
RECORDS_MAX = 1_000
"""Maximum number of dead letters in one transaction."""
RETRY_FIRST_S, RETRY_MAX_S, RETRY_FACTOR, RETRY_JITTER = 1.0, 30.0, 2, 0.2
"""Delays of the producer of dead letters in Kafka 4.4.0. It gives up after 5 retries; the proxy continues."""
CRC_RANGE, SPREAD = 1 << 32, 2_654_435_761
"""SPREAD separates the checksums of similar names (Knuth's multiplicative hash)."""


@dataclass(slots=True)
class TransactionTime:
    """Time that the transactions of one state partition take."""

    credit_s: float = CREDIT_MAX_S
    counted_to: float = 0.0

    def next_at(self, started_at: float, now: float, *, is_full: bool) -> float:
        """Return when the next transaction may begin, after one from `started_at` to `now`.

        `is_full`: more may wait.
        """
        self.credit_s = min(CREDIT_MAX_S, self.credit_s + SHARE_MAX * (now - self.counted_to)) - (now - started_at)
        self.counted_to = now
        soonest = started_at + GATHER_S
        if is_full or self.credit_s >= 0:
            self.credit_s = max(self.credit_s, -SHARE_MAX * GATHER_MAX_S)
            return soonest
        wait_s = min(-self.credit_s / SHARE_MAX, GATHER_MAX_S)
        self.credit_s = -SHARE_MAX * wait_s
        return max(soonest, now + wait_s)


@dataclass(slots=True)
class LetterPace:
    """When the next transaction may begin, and how large it may be."""

    name: str
    """Queues with different names have different jitter."""
    records_max: int = RECORDS_MAX
    retry_at: float = 0.0
    failures: int = 0
    """Number of failures since the last success."""

    def succeeded(self) -> None:
        """Reset the retries, and let transactions grow again."""
        self.retry_at, self.failures = 0.0, 0
        self.records_max = min(2 * self.records_max, RECORDS_MAX)

    def failed(self, now: float) -> None:
        """Postpone the next attempt: 1 s, doubled up to 30 s, 20 % more or less."""
        delay = min(RETRY_FIRST_S * RETRY_FACTOR ** min(self.failures, 10), RETRY_MAX_S)
        self.failures += 1
        chance = (crc32(f"{self.name} {self.failures}".encode()) * SPREAD % CRC_RANGE) / CRC_RANGE
        self.retry_at = now + delay * (1 + RETRY_JITTER * (2 * chance - 1))

    def shrink(self) -> bool:
        """Halve the transactions, because one was too large. False if it had one record."""
        if self.records_max == 1:
            return False
        self.records_max = max(1, self.records_max // 2)
        return True
