"""Lines of keyed members, and the check that the records of each key were settled in the order of their offsets.

    D partition offset time deliveries    the record arrived at the application
    A partition offset time               it is accepted: written before the request is sent
    R partition offset time               it is released: as above
    S partition offset time error         the acknowledgement callback; the error is "-" for none
    H                                     the member works longer than its lock
    E error                               a call of the consumer failed

All times are nanoseconds of CLOCK_MONOTONIC. The check needs no assumption about delays: the proxy acquires the next
record of a key after it received the settle of the one before, and therefore after a member wrote that settle's line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Place = tuple[int, int]
"""Partition and offset."""

REFUSED = ("InvalidRecordState", "INVALID_RECORD_STATE", "ShareSessionNotFound", "SHARE_SESSION_NOT_FOUND")
"""Beginnings of the errors that mean: this acknowledgement is not stored. After any other its outcome is unknown."""


@dataclass(slots=True)
class Settle:
    """One attempt of a member to settle or release a record."""

    member: str
    is_release: bool
    sent: int
    confirmed: int | None = None
    error: str | None = None

    def may_settle(self) -> bool:
        """Return True unless it releases, or was refused for certain."""
        return not self.is_release and not (self.error or "").startswith(REFUSED)

    @property
    def settled_at(self) -> int | None:
        """Return the time of the result. None unless it says that the record is settled."""
        return None if self.is_release or self.error is not None else self.confirmed


@dataclass
class KeyedLedger:
    """Everything that the members printed."""

    deliveries: dict[Place, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Times of arrival."""
    attempts: dict[Place, list[Settle]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    most_deliveries: int = 0
    _open: dict[tuple[str, Place], list[Settle]] = field(default_factory=lambda: defaultdict(list))

    def take(self, member: str, line: str) -> None:
        """Process one line of a member. Raises ValueError."""
        kind, *words = line.split()
        self.counts[kind] += 1
        if kind == "E":
            self.errors[" ".join(words)[:120]] += 1
        elif kind != "H":
            self._take_record(member, kind, (int(words[0]), int(words[1])), int(words[2]), words[3:])

    def _take_record(self, member: str, kind: str, place: Place, time: int, more: Sequence[str]) -> None:
        if kind == "D":
            self.deliveries[place].append(time)
            self.most_deliveries = max(self.most_deliveries, int(more[0]))
        elif kind in ("A", "R"):
            attempt = Settle(member, kind == "R", time)
            self.attempts[place].append(attempt)
            self._open[member, place].append(attempt)
        elif kind == "S":
            self._on_result(member, place, time, more[0])
        else:
            raise ValueError(f"{member} printed the kind {kind!r}")

    def _on_result(self, member: str, place: Place, time: int, error: str) -> None:
        """Results of one member and record arrive in the order of its attempts."""
        attempt = self._open[member, place].pop(0)
        attempt.confirmed, attempt.error = time, None if error == "-" else error

    def settled(self) -> set[Place]:
        """Return the records whose settle was confirmed."""
        return {
            place for place, attempts in self.attempts.items() if any(each.settled_at is not None for each in attempts)
        }

    def faults(self, keys: Mapping[Place, bytes], late_ns: int) -> list[str]:
        """Return all faults. `late_ns`: how long a delivered record may have been in the buffer of a client."""
        faults = [*self._lost(keys), *self._out_of_order(keys), *self._delivered_after(late_ns)]
        return faults + [f"{place} was delivered and never produced" for place in self.deliveries.keys() - keys.keys()]

    def _lost(self, keys: Mapping[Place, bytes]) -> Iterator[str]:
        for place in keys:
            if not any(each.may_settle() for each in self.attempts.get(place, ())):
                yield f"{place} was never settled: {self.attempts.get(place)}"

    def _out_of_order(self, keys: Mapping[Place, bytes]) -> Iterator[str]:
        chains: dict[tuple[bytes, int], list[Place]] = defaultdict(list)
        for place in sorted(keys):
            chains[keys[place], place[0]].append(place)
        for (key, _), places in chains.items():
            for earlier, later in pairwise(places):
                if later in self.deliveries and not self._is_settled_before(earlier, min(self.deliveries[later])):
                    yield f"key {key!r}: {later} was delivered before {earlier} was settled"

    def _is_settled_before(self, place: Place, time: int) -> bool:
        return any(each.may_settle() and each.sent <= time for each in self.attempts.get(place, ()))

    def _delivered_after(self, late_ns: int) -> Iterator[str]:
        for place in self.settled():
            first = min(at for each in self.attempts[place] if (at := each.settled_at) is not None)
            if late := [time for time in self.deliveries[place] if time > first + late_ns]:
                yield f"{place} was delivered {(late[0] - first) / 1e9:.1f} s after it was settled"
