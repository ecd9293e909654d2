"""Plans are as balanced as contiguous ranges can be (pipeline/README.md rules 23 and 24)."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.pipeline.plan import key_range_planner
from kafka_share_proxy.pipeline.plan.key_range_planner import BUCKET_WIDTH, BUCKETS, NothingToPlan, make_plan, plan_text
from kafka_share_proxy.views.model import plans
from kafka_share_proxy.wire.records.key_hash import murmur2

WEIGHTS = st.dictionaries(st.integers(0, BUCKETS - 1), st.integers(1, 20), min_size=1, max_size=9)


def zipf(power: float, keys: int = 20_000) -> dict[int, float]:
    weights: dict[int, float] = {}
    for rank in range(1, keys + 1):
        bucket = murmur2(b"key-%d" % rank) // BUCKET_WIDTH
        weights[bucket] = weights.get(bucket, 0) + rank**-power
    return weights


@given(WEIGHTS, st.integers(2, 4))
def test_no_other_cut_has_a_lighter_heaviest_range(weights: dict[int, float], count: int) -> None:
    plan = make_plan(weights, count)
    ordered = [weights[bucket] for bucket in sorted(weights)]
    pieces = min(count, len(ordered))
    best = min(
        max(sum(ordered[start:end]) for start, end in pairwise((0, *cuts, len(ordered))))
        for cuts in combinations(range(1, len(ordered)), pieces - 1)
    )
    assert max(plan.weights) * sum(ordered) == pytest.approx(best, rel=1e-5)
    assert sum(plan.weights) == pytest.approx(1)
    assert len(set(plan.starts)) == len(plan.starts) == count


def balance_of(starts: Sequence[int], weights: Mapping[int, float]) -> float:
    """Return the heaviest-to-mean ratio of these ranges.

    A bucket that is cut counts to the range with its first hash.
    """
    shares = [0.0] * len(starts)
    for bucket, weight in weights.items():
        shares[bisect_right(starts, bucket * BUCKET_WIDTH) - 1] += weight
    return max(shares) * len(starts) / sum(shares)


@pytest.mark.parametrize(("power", "count"), [(0.0, 16), (1.05, 8), (1.05, 16), (1.1, 16)])
def test_zipf_keys_are_balanced_as_far_as_the_hottest_key_allows(power: float, count: int) -> None:
    weights = zipf(power)
    plan = make_plan(weights, count)
    even = balance_of([number * (1 << 32) // count for number in range(count)], weights)
    assert plan.heaviest_to_mean == pytest.approx(balance_of(plan.starts, weights), rel=1e-6)
    assert plan.heaviest_to_mean <= max(1.11, 1.02 * plan.bound)
    assert plan.heaviest_to_mean <= even


def test_the_file_is_what_the_views_read() -> None:
    plan = make_plan(zipf(1.1), 16)
    text = plan_text(key_range_planner.RangePlan(*plan_fields(plan), hot_keys=(("a", 0.2),)), "orders", {"rows": 5})
    assert plans.read("p1", text).starts == plan.starts
    document = json.loads(text)
    assert document["topic"] == "orders"
    assert document["hash"] == "murmur2-32"
    assert document["bound"]["hot_keys"] == [["a", 0.2]]
    assert document["made_from"] == {"rows": 5}
    assert sum(weight for _, _, weight in document["ranges"]) == pytest.approx(1, abs=1e-4)


def plan_fields(plan: key_range_planner.RangePlan) -> tuple[tuple[int, ...], tuple[float, ...], float]:
    return plan.starts, plan.weights, plan.hottest_bucket


@pytest.mark.parametrize(("weights", "count"), [({}, 4), ({5: 0.0}, 4), ({5: 1.0}, 0), ({5: 1.0}, 100_000)])
def test_a_topic_that_cannot_be_planned_is_reported(weights: dict[int, float], count: int) -> None:
    with pytest.raises(NothingToPlan):
        make_plan(weights, count)
