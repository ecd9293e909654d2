"""Records and results of the members of a share group, and their check (`tests/clients/sharemember`).

An offset is settled for its member once the acknowledgement callback confirmed it without an error. All times are
nanoseconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

Place = tuple[int, int]
"""Partition and offset."""

IN_FLIGHT_NS = 1_000_000_000
"""A response acquired by the broker reaches the buffer of its client within this time."""
REFUSED = ("InvalidRecordStateException", "ShareSessionNotFoundException", "InvalidShareSessionEpochException")
"""Errors that mean: this acknowledgement is not stored. Exceptions that mean refused; with another one, or none, the
outcome is unknown.
"""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record that arrived at the application."""

    member: str
    record: str
    fetched_after: int
    """The buffer of the client was empty then: the record arrived in it later."""
    at: int


@dataclass(frozen=True, slots=True)
class Reported:
    """Result of the acknowledgement callback for an offset."""

    member: str
    error: str | None
    at: int


@dataclass
class Ledger:
    """Everything that members said."""

    deliveries: dict[Place, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    confirmed: dict[Place, list[Reported]] = field(default_factory=lambda: defaultdict(list))
    failed: dict[Place, list[Reported]] = field(default_factory=lambda: defaultdict(list))
    errors: Counter[str] = field(default_factory=Counter)
    """How often a call of a consumer failed, by what it said."""

    def take(self, member: str, line: str) -> None:
        """Process one line of a member. Raises ValueError."""
        kind, *words = line.split()
        if kind == "D":
            partition, offset, _, record, fetched_after, at = words
            delivery = Delivery(member, record, int(fetched_after), int(at))
            self.deliveries[int(partition), int(offset)].append(delivery)
        elif kind == "S":
            self._reported(self.confirmed, words[0], Reported(member, None, int(words[1])), words[2:])
        elif kind == "F":
            self._reported(self.failed, words[0], Reported(member, words[2], int(words[1])), words[3:])
        elif kind == "E":
            self.errors[" ".join(words[1:])] += 1
        else:
            raise ValueError(f"{member} said {line!r}")

    @staticmethod
    def _reported(
        where: dict[Place, list[Reported]], partition: str, delivery: Reported, offsets: Iterable[str]
    ) -> None:
        for offset in offsets:
            where[int(partition), int(offset)].append(delivery)

    def faults(self, produced: Mapping[str, Place]) -> list[str]:
        """Return the faults, once the group has no lag. `produced`: the records that brokers confirmed."""
        return [*self._settled_twice(), *self._delivered_after(), *self.never_settled(produced), *self._other(produced)]

    def _settled_twice(self) -> Iterator[str]:
        for place, deliveries in self.confirmed.items():
            if sum(not self._is_overtaken(place, each) for each in deliveries) > 1:
                delivered = self.deliveries.get(place)
                yield f"{place} was settled {len(deliveries)} times: {deliveries}, delivered {delivered}"

    def _is_overtaken(self, place: Place, delivery: Reported) -> bool:
        """Return True if another member was given the record since, and settled it, before this one's result.

        Its lock had ended. An acknowledgement below the start offset succeeds without an error (sharegroups/README.md
        rule 41), so that the result of a late member is true by then.
        """
        newest = max(self.deliveries.get(place, ()), key=lambda each: each.at, default=None)
        if newest is None or newest.member == delivery.member or newest.at > delivery.at:
            return False
        return any(each.member == newest.member for each in self.confirmed[place])

    def _delivered_after(self) -> Iterator[str]:
        for place, late in self.late():
            settled = self.confirmed[place][0]
            if late.fetched_after - IN_FLIGHT_NS > settled.at:
                yield f"{place} was delivered after it was settled: {late} after {settled}"

    def late(self) -> Iterator[tuple[Place, Delivery]]:
        """Return records that arrived at an application after another saw them settled.

        Not each is a fault: one whose lock expired in the buffer of a slow client arrives late, and cannot be settled.
        """
        for place, attempts in self.confirmed.items():
            for delivery in self.deliveries.get(place, ()):
                if delivery.at > attempts[0].at:
                    yield place, delivery

    def never_settled(self, produced: Mapping[str, Place]) -> Iterator[str]:
        """Return records that no member saw settled, and that no member accepted in vain: it accepts every record.

        Where the response to an acknowledgement is lost with its connection, the record can be settled all the same.
        """
        for record, place in produced.items():
            if place not in self.confirmed and place not in self.failed:
                yield f"record {record} at {place} was never settled: {self.deliveries.get(place)}"

    def _other(self, produced: Mapping[str, Place]) -> Iterator[str]:
        places = {place: record for record, place in produced.items()}
        if len(places) < len(produced):
            yield f"{len(produced) - len(places)} records share an offset with another"
        for place, deliveries in self.deliveries.items():
            for delivery in deliveries:
                if places.get(place) != delivery.record:
                    yield f"{delivery} of {place}, where {places.get(place)} was produced"
        for place in self.confirmed.keys() - self.deliveries.keys():
            yield f"{place} was settled and never delivered"

    def never_reported(self, produced: Mapping[str, Place]) -> int:
        """Return how many records are settled although no member reported it."""
        return sum(place not in self.confirmed for place in produced.values())

    def rejected_acceptances(self, produced: Mapping[str, Place]) -> list[str]:
        """Return settled records for which every accepting member got a failure.

        The broker could not say in time what became of an acknowledgement, and refused it when it was repeated.
        """
        unheard = [place for place in produced.values() if place not in self.confirmed]
        return [
            f"{place}: {self.failed[place]}, delivered {self.deliveries[place]}"
            for place in unheard
            if place in self.failed and all(delivery.error in REFUSED for delivery in self.failed[place])
        ]

    def gaps(self, since: int, until: int) -> list[tuple[int, int]]:
        """Return (length, begin) of the times without any settled record between two moments, the longest first."""
        return gaps((delivery.at for each in self.confirmed.values() for delivery in each), since, until)


def gaps(moments: Iterable[int], since: int, until: int) -> list[tuple[int, int]]:
    """Return (length, begin) of the times between these moments from since to until, the longest first."""
    edges = pairwise([since, *sorted({each for each in moments if since <= each <= until}), until])
    return sorted(((later - earlier, earlier) for earlier, later in edges), reverse=True)
