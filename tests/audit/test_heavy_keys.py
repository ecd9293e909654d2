"""The summary of the heaviest hashes: bounded, never too high, never too low by more than it says."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from kafka_share_proxy.audit.heavy_keys import CROWDED, HeavyKeys


def zipf(dice: random.Random, records: int, keys: int) -> list[int]:
    weights = [1 / (rank + 1) for rank in range(keys)]
    return dice.choices(range(keys), weights, k=records)


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_within_the_reported_error(seed: int) -> None:
    """For listed and unlisted keys."""
    dice = random.Random(seed)
    summary, truth = HeavyKeys(kept_max=20), Counter[int]()
    for _ in range(50):
        part = zipf(dice, 400, 3000)
        summary.add(part)
        truth.update(part)
    listed = dict(summary.heaviest(20))
    assert summary.records == truth.total() == 20_000
    assert summary.error <= 20_000 / 21
    for key, count in truth.items():
        assert listed.get(key, 0) <= count <= listed.get(key, 0) + summary.error
    assert [key for key, _ in summary.heaviest(3)] == [key for key, _ in truth.most_common(3)]


def test_memory_is_bounded_by_what_is_kept() -> None:
    summary = HeavyKeys(kept_max=10)
    for start in range(0, 10_000, 7):
        summary.add(range(start, start + 7))
        assert len(summary._counts) <= CROWDED * 10 + 7
    assert len(summary.heaviest(100)) <= 10


def test_few_keys_are_counted_exactly() -> None:
    summary = HeavyKeys(kept_max=10)
    summary.add([1, 2] * 5)
    summary.add([1, 1, 1, 2, 1, 1, 2])
    assert (summary.heaviest(5), summary.error, summary.records) == ([(1, 10), (2, 7)], 0, 17)
