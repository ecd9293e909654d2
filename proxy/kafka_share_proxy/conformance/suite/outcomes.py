"""Results of cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from kafka_share_proxy.conformance.suite.cases import Case
from kafka_share_proxy.conformance.suite.exchanges import Exchange

SHOWN_EXCHANGES = 3
"""Exchanges in the report of a failure."""

SET_UP = "set-up"
"""Reason of a failure before the rule of the case was tested."""


class Status(Enum):
    """Status of a case after a run."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The peer does not offer what it needs."""
    DIFFERS = "differs"
    """The case fails as it does on the real release, for the reason in the case."""


@dataclass(frozen=True)
class Outcome:
    """The result of one case."""

    case: Case
    status: Status
    duration_s: float = 0.0
    reason: str = ""
    """Why it was skipped or differs, or what failed."""
    expected: str = ""
    actual: str = ""
    exchanges: Sequence[Exchange] = ()
    """The last exchanges before a failure."""


@dataclass(frozen=True)
class RunReport:
    """The results of a run."""

    bootstrap: str
    release: str
    started_at: str
    """UTC, ISO 8601."""
    duration_s: float
    outcomes: Sequence[Outcome]
    missing: dict[str, str]
    """Capability -> reason why it is not offered."""
    left_behind: str = ""
    """Why topics and groups of the run may be left in the cluster; empty if they were deleted."""

    def count(self, status: Status, suite: str | None = None) -> int:
        """Return the number of cases with this status."""
        return sum(1 for each in self._of(suite) if each.status is status)

    @property
    def suites(self) -> dict[str, Counter[Status]]:
        """Numbers of cases by suite and status."""
        counts: dict[str, Counter[Status]] = {}
        for each in self.outcomes:
            counts.setdefault(each.case.suite, Counter())[each.status] += 1
        return counts

    @property
    def failed(self) -> list[Outcome]:
        """The cases that failed."""
        return [each for each in self.outcomes if each.status is Status.FAILED]

    def _of(self, suite: str | None) -> Iterable[Outcome]:
        return (each for each in self.outcomes if suite is None or each.case.suite == suite)
