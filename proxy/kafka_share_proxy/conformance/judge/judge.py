"""The judge: every event of a client is checked by the rules, and remembered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kafka_share_proxy.conformance.judge.events import Inspection, ReceivedFrame
from kafka_share_proxy.conformance.judge.findings import ClientFindings
from kafka_share_proxy.conformance.judge.history import History
from kafka_share_proxy.conformance.judge.rule import ClientRule, Finding
from kafka_share_proxy.conformance.judge.rulebook import RULES

FRAME_BYTES_KEPT = 64 << 10
"""Bytes of a request that a finding keeps."""


class Judge:
    """Judge of all clients of one cluster."""

    def __init__(self, offered: Mapping[int, tuple[int, int]], rules: Iterable[ClientRule] = RULES) -> None:
        """`offered`: lowest and highest version by API key."""
        self.history = History(offered)
        self.findings = ClientFindings()
        self._rules = tuple(rules)
        self._selected: dict[tuple[type, int], tuple[ClientRule, ...]] = {}

    def observe(self, event: Any) -> list[Finding]:
        """Check and remember an event. Return the findings, repetitions included."""
        findings = [
            self._recorded(rule, detail, event)
            for rule in self._for(event)
            for detail in rule.check(event, self.history)
        ]
        self.history.apply(event)
        return findings

    def inspect(self, at: float) -> ClientFindings:
        """Check what is missing by now, and return all findings."""
        self.observe(Inspection(at=at))
        return self.findings

    @property
    def rules(self) -> Iterator[ClientRule]:
        return iter(self._rules)

    def _for(self, event: Any) -> tuple[ClientRule, ...]:
        key = getattr(event, "key", -1)
        selected = self._selected.get((type(event), key))
        if selected is None:
            selected = tuple(rule for rule in self._rules if rule.on is type(event) and _has(rule, key))
            self._selected[type(event), key] = selected
        return selected

    def _recorded(self, rule: ClientRule, detail: str, event: Any) -> Finding:
        if isinstance(event, ReceivedFrame):
            frame = event.frame[:FRAME_BYTES_KEPT]
            return self.findings.add(Finding(rule, detail, event.client_id, event.connection, event.at, frame))
        return self.findings.add(Finding(rule, detail, "", 0, event.at), once=True)


def _has(rule: ClientRule, key: int) -> bool:
    return not rule.keys or key in rule.keys
