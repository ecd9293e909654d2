"""How a read is divided: (partition x key range x offsets), as plain values that travel (pipeline/README.md rule 8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from proxy.offsets.ranges import OffsetSpan, ascending
from proxy.pipeline.key_ranges import KeyRanges
from proxy.views.model.plans import HASH_SPACE
from proxy.wire.key_hash import murmur2
from proxy.wire.values import TopicPartition

SPANS_MAX = 10_000
"""Ranges of offsets in one split; a split is one message to an executor."""
KEYS_MAX = 1_000
"""Single keys that are pushed down; more are left to Spark."""


class Split(NamedTuple):
    """What one task reads."""

    topic: str
    topic_id: bytes
    partition: int
    spans: tuple[tuple[int, int], ...]
    """Offsets, half open, ascending."""
    low: int = 0
    high: int = HASH_SPACE
    """Hashes of keys, half open."""
    keys: tuple[bytes, ...] = ()
    """These keys alone; empty: all that lie in the range."""
    is_only_here: bool = False
    """Whether other splits read the same offsets: then a server that does not filter cannot serve it."""

    @property
    def place(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.topic, self.partition)


def make_splits(
    wanted: Iterable[tuple[TopicPartition, OffsetSpan]],
    topic_ids: Mapping[str, bytes],
    ranges: KeyRanges,
    offset_splits: int = 1,
    keys: Sequence[bytes] | None = None,
) -> list[Split]:
    """Every wanted offset in each key range exactly once; empty ranges of offsets give nothing.

    Args:
        wanted: offsets by partition; they may overlap.
        topic_ids: by name.
        ranges: of hashes.
        offset_splits: pieces of each partition, of about as many offsets.
        keys: only these; None: all.
    """
    spans: dict[TopicPartition, list[OffsetSpan]] = defaultdict(list)
    for place, span in wanted:
        if span.start < span.end:
            spans[place].append(span)
    found = []
    for place, listed in sorted(spans.items()):
        for piece in _pieces(ascending(listed), offset_splits):
            base = Split(place.topic, topic_ids[place.topic], place.partition, piece)
            found += _by_keys(base, keys) if keys is not None else _by_ranges(base, ranges)
    return found


def _by_ranges(base: Split, ranges: KeyRanges) -> list[Split]:
    is_only_here = len(ranges.starts) > 1
    return [base._replace(low=low, high=high, is_only_here=is_only_here) for low, high in ranges.bounds]


def _by_keys(base: Split, keys: Sequence[bytes]) -> list[Split]:
    """One split: Spark looks at each row again, so that a server which does not filter does no harm."""
    hashes = [murmur2(key) for key in keys]
    if not hashes:
        return []
    return [base._replace(low=min(hashes), high=max(hashes) + 1, keys=tuple(keys))]


def _pieces(spans: Sequence[OffsetSpan], count: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """The same offsets in at most `count` pieces of about as many offsets, and of at most SPANS_MAX ranges."""
    size = max(1, -(-sum(span.end - span.start for span in spans) // count))
    piece: list[tuple[int, int]] = []
    room = size
    for span in spans:
        start = span.start
        while start < span.end:
            end = min(span.end, start + room)
            piece.append((start, end))
            room -= end - start
            start = end
            if room == 0 or len(piece) >= SPANS_MAX:
                yield tuple(piece)
                piece, room = [], size
    if piece:
        yield tuple(piece)
