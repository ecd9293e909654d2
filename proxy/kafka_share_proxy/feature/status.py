"""Port between the status page and the features: sections of plain tables (app/README.md rules 1 to 5)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeVar

T = TypeVar("T")

GROUPS_MAX = 20
"""Maximum number of groups or views in detail."""
DETAIL_ROWS_MAX = 20
"""Maximum number of rows of a table in the details of one group."""
ROWS_MAX = 200
"""Maximum number of rows of any other table."""
HEAT_ROWS_MAX, HEAT_COLUMNS_MAX = 32, 64
"""Maximum size of a heat map."""


class Link(NamedTuple):
    """Text with a link to another page of the admin listener."""

    text: str
    parts: tuple[str, ...]
    """Parts of its path, not encoded."""


class Seconds(NamedTuple):
    """Duration, or time from now."""

    value: float


class Alarm(NamedTuple):
    """Text that an operator should notice."""

    text: str


class Change(NamedTuple):
    """Link to the confirmation of a change, for clients that may change something (`admin_changes`)."""

    text: str
    parts: tuple[str, ...]
    """Path of the page that makes the change by POST, and describes it by GET (`feature.admin.preview`)."""


Cell = str | int | None | Link | Change | Seconds | Alarm
"""None: unknown or not applicable."""


class StatusTable(NamedTuple):
    """Rows of equal length."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    left_out: int = 0
    """Number of rows that are not shown."""
    changes: Sequence[Change | None] = ()
    """Change that each row offers. Empty: no row offers one."""


class HeatCell(NamedTuple):
    """Cell of a heat map."""

    level: float
    """0 to 1, in proportion to the hottest cell."""
    text: str
    about: str
    """Explanation in words."""


class HeatMap(NamedTuple):
    """Load by row and column."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[HeatCell | None]]]
    """Label and cells. None: no data."""
    left_out: int = 0


class Detail(NamedTuple):
    """Part of a section that is closed at first."""

    title: str
    notes: Sequence[str] = ()
    parts: Sequence[StatusTable | HeatMap] = ()


@dataclass(frozen=True, slots=True)
class StatusSection:
    """All that the page shows of one feature."""

    title: str
    notes: Sequence[str] = ()
    tables: Sequence[StatusTable] = ()
    details: Sequence[Detail] = field(default_factory=tuple)
    details_left_out: int = 0


Status = Callable[[], Generator[None, None, StatusSection]]
"""Function that returns the section in steps, between which clients are served."""


def first(items: Iterable[T], limit: int) -> tuple[list[T], int]:
    """Return the first items, and the number of all others."""
    remaining = iter(items)
    return list(islice(remaining, limit)), sum(1 for _ in remaining)
