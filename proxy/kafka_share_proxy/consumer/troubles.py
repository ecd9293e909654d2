"""Present troubles of one consumer: what its requests fail with, until they succeed (consumer/README.md rule 45).

Managers report a trouble each time they meet it and end it when it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from typing import NamedTuple

from kafka_share_proxy.consumer.requests import FailureKind, Lane, Outcome, RequestFailure, UnsentRequest

TROUBLES_MAX = 100
"""Maximum number of troubles kept. Beyond it, the one reported longest ago is removed."""
SHOWN_MAX = 3
"""Maximum number of troubles in one text."""

COORDINATOR = "coordinator"


class TroubleKind(Enum):
    """Kind of a trouble. The value is the last part of its logger's name."""

    CONNECTION = "connections"
    TOPIC = "topics"
    GROUP = "group"
    REQUEST = "requests"


class Trouble(NamedTuple):
    """Something that fails at present and is retried."""

    kind: TroubleKind
    subject: Hashable
    """For example a node id, a topic name or an API."""
    text: str
    """One clause without a full stop."""
    advice: str = ""
    """One sentence without a full stop."""

    def __str__(self) -> str:
        return f"{self.text}. {self.advice}" if self.advice else self.text


class TroubleObserver(NamedTuple):
    """Callbacks for reported and ended troubles. They must not raise."""

    reported: Callable[[Trouble], None]
    ended: Callable[[Trouble], None]


class Troubles:
    """Present troubles of one consumer, ordered by their last report."""

    def __init__(self) -> None:
        self.observer: TroubleObserver | None = None
        self.reports = 0
        self._present: dict[tuple[TroubleKind, Hashable], tuple[Trouble, int]] = {}

    @property
    def is_any(self) -> bool:
        return bool(self._present)

    def report(self, kind: TroubleKind, subject: Hashable, text: str, advice: str = "") -> None:
        self.reports += 1
        trouble = Trouble(kind, subject, text, advice)
        self._present.pop((kind, subject), None)
        self._present[kind, subject] = trouble, self.reports
        if len(self._present) > TROUBLES_MAX:
            del self._present[next(iter(self._present))]
        if self.observer is not None:
            self.observer.reported(trouble)

    def end(self, kind: TroubleKind, subject: Hashable, reports: int | None = None) -> None:
        """End a trouble, unless the successful step reported it itself (`reports` before it)."""
        present = self._present.get((kind, subject))
        if present is not None and (reports is None or present[1] <= reports):
            del self._present[kind, subject]
            if self.observer is not None:
                self.observer.ended(present[0])

    def on_outcome(self, request: UnsentRequest, outcome: Outcome, reports: int) -> None:
        """Report a failure, except of the connection, or end the trouble after a success. `reports`: see `end`."""
        if isinstance(outcome, RequestFailure):
            if outcome.kind is not FailureKind.DISCONNECTED:
                self.report(TroubleKind.REQUEST, request.subject, f"{request.api}: {outcome.reason}")
        elif self.is_any:
            self.end(TroubleKind.REQUEST, request.subject, reports)
            if request.lane in (Lane.COORDINATOR, Lane.JOINING):
                self.end(TroubleKind.GROUP, COORDINATOR, reports)

    def has(self, kind: TroubleKind, subject: Hashable) -> bool:
        return (kind, subject) in self._present

    def why(self) -> str:
        """Return the most likely causes as one text: troubles with connections before those with topics, and so on."""
        latest = [trouble for trouble, _ in reversed(self._present.values())]
        kinds = {TroubleKind.CONNECTION: 0, TroubleKind.TOPIC: 1, TroubleKind.GROUP: 1, TroubleKind.REQUEST: 2}
        shown = sorted(latest, key=lambda each: kinds[each.kind])[:SHOWN_MAX]
        return "; ".join(dict.fromkeys(map(str, shown)))
