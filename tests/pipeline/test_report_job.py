"""What the tables tell, gathered for a person (pipeline/README.md rules 40 and 41)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.pipeline.lake import Lake, NoLake
from proxy.pipeline.report_job import HEAT_COLUMNS, Blocked, HotKey, MemberTotals, gathered

pytest.importorskip("pyspark", reason="the extra [spark] is not installed")


@pytest.mark.slow
def test_a_report_tells_what_the_audit_found(spark: Any, story_lake: Path) -> None:
    lake = Lake(spark, str(story_lake))
    found = gathered(lake, "g")
    assert found.days == ("2026-11-21",)
    assert found.deliveries_by_hour == (("11-21 12", 10, 0),)
    assert found.members == (
        MemberTotals("g", "slow", 1, 0, 0, 3, 8_000, 64),
        MemberTotals("g", "quick", 9, 0, 0, 0, 0, 64),
    )
    assert found.blocked[0] == Blocked("g", "orders-0", "slow", "11-11", 8_000, 8)
    assert found.hot_keys == (HotKey("orders", 123, 0.45), HotKey("orders", 9, 0.05))
    (heat,) = found.heats
    assert heat.times == ("11-21 12:00",)
    assert (heat.cells[0][0], heat.cells[0][-1], sum(heat.cells[0])) == (750, 250, 1_000)
    assert heat.balance == pytest.approx(750 / 1_000 * HEAT_COLUMNS)
    with pytest.raises(NoLake, match="no delivery of group other"):
        gathered(lake, "other")
