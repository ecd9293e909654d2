"""LetterPace of the writer of one topic: gathering, retries, and how many records one transaction has. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

GATHER_S = 0.05
"""Minimum seconds between two transactions of one state partition: at most 20 a second."""
GATHER_MAX_S = 0.5
"""Maximum seconds between two transactions while dead letters wait."""
SHARE_MAX = 0.03
"""Maximum fraction of the time that a state partition spends in transactions, in which no other change is stored."""
RECORDS_MAX = 500
"""Maximum number of dead letters in one transaction."""
RETRY_FIRST_S, RETRY_MAX_S, RETRY_FACTOR, RETRY_JITTER = 1.0, 30.0, 2, 0.2
"""As the producer of dead letters in Kafka 4.4.0, which gives up after 5 retries. The proxy continues."""
CRC_RANGE, SPREAD = 1 << 32, 2_654_435_761
"""SPREAD separates the checksums of similar names (Knuth's multiplicative hash)."""


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

    def pause_s(self, took_s: float, records: int) -> float:
        """Return the seconds from the beginning of a transaction to the next. Full ones follow each other faster."""
        if records >= self.records_max:
            return GATHER_S
        return min(max(GATHER_S, took_s / SHARE_MAX), GATHER_MAX_S)

    def shrink(self) -> bool:
        """Halve the transactions, because one was too large. False if it had one record."""
        if self.records_max == 1:
            return False
        self.records_max = max(1, self.records_max // 2)
        return True
