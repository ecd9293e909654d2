"""Acknowledgements of records, and their batches in a request (consumer/share_consumers.md rule 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from kafka_share_proxy.wire.values import TopicPartition


class AcknowledgeType(IntEnum):
    """Types of acknowledgement (org.apache.kafka.clients.consumer.AcknowledgeType; AcknowledgementBatches)."""

    GAP = 0
    """No record has this offset. Never used by applications."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    """The record cannot be processed. Do not deliver it again."""
    RENEW = 4
    """The record is still being processed. Its acquisition lock starts again (KIP-1222)."""


TypesByOffset = Mapping[int, AcknowledgeType]
DelaysByOffset = Mapping[int, int]
"""Milliseconds that were named for released records."""
NamedDelays = Mapping[TopicPartition, DelaysByOffset]

RUN_MIN = 10
"""Adjacent acknowledgements of one type from which on they are one batch (AcknowledgementBatches)."""


class AcknowledgementSpan(NamedTuple):
    """One batch of a request."""

    first: int
    last: int
    types: list[int]
    """Types of acknowledgement: one for all offsets, or one for each offset."""


def delayed_spans(
    types_by_offset: TypesByOffset, delays: DelaysByOffset
) -> Iterator[tuple[AcknowledgementSpan, int | None]]:
    """Yield the batches, ascending, with the delay that all records of a batch have."""
    for delay_ms, offsets in groupby(sorted(types_by_offset), key=delays.get):
        for span in spans({offset: types_by_offset[offset] for offset in offsets}):
            yield span, delay_ms


def spans(types_by_offset: TypesByOffset) -> list[AcknowledgementSpan]:
    """Return the batches, ascending and without overlap."""
    merged: list[AcknowledgementSpan] = []
    for first, last, kind in _runs(types_by_offset):
        count = last - first + 1
        before = merged[-1] if merged and merged[-1].last + 1 == first else None
        if before is None or count >= RUN_MIN or not _is_open(before):
            merged.append(AcknowledgementSpan(first, last, [int(kind)]))
            continue
        types = before.types
        if len(types) == 1:
            types *= before.last - before.first + 1
        types += [int(kind)] * count
        merged[-1] = AcknowledgementSpan(before.first, last, types)
    return merged


def _is_open(span: AcknowledgementSpan) -> bool:
    return len(span.types) > 1 or span.last - span.first + 1 < RUN_MIN


def _runs(types_by_offset: TypesByOffset) -> Iterator[tuple[int, int, AcknowledgeType]]:
    offsets = sorted(types_by_offset)
    begin = 0
    for index in range(1, len(offsets) + 1):
        first = offsets[begin]
        ended = (
            index == len(offsets)
            or offsets[index] != offsets[index - 1] + 1
            or types_by_offset[offsets[index]] != types_by_offset[first]
        )
        if ended:
            yield first, offsets[index - 1], types_by_offset[first]
            begin = index
