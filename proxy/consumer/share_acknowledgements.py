"""What is said of records, and the batches in which a request says it (consumer/share_consumers.md rule 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple


class AcknowledgeType(IntEnum):
    """What becomes of a record (org.apache.kafka.clients.consumer.AcknowledgeType; AcknowledgementBatches)."""

    GAP = 0
    """There is no record at this offset; never said by applications."""
    ACCEPT = 1
    """It is processed."""
    RELEASE = 2
    """It is to be delivered again."""
    REJECT = 3
    """It cannot be processed, and is not delivered again."""
    RENEW = 4
    """It is still worked on: its acquisition lock begins anew (KIP-1222)."""


Said = Mapping[int, AcknowledgeType]
"""Offset -> what is said of its record."""

RUN_MIN = 10
"""Offsets of one type that are worth a batch of their own: its bounds are as long as so many types and more."""


class AcknowledgementSpan(NamedTuple):
    """One batch of a request."""

    first: int
    last: int
    types: list[int]
    """One for all, or one for each offset."""


def spans(said: Said) -> list[AcknowledgementSpan]:
    """Batches, ascending and without overlap, that say this of these offsets and of no others."""
    made: list[AcknowledgementSpan] = []
    for first, last, kind in _runs(said):
        count = last - first + 1
        before = made[-1] if made and made[-1].last + 1 == first else None
        if before is None or count >= RUN_MIN or not _is_open(before):
            made.append(AcknowledgementSpan(first, last, [int(kind)]))
            continue
        types = before.types
        if len(types) == 1:
            types *= before.last - before.first + 1
        types += [int(kind)] * count
        made[-1] = AcknowledgementSpan(before.first, last, types)
    return made


def _is_open(span: AcknowledgementSpan) -> bool:
    """Whether what follows may be added to it."""
    return len(span.types) > 1 or span.last - span.first + 1 < RUN_MIN


def _runs(said: Said) -> Iterator[tuple[int, int, AcknowledgeType]]:
    """First, last and type of neighbours of which the same is said."""
    offsets = sorted(said)
    begin = 0
    for index in range(1, len(offsets) + 1):
        first = offsets[begin]
        ended = index == len(offsets) or offsets[index] != offsets[index - 1] + 1 or said[offsets[index]] != said[first]
        if ended:
            yield first, offsets[index - 1], said[first]
            begin = index
