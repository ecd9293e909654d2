"""Parts of sections of the status page."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.feature.status import Cell, Detail, HeatMap, StatusTable


def lines(table: StatusTable) -> list[dict[str, Cell]]:
    """Return the rows by column."""
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def part(detail: Detail, title: str) -> StatusTable:
    """Return a table of a detail by the beginning of its title."""
    (matching,) = [each for each in detail.parts if isinstance(each, StatusTable) and each.title.startswith(title)]
    return matching


def heat(details: Sequence[Detail]) -> HeatMap:
    """Return the only heat map of the first detail."""
    (matching,) = [each for each in details[0].parts if isinstance(each, HeatMap)]
    return matching
