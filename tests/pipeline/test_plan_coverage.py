"""A plan's promise about the heaviest range holds on traffic (pipeline/README.md rule 24)."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from kafka_share_proxy.audit.events import Place
from kafka_share_proxy.audit.loads import Loads
from kafka_share_proxy.audit.sampling import KeySampling
from kafka_share_proxy.pipeline.plan.key_range_planner import RangePlan, make_plan
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.batches import BatchTable, split_complete
from kafka_share_proxy.wire.records.key_hash import murmur2
from kafka_share_proxy.wire.records.key_samples import BUCKET_SHIFT, BUCKETS
from kafka_share_proxy.wire.records.records import Record

from tests.support.manual_timers import ManualTimers

PARTITIONS, RANGES, RECORDS, KEYS = 8, 8, 40_000, 5_000
RUNS = 30
Read = tuple[Place, BatchTable, memoryview]


@dataclass(frozen=True)
class Traffic:
    """How Zipf keys are produced and read; a key is always in the same partition, and partitions are unequal."""

    records_a_read: Sequence[int] = (500,) * PARTITIONS
    batch: int = 500
    in_a_row: int = 1
    """Records that one key has in a row."""


SHAPES = {
    "reads of 500": Traffic(),
    "reads of 8 and of 2,000": Traffic(records_a_read=(8, 8, 8, 8, 2000, 2000, 2000, 2000)),
    "batches of 10": Traffic(records_a_read=(40,) * PARTITIONS, batch=10),
    "20 of one key in a row": Traffic(in_a_row=20),
}


def played(shape: Traffic) -> tuple[Counter[int], list[Read]]:
    """Return the records of each bucket, and what is read, in any order of the partitions."""
    dice = random.Random(1)
    weights = [rank**-1.05 for rank in range(1, KEYS + 1)]
    truth, logs = Counter[int](), [list[bytes]() for _ in range(PARTITIONS)]
    for number in dice.choices(range(KEYS), weights, k=RECORDS // shape.in_a_row):
        key = b"key-%d" % number
        truth[murmur2(key) >> BUCKET_SHIFT] += shape.in_a_row
        logs[murmur2(key) % PARTITIONS].extend([key] * shape.in_a_row)
    waiting = [_reads(Place(b"t", at), log, shape.records_a_read[at], shape.batch) for at, log in enumerate(logs)]
    order = [at for at, reads in enumerate(waiting) for _ in reads]
    dice.shuffle(order)
    return truth, [waiting[at].pop(0) for at in order]


def _reads(place: Place, log: list[bytes], size: int, batch: int) -> list[Read]:
    reads = []
    for first in range(0, len(log), size):
        batches = [
            records.build_batch(
                base, [Record(key=key, value=b"v", offset=base + at) for at, key in enumerate(log[base:end])]
            )
            for base in range(first, min(first + size, len(log)), batch)
            for end in [min(base + batch, first + size)]
        ]
        data = memoryview(b"".join(batches))
        reads.append((place, split_complete(data)[0], data))
    return reads


def planned(reads: list[Read], seed: int) -> RangePlan:
    """Sample what is read with the default settings, and plan as the jobs `audit` and `plan` do."""
    dice, timers = random.Random(seed), ManualTimers()
    loads = Loads(0.0, draw=dice.random)
    keys = KeySampling(timers, 10.0, loads.add_sample, dice.random)
    for place, batches, data in reads:
        timers.advance(batches.records_count / 100_000)
        loads.of(place).rows += batches.records_count
        keys.read(place, batches, data)
    weights, variances = Counter[int](), Counter[int]()
    for kind, _, values in loads.take(1.0):
        if kind != "load":
            continue
        (_, rows, _, _, sampled, _, _, _, _, effective, buckets) = values
        scale, each = rows / sampled, sampled / effective.json_value()
        for bucket, (count, _) in buckets.json_value().items():
            weights[int(bucket)] += count * scale
            variances[int(bucket)] += count * each * scale**2
    return make_plan(weights, RANGES, BUCKETS, variances)


def heaviest_to_mean(plan: RangePlan, truth: Mapping[int, int]) -> float:
    loads = [0] * RANGES
    for bucket, count in truth.items():
        loads[bisect_right(plan.starts, bucket << BUCKET_SHIFT) - 1] += count
    return max(loads) * RANGES / sum(loads)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_heaviest_range_is_within_the_promise_and_near_the_optimum(shape: str) -> None:
    """The sample is drawn anew each time: at least 95 of 100 promises hold, less what 40 draws may be off by."""
    truth, reads = played(SHAPES[shape])
    optimum = make_plan(truth, RANGES, BUCKETS).heaviest_to_mean
    plans = [planned(reads, seed) for seed in range(RUNS)]
    measured = [heaviest_to_mean(plan, truth) for plan in plans]
    met_count = sum(real <= plan.at_most for real, plan in zip(measured, plans, strict=True))
    assert met_count >= RUNS * 0.95 - 3
    assert sum(measured) / RUNS < optimum * 1.1
    assert max(plan.at_most for plan in plans) < optimum * 1.4
