"""Views on the status page: their readers, with a heat map of the load by base partition and slot."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from kafka_share_proxy.feature.status import (
    GROUPS_MAX,
    HEAT_COLUMNS_MAX,
    HEAT_ROWS_MAX,
    ROWS_MAX,
    Cell,
    Detail,
    HeatCell,
    HeatMap,
    StatusSection,
    StatusTable,
    first,
)
from kafka_share_proxy.views.lag import ViewLag
from kafka_share_proxy.views.model.catalog import View
from kafka_share_proxy.views.model.readers import SlotReader
from kafka_share_proxy.views.services import ViewServices

TITLE = "Views"
COLUMNS = ("View", "Base partitions", "Slots", "Partitions with a reader", "Lag of the slowest slots", "Records sent")

Readers = Mapping[tuple[int, int], SlotReader]
"""Readers of one view by base partition and slot."""


def section(views: ViewServices, lag: ViewLag) -> Generator[None, None, StatusSection]:
    """Return the views that are ready, those with the most lag first."""
    survey = yield from lag.survey()
    by_view: dict[str, dict[tuple[int, int], SlotReader]] = {}
    for view, base_partition, slot, reader in lag.readers():
        by_view.setdefault(view.name.topic, {})[base_partition, slot] = reader
    yield
    summed = survey.by_view()
    ready = sorted(views.catalog, key=lambda view: (-summed.get(view.name.topic, 0), view.name.topic))
    rows, left_out = first(
        (_row(view, by_view.get(view.name.topic, {}), summed.get(view.name.topic)) for view in ready), ROWS_MAX
    )
    read = [view for view in ready if view.name.topic in by_view]
    details = []
    for view in read[:GROUPS_MAX]:
        details.append(Detail(view.name.topic, parts=(_heat_map(view, by_view[view.name.topic], lag),)))
        yield
    return StatusSection(
        TITLE,
        notes=[f"Lag is incomplete or old: {lag.ends.trouble}"] if lag.ends.trouble else (),
        tables=(StatusTable("Views that are ready", COLUMNS, rows, left_out),),
        details=details,
        details_left_out=max(len(read) - GROUPS_MAX, 0),
    )


def _row(view: View, readers: Readers, lag: int | None) -> tuple[Cell, ...]:
    sent = sum(reader.records for reader in readers.values())
    return view.name.topic, view.base_partitions, view.slots, len(readers), lag, sent


def _heat_map(view: View, readers: Readers, lag: ViewLag) -> HeatMap:
    """Show the records sent, in proportion to the slot with the most, and the lag in words."""
    top = max((reader.records for reader in readers.values()), default=0) or 1
    slots = range(min(view.slots, HEAT_COLUMNS_MAX))
    lines = [
        (str(partition), [_heat(view, partition, readers.get((partition, slot)), slot, top, lag) for slot in slots])
        for partition in range(min(view.base_partitions, HEAT_ROWS_MAX))
    ]
    shown = len(slots) * len(lines)
    title = "Records sent, by base partition and slot"
    return HeatMap(title, [str(slot) for slot in slots], lines, view.partitions - shown)


def _heat(view: View, partition: int, reader: SlotReader | None, slot: int, top: int, lag: ViewLag) -> HeatCell | None:
    if reader is None:
        return None
    slot_lag = lag.of(view, partition, reader)
    lag_text = "an unknown lag" if slot_lag is None else f"a lag of {slot_lag}"
    about = f"Partition {partition}, slot {slot}: {reader.records} records sent, {reader.bytes} bytes, {lag_text}"
    return HeatCell(reader.records / top, str(reader.records), about)
