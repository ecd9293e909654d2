"""A rule of the judge, and its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from kafka_share_proxy.conformance.judge.events import ReceivedRequest
from kafka_share_proxy.conformance.sentences import sentence_of

Severity = Literal["error", "advice"]
"""Severity of a finding. An error violates the protocol; an advice only harms brokers or the client itself."""

Check = Callable[[Any, Any], Iterator[str]]
"""Receives the event and the history before it, and yields what is wrong, one sentence for each finding."""


@dataclass(frozen=True, slots=True)
class ClientRule:
    """A rule for clients."""

    id: str
    sentence: str
    """Behaviour of a correct client."""
    source: str
    """KIP, message definition or class of Kafka."""
    check: Check
    on: type = ReceivedRequest
    """Event that the rule checks."""
    keys: frozenset[int] = frozenset()
    """API keys of the requests that the rule checks. Empty: all."""
    severity: Severity = "error"


class ClientRules(list[ClientRule]):
    """Rules in the order of their declaration."""

    def rule(
        self,
        rule_id: str,
        source: str,
        *,
        on: type = ReceivedRequest,
        keys: frozenset[int] = frozenset(),
        severity: Severity = "error",
    ) -> Callable[[Check], Check]:
        """Declare a function to be the check of a rule. Its docstring is the sentence."""

        def declare(check: Check) -> Check:
            sentence = sentence_of(check)
            self.append(ClientRule(rule_id, sentence, source, check, on, keys, severity))
            return check

        return declare


@dataclass(slots=True)
class Finding:
    """A violation of a rule. Repetitions are counted."""

    rule: ClientRule
    detail: str
    client_id: str
    connection: int
    at: float
    """Seconds by a monotonic clock."""
    frame: bytes = b""
    """Request without size; empty if none, cut if long."""
    count: int = 1
