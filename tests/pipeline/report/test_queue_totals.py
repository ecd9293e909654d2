"""Totals of queues from the events of proxies (pipeline/README.md rule 41)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.pipeline.report.queue_totals import QueueTotals, gather
from kafka_share_proxy.pipeline.report.report_job import Report
from kafka_share_proxy.pipeline.report.report_job import gather as report_of
from kafka_share_proxy.pipeline.tables.lake import Lake

from tests.support.audit_story import NOON

pytest.importorskip("pyspark", reason="the extra [spark] is not installed")


@pytest.mark.slow
def test_a_report_has_delays_dead_letters_hottest_key_and_moves_of_each_queue(
    spark: Any, story_lake: Path, whole_report: Report
) -> None:
    lake = Lake(spark, str(story_lake))
    jobs = QueueTotals("jobs", 2, 4_000, 3, 1, "00000000000000aa", 9, NOON + 9, NOON + 12, 120, 60_000)
    assert whole_report.queues == (jobs,)
    assert report_of(lake, "jobs").queues == (jobs,)


@pytest.mark.slow
def test_tables_of_an_earlier_version_have_no_queues(spark: Any, story_lake: Path) -> None:
    events = Lake(spark, str(story_lake)).read("audit_events")
    assert gather(events.drop("key_hash")) == ()
