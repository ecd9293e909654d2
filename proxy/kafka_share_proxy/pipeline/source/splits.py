"""Splits of a read: (partition x key range x offsets), as plain values that can be sent (pipeline/README.md rule 8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kafka_share_proxy.offsets.ranges import OffsetSpan, ascending
from kafka_share_proxy.pipeline.source.key_ranges import KeyRanges
from kafka_share_proxy.views.model.plans import HASH_SPACE
from kafka_share_proxy.wire.records.key_hash import murmur2
from kafka_share_proxy.wire.values import TopicPartition

SPANS_MAX = 10_000
"""Maximum number of offset ranges in one split. A split is sent to an executor in one message."""
KEYS_MAX = 1_000
"""Maximum number of single keys that are pushed down. With more keys, Spark filters the rows."""


class Split(NamedTuple):
    """The records that one task reads."""

    topic: str
    topic_id: bytes
    partition: int
    spans: tuple[tuple[int, int], ...]
    """Offset ranges, half open, ascending."""
    low: int = 0
    high: int = HASH_SPACE
    """Upper end of the key hashes `low` to `high`, half open."""
    keys: tuple[bytes, ...] = ()
    is_only_here: bool = False
    """True if other splits read other keys of the same offsets: a server that does not filter by key is then an error.
    """

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def make_splits(
    requested: Iterable[tuple[TopicPartition, OffsetSpan]],
    topic_ids: Mapping[str, bytes],
    ranges: KeyRanges,
    offset_splits: int = 1,
    keys: Sequence[bytes] | None = None,
) -> list[Split]:
    """Return splits with each requested offset once per key range.

    The requested offsets may overlap. `offset_splits` is the number of pieces of each partition, with about as many
    offsets each.
    """
    spans: dict[TopicPartition, list[OffsetSpan]] = defaultdict(list)
    for partition, span in requested:
        if span.start < span.end:
            spans[partition].append(span)
    splits = []
    for partition, listed in sorted(spans.items()):
        for piece in _pieces(ascending(listed), offset_splits):
            base = Split(partition.topic, topic_ids[partition.topic], partition.partition, piece)
            splits += _by_keys(base, keys) if keys is not None else _by_ranges(base, ranges)
    return splits


def _by_ranges(base: Split, ranges: KeyRanges) -> list[Split]:
    is_only_here = len(ranges.starts) > 1
    return [base._replace(low=low, high=high, is_only_here=is_only_here) for low, high in ranges.bounds]


def _by_keys(base: Split, keys: Sequence[bytes]) -> list[Split]:
    """Return one split: Spark filters each row again."""
    hashes = [murmur2(key) for key in keys]
    if not hashes:
        return []
    return [base._replace(low=min(hashes), high=max(hashes) + 1, keys=tuple(keys))]


def _pieces(spans: Sequence[OffsetSpan], count: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield pieces of about equal size, of at most SPANS_MAX ranges each."""
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
