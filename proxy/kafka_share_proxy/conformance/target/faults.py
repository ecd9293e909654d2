"""Faults of the cluster, selected by request: pure matching, reproducible from the seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kafka_share_proxy.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafka_share_proxy.conformance.target.error_responses import Level

FAULTS_MAX = 1_000
"""Maximum number of faults at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Requests, selected by the first fields, and the misbehaviour of the cluster for them."""

    api: int | None = None
    """API key. None: every API."""
    node: int | None = None
    client_id: str = "*"
    """Pattern with `*` and `?`."""
    nth: int = 1
    """First request that is affected, counted from 1 over the selected ones."""
    count: int | None = 1
    """Number of affected requests. None: all from the first on."""
    probability: float = 1.0
    """Share of these that is affected, drawn from the seed."""

    error: ErrorCode | None = None
    at: Level = "auto"
    """Fields that receive the error code."""
    execute: bool = False
    """True: execute the request before its response is replaced by the error, as if the outcome were lost."""
    delay_ms: int = 0
    """Milliseconds by the cluster's clock before the response is sent."""
    throttle_ms: int | None = None
    """Value of ThrottleTimeMs in the response."""
    correlation_id_shift: int = 0
    """Number added to the correlation id of the response."""
    cut_after: int | None = None
    """Number of bytes of the response that are sent before the connection is closed."""
    half_frame: bool = False
    """Send the first half of the response, then close the connection."""
    lose: bool = False
    """Execute the request and send no response."""
    duplicate: bool = False
    """Send the response twice."""

    def selects(self, key: int, node: int, client_id: str) -> bool:
        """Return True if a request is among those that are counted."""
        return self.api in (None, key) and self.node in (None, node) and fnmatchcase(client_id, self.client_id or "*")

    @property
    def hides_outcome(self) -> bool:
        """True if the client cannot read the response."""
        cuts = self.cut_after is not None or self.half_frame
        return cuts or self.lose or bool(self.correlation_id_shift)


@dataclass(slots=True)
class PlacedFault:
    """A fault in the plan of a cluster."""

    number: int
    """Unique in the plan, from 1."""
    fault: Fault
    selected: int = 0
    """Number of requests that were selected."""
    applied: int = 0
    """Number of requests that were affected."""

    @property
    def is_spent(self) -> bool:
        last = None if self.fault.count is None else self.fault.nth + self.fault.count - 1
        return last is not None and self.selected >= last


@dataclass(slots=True)
class FaultPlan:
    """All faults of a cluster."""

    seed: int = 0
    _placed: dict[int, PlacedFault] = field(default_factory=dict)
    _last: int = 0

    def add(self, fault: Fault) -> int:
        """Add a fault and return its number. Raises ValueError beyond FAULTS_MAX, or if it has no effect."""
        if len(self._placed) >= FAULTS_MAX:
            raise ValueError(f"there are {FAULTS_MAX} faults already; delete some")
        if not _has_effect(fault):
            raise ValueError("the fault has no effect: give error, delay_ms, cut_after or another effect")
        self._last += 1
        self._placed[self._last] = PlacedFault(self._last, fault)
        return self._last

    def remove(self, number: int) -> None:
        """Remove a fault. Raises KeyError if there is none of this number."""
        del self._placed[number]

    def clear(self) -> None:
        """Remove all faults."""
        self._placed.clear()

    def __iter__(self) -> Iterator[PlacedFault]:
        return iter(tuple(self._placed.values()))

    def match(self, key: int, node: int, client_id: str) -> list[Fault]:
        """Count a request, and return the faults that affect it, in the order of their addition."""
        affecting = []
        for placed in self._placed.values():
            if placed.fault.selects(key, node, client_id):
                is_spent = placed.is_spent
                placed.selected += 1
                if not is_spent and placed.selected >= placed.fault.nth and self._is_drawn(placed):
                    placed.applied += 1
                    affecting.append(placed.fault)
        return affecting

    def _is_drawn(self, placed: PlacedFault) -> bool:
        """Return True with the probability of the fault. The draw depends on seed, fault and request only."""
        if placed.fault.probability >= 1:
            return True
        text = f"{self.seed}/{placed.number}/{placed.selected}".encode()
        drawn = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") / 2**64
        return drawn < placed.fault.probability


def _has_effect(fault: Fault) -> bool:
    values = (fault.error, fault.throttle_ms, fault.cut_after)
    switches = (fault.delay_ms, fault.correlation_id_shift, fault.half_frame, fault.lose, fault.duplicate)
    return any(value is not None for value in values) or any(switches)
