"""Deliveries of broker-side share groups that passed through this proxy and are not settled yet.

The audit joins a settle with its delivery here. Brokers do not report that an acquisition lock expired. The entry of
an offset is therefore replaced when it is delivered again, and is not used when another member settles it. Deliveries
that are never settled here are evicted when there are too many.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from kafka_share_proxy.audit.events import Place

DELIVERIES_MAX = 100_000
"""Maximum number of deliveries kept over all share partitions. Beyond it, the share partition with the oldest delivery
is evicted.
"""
DELIVERIES_OF_ONE_MAX = 10_000
"""Maximum number of deliveries kept for one share partition. Beyond it, the one with the lowest offsets is evicted."""

_last = attrgetter("last")


class SharedPlace(NamedTuple):
    """Partition, together with the share group that reads it."""

    group: str
    place: Place


class Delivery(NamedTuple):
    """Range of offsets acquired by a member."""

    first: int
    last: int
    attempt: int
    """Delivery count."""
    member: str | None
    acquired_at: float
    """Time of the acquisition in seconds of the loop's clock."""
    lock_s: float
    renewals: int = 0


class ForwardedDeliveries:
    """Deliveries of all share groups, kept in memory only."""

    def __init__(self, most: int = DELIVERIES_MAX, most_of_one: int = DELIVERIES_OF_ONE_MAX) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._held: dict[SharedPlace, list[Delivery]] = {}
        """Ascending deliveries without overlaps. The share partition with the newest delivery is last."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def acquired(self, share: SharedPlace, delivery: Delivery) -> None:
        """Record the delivery of a range. Earlier deliveries of its offsets end."""
        held = self._held.pop(share, None)
        if held is None:
            held = []
        self._held[share] = held
        if not held or held[-1].last < delivery.first:
            held.append(delivery)
            self._count += 1
        else:
            self._replace(held, delivery.first, delivery.last, [delivery])
        if len(held) > self._most_of_one:
            del held[0]
            self._count -= 1
        if self._count > self._most:
            self._count -= len(self._held.pop(next(iter(self._held))))

    def settled(
        self, share: SharedPlace, first: int, last: int, member: str | None
    ) -> Iterator[tuple[int, int, Delivery | None]]:
        """Remove a settled range. Yields its pieces with their delivery, or None for offsets without a known one."""
        held = self._held.get(share)
        found = [] if held is None else self._replace(held, first, last, [])
        if held is not None and not held:
            del self._held[share]
        return _pieces(found, first, last, member)

    def renewed(self, share: SharedPlace, first: int, last: int, member: str | None) -> None:
        """Count a renewal of the member's locks for a range."""
        held = self._held.get(share)
        if held is not None:
            found = self._replace(held, first, last, [])
            for each in found:
                again = each._replace(renewals=each.renewals + (each.member == member))
                self._replace(held, each.first, each.last, [again])

    def _replace(self, held: list[Delivery], first: int, last: int, new: list[Delivery]) -> list[Delivery]:
        """Replace a range by `new`. Returns the previous deliveries, cut to the range."""
        low = high = bisect_left(held, first, key=_last)
        while high < len(held) and held[high].first <= last:
            high += 1
        found = held[low:high]
        left = list[Delivery]()
        right = list[Delivery]()
        if found and found[0].first < first:
            left.append(found[0]._replace(last=first - 1))
            found[0] = found[0]._replace(first=first)
        if found and found[-1].last > last:
            right.append(found[-1]._replace(first=last + 1))
            found[-1] = found[-1]._replace(last=last)
        held[low:high] = [*left, *new, *right]
        self._count += len(left) + len(new) + len(right) - (high - low)
        return found


def _pieces(
    found: list[Delivery], first: int, last: int, member: str | None
) -> Iterator[tuple[int, int, Delivery | None]]:
    for each in found:
        if each.member != member:
            continue
        if first < each.first:
            yield first, each.first - 1, None
        yield each.first, each.last, each
        first = each.last + 1
    if first <= last:
        yield first, last, None
