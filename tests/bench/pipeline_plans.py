"""G8: how even the ranges are that the planner makes, of all keys and of a sample. Neither Spark nor a broker runs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.pipeline.plan.key_range_planner import BUCKET_WIDTH, make_plan
from kafka_share_proxy.pipeline.plan.plan_job import sample_blocks
from kafka_share_proxy.pipeline.source.key_hashes import Array, record_hashes
from kafka_share_proxy.pipeline.source.key_ranges import KeyRanges
from kafka_share_proxy.wire.values import TopicPartition

from tests.bench.pipeline_goals import Figure

KEYS = 20_000
SAMPLE = 0.01
PLACE = TopicPartition("keys", 0)
LOADS = (
    ("uniform", 0.0, 16),
    ("Zipf 1.05", 1.05, 8),
    ("Zipf 1.05", 1.05, 16),
    ("Zipf 1.1", 1.1, 8),
    ("Zipf 1.1", 1.1, 16),
)
"""Name, exponent, ranges."""


def figures(records: int) -> Iterator[Figure]:
    """Each load, from everything and from a sample."""
    for name, exponent, count in LOADS:
        hashes, hottest = _load(exponent, records)
        everything = make_plan(_weights(hashes), count)
        whole, alone = _balance(everything.starts, hashes), hottest * count
        even = _balance(KeyRanges.even(count).starts, hashes)
        beside = f"even ranges {even:.3f}, hottest key alone {alone:.3f}"
        yield Figure("G8", f"{name}, {count} ranges", whole, "x mean", at_most=max(1.07, 1.02 * alone), beside=beside)
        spans = sample_blocks([(PLACE, OffsetSpan(0, records))], SAMPLE)
        part = np.concatenate([hashes[span.start : span.end] for _, span in spans])
        from_sample = _balance(make_plan(_weights(part), count).starts, hashes)
        most = max(1.12, 1.05 * alone)
        yield Figure("G8", f"{name}, {count} ranges, 1 % sample", from_sample, "x mean", at_most=most)


def _load(exponent: float, records: int) -> tuple[Array, float]:
    """The hash of each record's key, and the share of the heaviest key."""
    weights = [rank**-exponent for rank in range(1, KEYS + 1)]
    drawn = np.array(random.Random(11).choices(range(KEYS), weights, k=records))
    keys = b"".join(b"key-%07d" % number for number in range(KEYS))
    size = len(keys) // KEYS
    starts = np.arange(KEYS) * size
    hashes = record_hashes(keys, starts, np.full(KEYS, size), starts)
    return hashes[drawn], float(np.bincount(drawn).max()) / records


def _weights(hashes: Array) -> dict[int, float]:
    buckets, counts = np.unique(hashes // BUCKET_WIDTH, return_counts=True)
    return dict(zip(buckets.tolist(), counts.astype(float).tolist(), strict=True))


def _balance(starts: Sequence[int], hashes: Array) -> float:
    """Records of the heaviest range to those of the mean one, counted."""
    homes = np.searchsorted(np.asarray(starts), hashes, "right") - 1
    return float(np.bincount(homes, minlength=len(starts)).max()) * len(starts) / len(hashes)
