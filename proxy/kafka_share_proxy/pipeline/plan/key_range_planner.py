"""Planner of key ranges: divides the space of key hashes so that the heaviest range is light.

See pipeline/README.md rules 23 and 24.

Pure. It searches the smallest feasible weight of the heaviest range. A limit is feasible if greedy cuts, each as late
as the limit allows, need at most n ranges.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil, sqrt
from statistics import NormalDist
from typing import Any

from kafka_share_proxy.views.model import plans
from kafka_share_proxy.views.model.names import SLOTS_MAX, SLOTS_MIN
from kafka_share_proxy.wire.errors import ProxyError

BUCKET_BITS = 16
BUCKETS = 1 << BUCKET_BITS
"""Number of buckets. 2^12 buckets lose 0.2 % of the balance (measured)."""
BUCKET_WIDTH = plans.HASH_SPACE // BUCKETS
HOT_KEYS_MAX = 20
CONFIDENCE = 0.95
"""Probability with which the heaviest range is at most as heavy as promised."""
FEW_SAMPLES = 0.1
"""Relative excess of the bound over the estimate that means too few samples."""


class NothingToPlan(ProxyError):
    """There was no load, or the number of ranges is invalid."""


@dataclass(frozen=True)
class RangePlan:
    """Ranges of about equal weight."""

    starts: tuple[int, ...]
    weights: tuple[float, ...]
    hottest_bucket: float
    """Share of the heaviest bucket, which no plan can divide."""
    hot_keys: tuple[tuple[str, float], ...] = field(default=())
    """Keys that alone have more than a fair range."""
    share_at_most: float | None = None
    """None if the sampling error is unknown."""

    @property
    def heaviest_to_mean(self) -> float:
        """Weight of the heaviest range as a multiple of the mean."""
        return max(self.weights) * len(self.weights)

    @property
    def at_most(self) -> float:
        """Upper bound of `heaviest_to_mean`, with the probability CONFIDENCE."""
        count = len(self.weights)
        return self.heaviest_to_mean if self.share_at_most is None else min(self.share_at_most * count, count)

    @property
    def samples_needed(self) -> float:
        """Factor by which the sample must grow; at most 1 if it is sufficient."""
        return ((self.at_most / self.heaviest_to_mean - 1) / FEW_SAMPLES) ** 2

    @property
    def bound(self) -> float:
        """Lower limit of `heaviest_to_mean` of any plan: no plan divides the heaviest bucket."""
        return max(1.0, self.hottest_bucket * len(self.weights))


def make_plan(
    weights: Mapping[int, float],
    count: int,
    buckets: int = BUCKETS,
    variances: Mapping[int, float] | None = None,
    unseen: float = 0.0,
) -> RangePlan:
    """Return the best plan. Each range begins where a bucket does.

    `variances`: of weights that were estimated from a sample. `unseen`: share of the load without sampled keys, which
    may belong entirely to one range. Raises NothingToPlan without any weight, or for a number of ranges that views do
    not have.
    """
    if not SLOTS_MIN <= count <= SLOTS_MAX:
        raise NothingToPlan(f"a plan has {SLOTS_MIN} to {SLOTS_MAX} ranges, not {count}")
    listed = [float(weights.get(bucket, 0)) for bucket in range(buckets)]
    total = sum(listed)
    if total <= 0 or min(listed) < 0:
        raise NothingToPlan("no load was seen: nothing says where to cut")
    sums = [0.0, *accumulate(listed)]
    ends = _cuts(sums, _lightest(sums, max(listed), count), count)
    cuts = _spread([0, *ends], count, buckets)
    shares = [(sums[end] - sums[start]) / total for start, end in zip(cuts, (*cuts[1:], buckets), strict=True)]
    width = plans.HASH_SPACE // buckets
    at_most = None
    if variances is not None:
        errors = [0.0, *accumulate(variances.get(bucket, 0) / total**2 for bucket in range(buckets))]
        spread = [errors[end] - errors[start] for start, end in zip(cuts, (*cuts[1:], buckets), strict=True)]
        at_most = _share_at_most(shares, spread) * (1 - unseen) + unseen
    return RangePlan(tuple(cut * width for cut in cuts), tuple(shares), max(listed) / total, share_at_most=at_most)


def _share_at_most(shares: Sequence[float], variances: Sequence[float]) -> float:
    """Return the upper bound of the shares of all ranges together.

    Each range has the upper limit of Wilson (1927) with its effective sample size (Kish, 1965; Brown, Cai and DasGupta,
    2001), at a level that Bonferroni's inequality makes hold for all ranges at one time: the heaviest range of a plan
    is one whose sample was low by chance.
    """
    total = sum(variances)
    if total <= 0:
        return max(shares)
    z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / len(shares))
    return max(
        upper_limit(share, share / variance if variance > 0 else 1 / total, z)
        for share, variance in zip(shares, variances, strict=True)
    )


def upper_limit(share: float, size: float, z: float) -> float:
    share = min(share, 1.0)
    spread = z * sqrt(share * (1 - share) / size + z * z / (4 * size * size))
    return min((share + z * z / (2 * size) + spread) / (1 + z * z / size), 1.0)


def _lightest(sums: Sequence[float], heaviest: float, count: int) -> float:
    """Return the lowest limit of a range's weight with which `count` ranges suffice, by bisection."""
    low, high = max(heaviest, sums[-1] / count), heaviest + sums[-1] / count
    while high - low > sums[-1] * 1e-7:
        middle = (low + high) / 2
        if len(_cuts(sums, middle, count + 1)) < count:
            high = middle
        else:
            low = middle
    return high


def _cuts(sums: Sequence[float], limit: float, ranges_max: int) -> list[int]:
    """Return where ranges end that are each as wide as the limit of their weight allows."""
    cuts: list[int] = []
    position = 0
    while len(cuts) < ranges_max:
        position = max(position + 1, bisect_right(sums, sums[position] + limit) - 1)
        if position >= len(sums) - 1:
            break
        cuts.append(position)
    return cuts


def _spread(cuts: list[int], count: int, buckets: int) -> list[int]:
    """Halve the widest ranges if fewer were needed."""
    while len(cuts) < count:
        widths = [end - start for start, end in zip(cuts, (*cuts[1:], buckets), strict=True)]
        widest = max(range(len(cuts)), key=widths.__getitem__)
        cuts.insert(widest + 1, cuts[widest] + widths[widest] // 2)
    return cuts


def plan_text(plan: RangePlan, topic: str, made_from: Mapping[str, Any]) -> str:
    """Return a plan as the text of a plan file. A BadPlan that this raises is a bug of the planner."""
    ranges = [
        [low, high, round(weight, 6)]
        for low, high, weight in zip(plan.starts, (*plan.starts[1:], plans.HASH_SPACE), plan.weights, strict=True)
    ]
    document = {
        "version": plans.VERSION,
        "topic": topic,
        "hash": plans.HASH,
        "n": len(ranges),
        "ranges": ranges,
        "bound": {
            "heaviest_to_mean": round(plan.heaviest_to_mean, 4),
            "at_most": ceil(plan.at_most * 10_000) / 10_000,
            "confidence": CONFIDENCE,
            "hottest_bucket": round(plan.hottest_bucket, 6),
            "hot_keys": [[key, round(share, 6)] for key, share in plan.hot_keys[:HOT_KEYS_MAX]],
        },
        "made_from": dict(made_from),
    }
    text = json.dumps(document, indent=1)
    plans.read("file", text)
    return text + "\n"
