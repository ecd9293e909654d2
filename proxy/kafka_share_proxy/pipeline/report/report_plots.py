"""Plots of a report, as PNG images (pipeline/README.md rules 40 and 41)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING

from kafka_share_proxy.pipeline.plan.key_range_planner import RangePlan
from kafka_share_proxy.pipeline.report.report_job import HEAT_COLUMNS, Deliveries, Heat
from kafka_share_proxy.views.model.plans import HASH_SPACE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, DPI = 10.0, 110
"""Width in inches, and pixels per inch."""
FIRST, AGAIN, EVEN, PLANNED = "#4c7dbf", "#d2603a", "#b4c3d8", "#3f8f6b"


def step_text(seconds: int) -> str:
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds % size == 0:
            count = seconds // size
            return unit if count == 1 else f"{count:,} {unit}s"
    return "second" if seconds == 1 else f"{seconds} seconds"


def deliveries(data: Deliveries) -> bytes:
    """Plot first and repeated deliveries by time."""
    figure, axes = _figure(2.8)
    times = [_plain(begin) for begin, _, _ in data.steps]
    first = [count - redelivered for _, count, redelivered in data.steps]
    redelivered = [redelivered for _, _, redelivered in data.steps]
    width = timedelta(seconds=data.step_s * 0.9)
    axes.bar(times, first, width, align="edge", color=FIRST, label="first delivery")  # type: ignore[arg-type]
    axes.bar(times, redelivered, width, bottom=first, align="edge", color=AGAIN, label="again")  # type: ignore[arg-type]
    axes.set_ylabel(f"offsets per {step_text(data.step_s)}")
    step = timedelta(seconds=data.step_s)
    _time_axis(axes, times[0] - step, times[-1] + 2 * step)
    axes.yaxis.set_major_formatter(_thousands)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return _png(figure)


def heat(data: Heat) -> bytes:
    """Plot key ranges across, time down."""
    from matplotlib.dates import date2num

    figure, axes = _figure(max(1.8, min(5.0, 1.2 + 0.06 * len(data.cells))))
    begin, step = _plain(data.times[0]), timedelta(seconds=data.step_s)
    end = begin + step * len(data.cells)
    extent = (0.0, 100.0, date2num(end), date2num(begin))  # type: ignore[no-untyped-call]
    image = axes.imshow(data.cells, aspect="auto", extent=extent, cmap="YlOrRd", vmin=0, interpolation="nearest")
    axes.set_xlabel(f"keys by hash: % of the hash space, {HEAT_COLUMNS} even ranges")
    axes.set_ylabel("time (UTC)")
    axes.yaxis_date()
    _date_labels(axes.yaxis)
    bar = figure.colorbar(image, ax=axes, format=_thousands)
    bar.set_label(f"records per {step_text(data.step_s)}")
    return _png(figure)


def plan(data: Heat | None, planned: RangePlan) -> bytes:
    """Plot the ranges next to as many even ranges."""
    figure, axes = _figure(2.8)
    count = len(planned.starts)
    mean = 100 / count
    if data is not None:
        sums = [sum(each) for each in zip(*data.cells, strict=True)]
        whole = sum(sums) or 1.0
        edges = [100 * number / count for number in range(count + 1)]
        _ranges(axes, edges, [100 * load / whole for load in _even(sums, count)], EVEN, f"{count} even ranges")
    edges = [100 * start / HASH_SPACE for start in (*planned.starts, HASH_SPACE)]
    _ranges(axes, edges, [100 * weight for weight in planned.weights], PLANNED, f"{count} ranges of the plan")
    axes.axhline(mean, color="#5b6675", linestyle="--", linewidth=1, label=f"mean, {mean:.1f} %")
    if planned.at_most > planned.heaviest_to_mean:
        label = f"at most, at 95 %: {planned.at_most * mean:.1f} %"
        axes.axhline(planned.at_most * mean, color=PLANNED, linestyle=":", linewidth=1.5, label=label)
    axes.set_xlim(0, 100)
    axes.set_xlabel("keys by hash: % of the hash space")
    axes.set_ylabel("% of the load")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return _png(figure)


def _even(sums: Sequence[float], count: int) -> list[float]:
    """Return the load of even ranges. A column that is cut counts in proportion."""
    loads = [0.0] * count
    for column, load in enumerate(sums):
        low, high = column * count / len(sums), (column + 1) * count / len(sums)
        at = int(low)
        while at < high and at < count:
            loads[at] += load * (min(high, at + 1) - max(low, at)) / (high - low)
            at += 1
    return loads


def _ranges(axes: Axes, edges: Sequence[float], loads: Sequence[float], colour: str, label: str) -> None:
    is_planned = colour == PLANNED
    axes.stairs(loads, edges, fill=not is_planned, color=colour, linewidth=2 if is_planned else 0, label=label)
    if is_planned:
        heights = [max(pair) for pair in pairwise(loads)]
        axes.vlines(edges[1:-1], 0, heights, color=colour, linewidth=1)


def _figure(height: float) -> tuple[Figure, Axes]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _plain(time: datetime) -> datetime:
    """Drop the time zone: labels would be in that of this machine."""
    return time.replace(tzinfo=None)


def _time_axis(axes: Axes, begin: datetime, end: datetime) -> None:
    axes.set_xlim(begin, end)  # type: ignore[arg-type]
    axes.set_xlabel("time (UTC)")
    _date_labels(axes.xaxis)


def _date_labels(axis: object) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=9)  # type: ignore[no-untyped-call]
    axis.set_major_locator(locator)  # type: ignore[attr-defined]
    axis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[attr-defined, no-untyped-call]


def _thousands(value: float, _position: float = 0) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _png(figure: Figure) -> bytes:
    to = BytesIO()
    figure.savefig(to, format="png")
    return to.getvalue()
