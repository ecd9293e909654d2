"""A report as text and as one page (pipeline/README.md rules 40 and 41)."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from proxy.pipeline.planner import make_plan
from proxy.pipeline.report_job import HEAT_COLUMNS, Blocked, Heat, HotKey, MemberTotals, Report
from proxy.pipeline.report_page import SHADES, page, text

CELLS = tuple(tuple(9.0 if column == 5 else float(row) for column in range(HEAT_COLUMNS)) for row in range(3))
REPORT = Report(
    days=("2026-11-21", "2026-11-22"),
    deliveries_by_hour=(("11-21 10", 100, 3), ("11-21 11", 50, 0)),
    members=(MemberTotals("g", "<b>m</b>", 150, 0.02, 0.01, 4, 8_000, 64.0),),
    blocked=(Blocked("g", "orders-0", "slow", "11-11", 8_000, 8),),
    hot_keys=(HotKey("orders", 123, 0.45),),
    heats=(Heat("orders", ("11-21 10:00", "11-21 10:01", "11-21 10:02"), CELLS, 2.5),),
    rejects=2,
)


def test_one_screen_tells_the_worst_first() -> None:
    lines = text(REPORT)
    assert lines[0] == "2026-11-21 to 2026-11-22: 150 offsets delivered, 3 of them again, 2 lines rejected"
    assert "g      <b>m</b>  150        2.0%   1.0%       4        8.0        64" in lines
    assert "orders  123   45.00%" in lines
    (heat,) = [line for line in lines if line.startswith("11-21 10:00")]
    assert heat[13 + 5] == SHADES[-1]
    assert set(heat[13:]) == {" ", SHADES[-1]}


def test_the_page_stands_alone_and_shows_names_as_they_are() -> None:
    made = page(REPORT, [("orders", make_plan({0: 1.0, 30_000: 1.0, 60_000: 2.0}, 4))])
    assert "<b>m</b>" not in made
    assert "&lt;b&gt;m&lt;/b&gt;" in made
    assert not re.search(r"(?:src|href)=|https?://|@import|url\(", made)
    drawings = [ElementTree.fromstring(each) for each in re.findall(r"<svg.*?</svg>", made)]
    assert len(drawings) == 4
    assert len(drawings[1]) == 3 * HEAT_COLUMNS
    assert "the 4 of the plan" in made


def test_nothing_is_said_of_nothing() -> None:
    empty = Report((), (), (), (), (), (), 0)
    assert text(empty)[0] == "no day: 0 offsets delivered, 0 of them again"
    assert "Nothing was." in page(empty)
