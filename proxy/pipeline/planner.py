"""Where to cut the space of key hashes, so that the heaviest range is light (pipeline/README.md rules 23 and 24).

Pure: weights of equal buckets in, a plan out. The lightest heaviest range is found by search over its weight: a limit
is feasible if cutting greedily, as late as the limit allows, needs no more than n ranges.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from proxy.views.model import plans
from proxy.views.model.names import SLOTS_MAX, SLOTS_MIN
from proxy.wire.errors import ProxyError

BUCKET_BITS = 16
BUCKETS = 1 << BUCKET_BITS
"""Of the hash space; 2^12 lose 0.2 % of the balance (measured)."""
BUCKET_WIDTH = plans.HASH_SPACE // BUCKETS
HOT_KEYS_MAX = 20
"""Named in a plan."""


class NothingToPlan(ProxyError):
    """No load was seen, or the number of ranges cannot be."""


@dataclass(frozen=True)
class RangePlan:
    """Ranges of about equal weight."""

    starts: tuple[int, ...]
    weights: tuple[float, ...]
    """Shares of each range; their sum is 1."""
    hottest_bucket: float
    """Share of the heaviest bucket, which no plan can divide."""
    hot_keys: tuple[tuple[str, float], ...] = field(default=())
    """Keys as text, and their shares, of those that alone have more than a fair range."""

    @property
    def heaviest_to_mean(self) -> float:
        """1: all alike."""
        return max(self.weights) * len(self.weights)

    @property
    def bound(self) -> float:
        """No plan of these buckets has a lower `heaviest_to_mean`."""
        return max(1.0, self.hottest_bucket * len(self.weights))


def make_plan(weights: Mapping[int, float], count: int, buckets: int = BUCKETS) -> RangePlan:
    """The best plan of these buckets.

    Args:
        weights: bucket -> weight of any unit, at least 0; buckets that are left out weigh nothing.
        count: ranges.
        buckets: of the hash space, at least as many as ranges; a range begins where a bucket does.

    Raises:
        NothingToPlan: no weight at all, or a number of ranges that views do not have.
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
    return RangePlan(tuple(cut * width for cut in cuts), tuple(shares), max(listed) / total)


def _lightest(sums: Sequence[float], heaviest: float, count: int) -> float:
    """The smallest limit that is feasible, to a ten-millionth of the whole."""
    low, high = max(heaviest, sums[-1] / count), heaviest + sums[-1] / count
    while high - low > sums[-1] * 1e-7:
        middle = (low + high) / 2
        if len(_cuts(sums, middle, count + 1)) < count:
            high = middle
        else:
            low = middle
    return high


def _cuts(sums: Sequence[float], limit: float, most: int) -> list[int]:
    """Where ranges after the first begin, each as late as the limit allows; no more than `most` are looked for."""
    cuts: list[int] = []
    position = 0
    while len(cuts) < most:
        position = max(position + 1, bisect_right(sums, sums[position] + limit) - 1)
        if position >= len(sums) - 1:
            break
        cuts.append(position)
    return cuts


def _spread(cuts: list[int], count: int, buckets: int) -> list[int]:
    """Exactly `count` ranges: where fewer were needed, the widest are halved."""
    while len(cuts) < count:
        widths = [end - start for start, end in zip(cuts, (*cuts[1:], buckets), strict=True)]
        widest = max(range(len(cuts)), key=widths.__getitem__)
        cuts.insert(widest + 1, cuts[widest] + widths[widest] // 2)
    return cuts


def balance_of(starts: Sequence[int], weights: Mapping[int, float]) -> float:
    """Heaviest to mean of other ranges over the same buckets; a bucket that is cut counts to where it begins."""
    shares = [0.0] * len(starts)
    for bucket, weight in weights.items():
        shares[bisect_right(starts, bucket * BUCKET_WIDTH) - 1] += weight
    return max(shares) * len(starts) / sum(shares)


def written(plan: RangePlan, topic: str, made_from: Mapping[str, Any]) -> str:
    """The plan file, which `views plan` reads and this reads first. Raises BadPlan: a fault of the planner."""
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
            "hottest_bucket": round(plan.hottest_bucket, 6),
            "hot_keys": [[key, round(share, 6)] for key, share in plan.hot_keys[:HOT_KEYS_MAX]],
        },
        "made_from": dict(made_from),
    }
    text = json.dumps(document, indent=1)
    plans.read("file", text)
    return text + "\n"
