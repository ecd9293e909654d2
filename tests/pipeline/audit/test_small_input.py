"""Small input is planned for a quick start, with the same tables (pipeline/README.md rule 34)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.pipeline.audit import small_input
from kafka_share_proxy.pipeline.audit.small_input import JAVA_OPTIONS, PLANS, SMALL_BYTES, is_small
from kafka_share_proxy.pipeline.session import settings_for

from tests.pipeline.conftest import Story


def test_input_is_small_with_the_table_that_it_goes_to(tmp_path: Path) -> None:
    source, table = tmp_path / "in", tmp_path / "lake" / "audit_events"
    source.mkdir()
    (source / "audit.jsonl").write_bytes(b"x" * SMALL_BYTES)
    (source / ".hidden").write_bytes(b"x")
    assert is_small(source, table)
    (source / "audit.jsonl.1").write_bytes(b"x")
    assert not is_small(source, table)
    (source / "audit.jsonl").unlink()
    (table / "day=2026-11-21").mkdir(parents=True)
    (table / "day=2026-11-21" / "part.parquet").write_bytes(b"x" * (SMALL_BYTES + 1))
    assert not is_small(source, table)


def test_a_session_for_small_input_starts_quickly_unless_the_user_says_otherwise() -> None:
    name = "spark.driver.extraJavaOptions"
    assert settings_for("local[2]", streaming=False, quick=True)[name] == JAVA_OPTIONS
    assert settings_for("local[2]", streaming=False)[name] != JAVA_OPTIONS
    assert name not in settings_for(None, streaming=False, quick=True)


@pytest.mark.slow
def test_plans_for_small_input_end_with_their_block_and_leave_the_users_settings(spark: Any) -> None:
    ours = {name: spark.sparkContext.getConf().get(name) for name in PLANS if "adaptive" not in name}
    before = {name: spark.conf.get(name, None) for name in PLANS}
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    try:
        with small_input.plans_for(spark, ours, small=True):
            assert spark.conf.get("spark.sql.shuffle.partitions") == "1"
        assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
        users = dict.fromkeys(PLANS, "another")
        with small_input.plans_for(spark, users, small=True):
            assert spark.conf.get("spark.sql.shuffle.partitions") == "7", "the session was opened with the user's"
        with small_input.plans_for(spark, ours, small=False):
            assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before["spark.sql.shuffle.partitions"])
    assert {name: spark.conf.get(name, None) for name in PLANS} == before


@pytest.mark.slow
def test_small_input_makes_the_same_tables_without_a_task_in_python(spark: Any, story: Story, tmp_path: Path) -> None:
    from kafka_share_proxy.pipeline.audit import audit_job
    from kafka_share_proxy.pipeline.tables.lake import Lake

    lines = audit_job.event_lines_in_folder(spark, str(story.events))
    assert lines.is_small
    out = tmp_path / "lake"
    result = audit_job.run(spark, lines._replace(is_small=False), str(out), None, lambda _line: None)
    assert result == story.result
    for name in TABLES:
        large, small = (sorted(map(str, Lake(spark, str(at)).read(name).collect())) for at in (out, story.lake))
        assert small, name
        assert large == small, name


TABLES = (
    "audit_events", "deliveries", "group_member_hour", "renew_abuse", "key_range_load", "hot_keys", "audit_rejects",
)  # fmt: skip
