"""Deliveries of broker-side share groups that passed through this proxy and are not settled yet.

Brokers do not report that an acquisition lock expired. The entry of an offset is therefore replaced when it is
delivered again, and is not used when another member settles it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from kafka_share_proxy.audit.events import Place

DELIVERIES_MAX = 100_000
"""Maximum number of deliveries. Beyond it, the share partition with the oldest delivery is evicted."""
DELIVERIES_OF_ONE_MAX = 10_000
"""Maximum number of deliveries of one share partition. Beyond it, the one with the lowest offsets is evicted."""

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
    """Time in seconds of the loop's clock."""
    lock_s: float
    renewals: int = 0


class ForwardedDeliveries:
    """Deliveries of all share groups that the brokers serve, as seen here."""

    def __init__(self, deliveries_max: int = DELIVERIES_MAX, share_max: int = DELIVERIES_OF_ONE_MAX) -> None:
        self._deliveries_max, self._share_max = deliveries_max, share_max
        self._deliveries: dict[SharedPlace, list[Delivery]] = {}
        """Ascending, without overlaps. The share partition with the newest delivery is last."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def acquired(self, share: SharedPlace, delivery: Delivery) -> None:
        deliveries = self._deliveries.pop(share, None)
        if deliveries is None:
            deliveries = []
        self._deliveries[share] = deliveries
        if not deliveries or deliveries[-1].last < delivery.first:
            deliveries.append(delivery)
            self._count += 1
        else:
            self._replace(deliveries, delivery.first, delivery.last, [delivery])
        if len(deliveries) > self._share_max:
            del deliveries[0]
            self._count -= 1
        if self._count > self._deliveries_max:
            self._count -= len(self._deliveries.pop(next(iter(self._deliveries))))

    def settled(
        self, share: SharedPlace, first: int, last: int, member: str | None
    ) -> Iterator[tuple[int, int, Delivery | None]]:
        """Remove a settled range. Yield its pieces with their delivery, None if unknown."""
        deliveries = self._deliveries.get(share)
        removed = [] if deliveries is None else self._replace(deliveries, first, last, [])
        if deliveries is not None and not deliveries:
            del self._deliveries[share]
        return _pieces(removed, first, last, member)

    def renewed(self, share: SharedPlace, first: int, last: int, member: str | None) -> None:
        """Count a renewal of the member's locks."""
        deliveries = self._deliveries.get(share)
        if deliveries is not None:
            removed = self._replace(deliveries, first, last, [])
            for delivery in removed:
                renewed = delivery._replace(renewals=delivery.renewals + (delivery.member == member))
                self._replace(deliveries, delivery.first, delivery.last, [renewed])

    def _replace(self, deliveries: list[Delivery], first: int, last: int, new: list[Delivery]) -> list[Delivery]:
        """Replace a range. Return the previous deliveries, cut to it."""
        begin = end = bisect_left(deliveries, first, key=_last)
        while end < len(deliveries) and deliveries[end].first <= last:
            end += 1
        removed = deliveries[begin:end]
        kept_before = list[Delivery]()
        kept_after = list[Delivery]()
        if removed and removed[0].first < first:
            kept_before.append(removed[0]._replace(last=first - 1))
            removed[0] = removed[0]._replace(first=first)
        if removed and removed[-1].last > last:
            kept_after.append(removed[-1]._replace(first=last + 1))
            removed[-1] = removed[-1]._replace(last=last)
        deliveries[begin:end] = [*kept_before, *new, *kept_after]
        self._count += len(kept_before) + len(new) + len(kept_after) - (end - begin)
        return removed


def _pieces(
    removed: list[Delivery], first: int, last: int, member: str | None
) -> Iterator[tuple[int, int, Delivery | None]]:
    for delivery in removed:
        if delivery.member != member:
            continue
        if first < delivery.first:
            yield first, delivery.first - 1, None
        yield delivery.first, delivery.last, delivery
        first = delivery.last + 1
    if first <= last:
        yield first, last, None
