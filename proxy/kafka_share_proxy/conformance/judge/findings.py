"""The findings of a judge: bounded, repetitions counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kafka_share_proxy.conformance.judge.rule import Finding

FINDINGS_MAX = 1_000
"""Maximum number of different findings."""
FINDINGS_OF_RULE_MAX = 50
"""Maximum number of different findings of one rule."""


@dataclass(slots=True)
class ClientFindings:
    """Findings in the order of their first occurrence."""

    _findings: dict[tuple[str, str, str], Finding] = field(default_factory=dict)
    _by_rule: dict[str, int] = field(default_factory=dict)
    dropped: int = 0
    """Number of findings beyond the limits."""

    def add(self, finding: Finding, *, once: bool = False) -> Finding:
        """Keep a finding, or count it if there is an equal one. With `once`, repetitions are not counted."""
        key = (finding.rule.id, finding.client_id, finding.detail)
        equal_finding = self._findings.get(key)
        if equal_finding is not None:
            equal_finding.count += 0 if once else 1
            return equal_finding
        of_rule = self._by_rule.get(finding.rule.id, 0)
        if len(self._findings) >= FINDINGS_MAX or of_rule >= FINDINGS_OF_RULE_MAX:
            self.dropped += 1
            return finding
        self._findings[key] = finding
        self._by_rule[finding.rule.id] = of_rule + 1
        return finding

    def clear(self) -> None:
        """Forget all findings."""
        self._findings.clear()
        self._by_rule.clear()
        self.dropped = 0

    def __iter__(self) -> Iterator[Finding]:
        return iter(tuple(self._findings.values()))

    def __len__(self) -> int:
        return len(self._findings)
