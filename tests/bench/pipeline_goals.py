"""Results of the pipeline's benches next to their goals, and the processes that used the CPU time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    goal: str
    """G1 to G11."""
    description: str
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    """Neither: it is shown for comparison."""
    beside: str = ""
    """Additional measurements."""

    @property
    def is_met(self) -> bool | None:
        """True if the goal is met. None without a goal."""
        if self.at_least is None and self.at_most is None:
            return None
        is_enough = self.at_least is None or self.value >= self.at_least
        return is_enough and (self.at_most is None or self.value <= self.at_most)

    @property
    def bound(self) -> str:
        """The goal as text."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:.3g}"


def show(figures: Iterable[Figure]) -> bool:
    """Print the table; whether every goal in it is met."""
    table = Table(title="medians of one run; CPU is that of the JVM and its Python workers unless said otherwise")
    for column in ("", "what", "measured", "goal", "", "beside"):
        table.add_column(column, justify="right" if column in ("measured", "goal") else "left")
    is_goal_met = True
    for figure in figures:
        verdict = {True: "met", False: "missed", None: ""}[figure.is_met]
        is_goal_met &= figure.is_met is not False
        table.add_row(
            figure.goal, figure.description, f"{figure.value:.3g} {figure.unit}", figure.bound, verdict, figure.beside
        )
    Console(width=150).print(table)
    return is_goal_met


def cpu_of_tree(root: int) -> float:
    """CPU seconds of a process and of all it started, those that ended included."""
    parents, used = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = sum(map(int, fields[11:15])) / TICKS
    pids, total = {root}, 0.0
    while pids:
        total += sum(used.get(pid, 0.0) for pid in pids)
        pids = {pid for pid, parent in parents.items() if parent in pids}
    return total
