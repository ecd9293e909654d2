"""Present troubles of one consumer: what its requests fail with, until they succeed (consumer/README.md rule 45).

Managers report a trouble each time they meet it and end it when it is over. A waiting call that times out names the
present troubles as its cause, and the client logs them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from typing import NamedTuple

from kafka_share_proxy.consumer.requests import FailureKind, Lane, Outcome, RequestFailure, UnsentRequest

TROUBLES_MAX = 100
"""Maximum number of troubles kept for one consumer. Beyond it, the one that was reported longest ago is dropped."""
SHOWN_MAX = 3
"""Maximum number of troubles that one error message names."""

COORDINATOR = "coordinator"
"""Subject of the trouble that the group's coordinator is not available."""


class TroubleKind(Enum):
    """Part of the consumer that a trouble concerns. The value ends the name of its logger."""

    CONNECTION = "connections"
    TOPIC = "topics"
    GROUP = "group"
    REQUEST = "requests"


class Trouble(NamedTuple):
    """Something that fails at present and is retried."""

    kind: TroubleKind
    subject: Hashable
    """Key within the kind, for example a node id, a topic name or the name of an API."""
    text: str
    """Failure and its reason, as one clause without a full stop."""
    advice: str = ""
    """Advice on what to check, as one sentence without a full stop. Empty if the text contains it."""

    def __str__(self) -> str:
        """Return the text followed by the advice."""
        return f"{self.text}. {self.advice}" if self.advice else self.text


class TroubleObserver(NamedTuple):
    """Callbacks that log troubles. They must not raise."""

    reported: Callable[[Trouble], None]
    """Called on every report of a trouble, also if it is present already."""
    ended: Callable[[Trouble], None]


class Troubles:
    """The present troubles of one consumer. The most recent report is the last one."""

    def __init__(self) -> None:
        self.observer: TroubleObserver | None = None
        self.reports = 0
        """Number of reports so far."""
        self._present: dict[tuple[TroubleKind, Hashable], tuple[Trouble, int]] = {}

    @property
    def is_any(self) -> bool:
        """True if at least one trouble is present."""
        return bool(self._present)

    def report(self, kind: TroubleKind, subject: Hashable, text: str, advice: str = "") -> None:
        """Note that something fails at present."""
        self.reports += 1
        trouble = Trouble(kind, subject, text, advice)
        self._present.pop((kind, subject), None)
        self._present[kind, subject] = trouble, self.reports
        if len(self._present) > TROUBLES_MAX:
            del self._present[next(iter(self._present))]
        if self.observer is not None:
            self.observer.reported(trouble)

    def end(self, kind: TroubleKind, subject: Hashable, reports: int | None = None) -> None:
        """Note that something works again.

        Args:
            kind: of the trouble.
            subject: of the trouble.
            reports: value of `reports` before the step that succeeded. A trouble that this step reported is kept.
        """
        found = self._present.get((kind, subject))
        if found is not None and (reports is None or found[1] <= reports):
            del self._present[kind, subject]
            if self.observer is not None:
                self.observer.ended(found[0])

    def on_outcome(self, request: UnsentRequest, outcome: Outcome, reports: int) -> None:
        """Note that a request as a whole failed, or that it got a response.

        Args:
            request: the request sent.
            outcome: its response, or its failure. Failed connections are reported where they are made.
            reports: value of `reports` before the sender processed the outcome.
        """
        if isinstance(outcome, RequestFailure):
            if outcome.kind is not FailureKind.DISCONNECTED:
                self.report(TroubleKind.REQUEST, request.subject, f"{request.api}: {outcome.reason}")
        elif self.is_any:
            self.end(TroubleKind.REQUEST, request.subject, reports)
            if request.lane in (Lane.COORDINATOR, Lane.JOINING):
                self.end(TroubleKind.GROUP, COORDINATOR, reports)

    def has(self, kind: TroubleKind, subject: Hashable) -> bool:
        """Return True if this trouble is present."""
        return (kind, subject) in self._present

    def why(self) -> str:
        """Return the most recent troubles for an error message; empty if none is present."""
        latest = [trouble for trouble, _ in reversed(self._present.values())]
        kinds = {TroubleKind.CONNECTION: 0, TroubleKind.TOPIC: 1, TroubleKind.GROUP: 1, TroubleKind.REQUEST: 2}
        shown = sorted(latest, key=lambda each: kinds[each.kind])[:SHOWN_MAX]
        return "; ".join(dict.fromkeys(map(str, shown)))
