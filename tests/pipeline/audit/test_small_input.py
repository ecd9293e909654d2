"""Small input is planned for a quick start, with the same tables (pipeline/README.md rule 34)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.pipeline.audit import small_input
from kafka_share_proxy.pipeline.audit.small_input import JAVA_OPTIONS, PLANS, SMALL_BYTES, is_small
from kafka_share_proxy.pipeline.session import settings_for

from tests.support import audit_story


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
def test_small_input_makes_the_same_tables_without_a_task_in_python(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_share_proxy.pipeline.audit import audit_job, event_staging
    from kafka_share_proxy.pipeline.tables.lake import Lake

    events = audit_story.blocked_events() + audit_story.load_events()
    audit_story.write(tmp_path / "in", "audit.jsonl", [*events, "no event"])
    lines = audit_job.event_lines_in_folder(spark, str(tmp_path / "in"))
    made = {}
    for is_small_input in (False, True):
        if is_small_input:
            monkeypatch.setattr(type(spark.sparkContext), "parallelize", None)
        out = str(tmp_path / f"lake-{is_small_input}")
        given = lines._replace(is_small=is_small_input)
        assert isinstance(given, event_staging.Lines)
        reported = audit_job.run(spark, given, out, None, lambda _line: None)
        tables = (*TABLES, "audit_rejects")
        made[is_small_input] = (reported, [sorted(map(str, Lake(spark, out).read(name).collect())) for name in tables])
    assert made[False] == made[True]
    assert all(rows for rows in made[True][1]), "no table is empty"
    assert lines.is_small


TABLES = (*("audit_events", "deliveries", "group_member_hour", "renew_abuse", "key_range_load", "hot_keys"),)
