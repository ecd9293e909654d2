"""Changes of what is acquired after a first time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.faulty_broker import Change

Spans = list[Any]


def later_spans(change: Callable[[Any, Spans], Spans]) -> Change:
    """Return a change of the acquired records in ShareFetch responses after the first that has some."""
    first_acquired: list[bool] = []

    def apply(message: Any) -> None:
        for topic in message.responses:
            for partition in topic.partitions:
                if first_acquired:
                    partition.acquired_records = change(message, list(partition.acquired_records))
                elif partition.acquired_records:
                    first_acquired.append(True)

    return apply


def lost(_message: Any, _spans: Spans) -> Spans:
    return []
