"""`share.auto.offset.reset`: the start offset of a share partition without stored state (KIP-932, KIP-1106)."""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

EARLIEST_TIMESTAMP = -2
"""ListOffsets timestamp of the log start offset."""
LATEST_TIMESTAMP = -1
"""ListOffsets timestamp of the end of the log."""


class ResetKind(enum.Enum):
    """Kinds of start offsets for share partitions without stored state."""

    LATEST = "latest"
    EARLIEST = "earliest"
    BY_DURATION = "by_duration"


_TIMESTAMPS = {ResetKind.LATEST: LATEST_TIMESTAMP, ResetKind.EARLIEST: EARLIEST_TIMESTAMP}

_DURATION = re.compile(
    r"P(?:(?P<days>[-+]?\d+)D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?(?:(?P<seconds>[-+]?\d+)(?:[.,](?P<part>\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


class OffsetReset(NamedTuple):
    """`share.auto.offset.reset`: latest, earliest, or records not older than a duration."""

    kind: ResetKind
    duration_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> OffsetReset:
        """Parse `latest`, `earliest` or `by_duration:<PnDTnHnMn.nS>`. Raises ValueError otherwise."""
        if text == ResetKind.LATEST.value:
            return cls(ResetKind.LATEST)
        if text == ResetKind.EARLIEST.value:
            return cls(ResetKind.EARLIEST)
        name, colon, duration = text.partition(":")
        if name != ResetKind.BY_DURATION.value or not colon:
            raise ValueError(f"unknown offset reset {text!r}")
        return cls(ResetKind.BY_DURATION, parse_duration_ms(duration))

    def timestamp_ms(self, wall_ms: int) -> int:
        """Return the timestamp for ListOffsets. A duration that reaches back before 1970 selects all records."""
        return _TIMESTAMPS.get(self.kind, max(0, wall_ms - self.duration_ms))


def parse_duration_ms(text: str) -> int:
    """Parse an ISO-8601 duration of days to seconds as java.time.Duration does. Return milliseconds, not negative.
    Raises ValueError.
    """
    sign = -1 if text.startswith("-") else 1
    match = _DURATION.fullmatch(text[1:] if text[:1] in ("-", "+") else text)
    if match is None or match["time"] in ("T", "t") or (match["days"] is None and match["time"] is None):
        raise ValueError(f"{text!r} is no ISO-8601 duration (PnDTnHnMn.nS)")
    seconds = match["seconds"] or "0"
    nanos = int((match["part"] or "").ljust(9, "0")) * (-1 if seconds.startswith("-") else 1)
    whole = 86_400 * int(match["days"] or 0) + 3600 * int(match["hours"] or 0) + 60 * int(match["minutes"] or 0)
    total_nanos = sign * ((whole + int(seconds)) * 10**9 + nanos)
    if total_nanos < 0:
        raise ValueError(f"{text!r} is negative")
    if total_nanos >= 2**63 * 10**9:
        raise ValueError(f"{text!r} is too long")
    return total_nanos // 10**6
