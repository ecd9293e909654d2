"""Which deliveries of the brokers' share groups have passed here and are not settled yet: what a settle is told with.

Brokers tell nobody that a lock ran out. So what is known of offsets is replaced when they are delivered again, and is
nothing where another member settles them; what is never settled here goes when there is too much of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from proxy.audit.events import Place

DELIVERIES_MAX = 100_000
"""Of all share partitions; past it those of the one that was delivered from longest ago are forgotten."""
DELIVERIES_OF_ONE_MAX = 10_000
"""Of one share partition; past it the lowest offsets are forgotten."""

_last = attrgetter("last")


class SharedPlace(NamedTuple):
    """A partition as one group shares it."""

    group: str
    place: Place


class Delivery(NamedTuple):
    """A range of offsets that a member holds."""

    first: int
    last: int
    attempt: int
    """Delivery count."""
    member: str | None
    acquired_at: float
    """Seconds, of the loop's clock."""
    lock_s: float
    renewals: int = 0


class ForwardedDeliveries:
    """Of all groups, in memory only."""

    def __init__(self, most: int = DELIVERIES_MAX, most_of_one: int = DELIVERIES_OF_ONE_MAX) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._held: dict[SharedPlace, list[Delivery]] = {}
        """Ascending, without overlaps; the share partition that was delivered from last comes last."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def acquired(self, share: SharedPlace, delivery: Delivery) -> None:
        """A range was delivered; nobody else holds any of it any longer."""
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
        """A member settled a range: its pieces by delivery, None for what is not known. They are forgotten."""
        held = self._held.get(share)
        found = [] if held is None else self._replace(held, first, last, [])
        if held is not None and not held:
            del self._held[share]
        return _pieces(found, first, last, member)

    def renewed(self, share: SharedPlace, first: int, last: int, member: str | None) -> None:
        """A member renewed its locks of a range."""
        held = self._held.get(share)
        if held is not None:
            found = self._replace(held, first, last, [])
            for each in found:
                again = each._replace(renewals=each.renewals + (each.member == member))
                self._replace(held, each.first, each.last, [again])

    def _replace(self, held: list[Delivery], first: int, last: int, new: list[Delivery]) -> list[Delivery]:
        """Put `new` in the place of a range; what stood there, cut to the range."""
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
