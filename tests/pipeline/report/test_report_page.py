"""A report as text and as one page (pipeline/README.md rules 40 and 41)."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("matplotlib", reason="the extra [spark] is not installed")

from kafka_share_proxy.pipeline.plan.key_range_planner import make_plan
from kafka_share_proxy.pipeline.plan.plan_job import PlannedTopic
from kafka_share_proxy.pipeline.report.report_job import (
    HEAT_COLUMNS,
    Blocked,
    Deliveries,
    Heat,
    HotKey,
    MemberTotals,
    Report,
    ViewClient,
)
from kafka_share_proxy.pipeline.report.report_page import SHADES, page, text

CELLS = tuple(tuple(9.0 if column == 5 else float(row) for column in range(HEAT_COLUMNS)) for row in range(3))
TEN = datetime(2026, 11, 21, 10, tzinfo=UTC)
HEAT = Heat("orders", tuple(TEN + timedelta(minutes=at) for at in range(3)), CELLS, 2.5, 60, 12_345)
REPORT = Report(
    days=("2026-11-21", "2026-11-22"),
    deliveries=Deliveries(60, ((TEN, 10_000, 3), (TEN + timedelta(minutes=5), 50, 0))),
    members=(MemberTotals("g", "<b>m</b>", 10_050, 0.02, 0.01, 4, 8_000, 64.0, "app 10.0.0.7"),),
    blocked=(Blocked("g", "orders-0", "slow", "11-11", 8_000, 8),),
    hot_keys=(HotKey("orders", 123, 0.45, "alice", 0.412, 0.487, 5_000), HotKey("orders", 9, 0.05)),
    heats=(HEAT,),
    rejects=2,
    readers=(ViewClient("__view.r8.orders", "app-1", 8, True, 18_250, 1.825),),
)
PLAN = PlannedTopic(
    "orders",
    make_plan({0: 1.0, 30_000: 1.0, 60_000: 2.0}, 4, variances={0: 0.3, 30_000: 0.3, 60_000: 0.6}),
    {"rows": 70_000, "keys": 12_345, "weight": "rows"},
)


def cells_of(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def test_one_screen_shows_the_worst_first() -> None:
    lines = text(REPORT)
    assert lines[0] == "2026-11-21 to 2026-11-22: 10,050 offsets delivered, 3 of them again, 2 lines rejected"
    (member,) = [line for line in lines if "<b>m</b>" in line]
    assert cells_of(member) == ["g", "<b>m</b>", "app 10.0.0.7", "10,050", "2.0%", "1.0%", "4", "8.0", "64"]
    (head,) = [line for line in lines if line.startswith("Group") and "Delivered" in line]
    assert cells_of(head)[-1] == "Median held (ms)"
    (hot,) = [line for line in lines if "alice" in line]
    assert cells_of(hot) == ["orders", "alice", "123", "45.00%", "41.20% to 48.70%", "5,000"]
    (heat,) = [line for line in lines if line.startswith("11-21 10:00")]
    assert heat[13 + 5] == SHADES[-1]
    assert set(heat[13:]) == {" ", SHADES[-1]}
    assert any("12,345 keys sampled" in line and "minute steps" in line for line in lines)


def test_clients_that_read_whole_base_partitions_are_named_with_what_helps() -> None:
    for shown in ("\n".join(text(REPORT)), page(REPORT)):
        assert "1.82" in shown
        assert re.search("the assignor range.*cooperative-sticky, roundrobin", shown, re.DOTALL)
    even = REPORT._replace(readers=(REPORT.readers[0]._replace(whole_bases=False),))
    assert "assignor range" not in page(even)


def test_a_narrow_terminal_shows_every_cell() -> None:
    lines = text(REPORT, 80)
    assert max(map(len, lines)) <= 80
    assert "12,345" in "".join(lines)


def test_the_page_needs_no_other_file_and_shows_names_unchanged() -> None:
    html = page(REPORT, [PLAN])
    assert "<b>m</b>" not in html
    assert "&lt;b&gt;m&lt;/b&gt;" in html
    assert not re.search(r"href=|https?://|@import|url\(", html)
    sources = re.findall(r'src="(.*?)"', html)
    assert len(sources) == 3
    for source in sources:
        assert base64.b64decode(source.removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")
    assert "A plan of 4 ranges for orders, from 70,000 records (12,345 keys sampled). Heaviest range: at most" in html
    assert "Too few samples for a close promise" in html
    assert "(--from TOPIC)" in html


def test_no_control_character_of_a_name_reaches_terminal_or_page() -> None:
    bad = "a\x1b]0;title\x07\u202eb\n\r\x00"
    (member,), (blocked,), (hot, _), (reader,) = REPORT.members, REPORT.blocked, REPORT.hot_keys, REPORT.readers
    hostile = REPORT._replace(
        members=(member._replace(group=bad, member=bad, client=bad),),
        blocked=(blocked._replace(group=bad, partition=bad, member=bad),),
        hot_keys=(hot._replace(topic=bad, key=bad),),
        heats=(HEAT._replace(topic=bad),),
        readers=(reader._replace(view=bad, client=bad),),
    )
    for shown in ("".join(text(hostile)), page(hostile, [PLAN.__class__(bad, PLAN.plan, PLAN.made_from)])):
        assert "a?]0;title??b" in shown
        assert all(letter.isprintable() or letter == "\n" for letter in shown)


def test_empty_tables_are_not_reported() -> None:
    empty = Report((), Deliveries(1, ()), (), (), (), (), 0)
    assert text(empty)[0] == "no day: 0 offsets delivered, 0 of them again"
    assert "Nothing was." in page(empty)
