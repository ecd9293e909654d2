"""Audit events become tables that hold exactly what happened (pipeline/README.md rules 26 to 34)."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.pipeline.audit import audit_job, event_staging
from kafka_share_proxy.pipeline.source.options import BadOption
from kafka_share_proxy.pipeline.tables.lake import Lake, NoLake

from tests.support.audit_story import NOON, Proxy, write
from tests.support.raw import Raw

pytest.importorskip("pyspark", reason="the extra [spark] is not installed")

pytestmark = pytest.mark.slow
DAY_MS = 86_400_000
OUTCOMES = ["accept", "accept", "accept", "release", "reject", "lock_timeout", "session_close"]


def run(spark: Any, folder: Path, out: Path, day: str | None = None) -> audit_job.AuditResult:
    lines = audit_job.event_lines_in_folder(spark, str(folder))
    return audit_job.run(spark, lines, str(out), day, lambda _line: None)


def rows(spark: Any, out: Path, table: str) -> list[Any]:
    return list(Lake(spark, str(out)).read(table).collect())


class TwoRuns(NamedTuple):
    """Results of two runs, and the numbers that were counted when the events were made."""

    folder: Path
    truth: dict[tuple[str, str], Counter[str]]
    lost: str
    """An event that is in no file."""
    early: audit_job.AuditResult
    result: audit_job.AuditResult


@pytest.fixture(scope="module")
def two_runs(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> TwoRuns:
    """Two proxies and two days: copies, a line cut short, files that are gone, bad lines, one event lost.

    The table of rejects is that of an earlier release, with a line that is rejected again.
    """
    folder = tmp_path_factory.mktemp("two_runs")
    old = spark.createDataFrame(
        [("{not json", "no JSON object of an event", "b")], "line string, reason string, ingest_batch string"
    )
    Lake(spark, str(folder / "lake")).overwrite(old, "audit_rejects", ["ingest_batch"])
    draw, proxies = random.Random(3), [Proxy("one"), Proxy("two")]
    truth: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for number in range(600):
        member, outcome, attempt = f"m{number % 5}", draw.choice(OUTCOMES), draw.choice([1, 1, 1, 2, 3])
        first, width, renews = number * 10, draw.randint(1, 10), draw.choice([0, 0, 2])
        ts = NOON + (number % 2) * DAY_MS + number * 1_000
        held = draw.randint(1, 5_000)
        fields = {"attempt": attempt, "outcome": outcome, "renews": renews, "t_acquire_ms": ts - held, "member": member}
        proxies[number % 2].settle(ts, first, first + width - 1, **fields)
        counted = truth[f"2026-11-2{1 + number % 2}", member]
        counted["deliveries"] += width
        counted[outcome] += width
        counted["again"] += width * (attempt > 1)
        counted["renews"] += renews
        counted[f"held {held.bit_length() - 1}"] += width
    lost = proxies[1].lines.pop(100)
    one, two = (proxy.lines for proxy in proxies)
    write(folder / "in", "audit.jsonl", [*one[:200], "{not json", '{"v": 2}', one[200][:40]], end="")
    early = run(spark, folder / "in", folder / "lake", "2026-11-21")
    write(folder / "in", "audit.jsonl", [*one[150:], *two])  # what stood before was rotated away
    return TwoRuns(folder, truth, lost, early, run(spark, folder / "in", folder / "lake"))


def test_tables_equal_what_was_counted_beside_them(spark: Any, two_runs: TwoRuns) -> None:
    lake, truth, result = two_runs.folder / "lake", two_runs.truth, two_runs.result
    assert two_runs.early == (200, 3, ("2026-11-21",), ())
    spoiled = json.loads(two_runs.lost)
    day, member = ("2026-11-22", spoiled["member"])
    width = spoiled["last"] - spoiled["first"] + 1
    held = (spoiled["ts_ms"] - spoiled["t_acquire_ms"]).bit_length() - 1
    for name, value in (("deliveries", width), (spoiled["outcome"], width), ("again", width * (spoiled["attempt"] > 1)),
                        ("renews", spoiled["renews"]), (f"held {held}", width)):  # fmt: skip
        truth[day, member][name] -= value
    assert result.events == 599
    assert result.rejects == 0
    assert result.days == ("2026-11-21", "2026-11-22")
    assert result.lost == (("two", 1, 300),)
    counts_by_day: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows(spark, lake, "group_member_hour"):
        counted = counts_by_day[row["day"], row["member"]]
        counted["deliveries"] += row["deliveries"]
        counted["accept"] += row["accepts"]
        counted["lock_timeout"] += row["timeouts"]
        counted["again"] += row["redeliveries"]
        counted["renews"] += row["renews"]
        counted.update({f"held {power}": n for power, n in row["hold_histogram"].items()})
        assert row["redelivery_rate"] == pytest.approx(row["redeliveries"] / row["deliveries"])
        assert row["timeout_rate"] == pytest.approx(row["timeouts"] / row["deliveries"])
    unseen = {"release", "reject", "session_close"}
    assert counts_by_day == {
        place: Counter({name: n for name, n in counted.items() if name not in unseen})
        for place, counted in truth.items()
    }
    events = rows(spark, lake, "audit_events")
    assert len({(row["proxy_id"], row["seq"]) for row in events}) == len(events) == 599
    assert len({row["ingest_batch"] for row in events}) == 2
    assert not (lake / "_staging").exists()
    deliveries = rows(spark, lake, "deliveries")
    assert sum(row["n"] for row in deliveries) == sum(counted["deliveries"] for counted in truth.values())
    assert {row["reason"] for row in rows(spark, lake, "audit_rejects")} == {
        "no JSON object of an event", "v, proxy_id or seq is missing",
    }  # fmt: skip


def test_a_reject_is_in_its_table_once_however_often_its_file_is_read(spark: Any, tmp_path: Path) -> None:
    """A live file grows, is rotated, and its last line is not whole yet."""
    proxy, folder, lake = Proxy("one"), tmp_path / "in", tmp_path / "lake"
    for number in range(4):
        proxy.settle(NOON + number, number, number)
    event, second, third, last = proxy.lines
    bad = ["{bad", "{bad", f"{event} {second}", f"{event} and more", '{"v": 2}']
    write(folder, "audit.jsonl", [*bad, third, last[:50]], end="")
    with (folder / "audit.jsonl").open("ab") as file:
        file.write(b"\nm\xff\xfe\n" + last[:60].encode())
    assert run(spark, folder, lake).rejects == 8
    first = {row["line"]: row["reason"] for row in rows(spark, lake, "audit_rejects")}
    assert first == {
        "{bad": "no JSON object of an event",
        f"{event} {second}": "more than one event on the line",
        f"{event} and more": "more than one event on the line",
        '{"v": 2}': "v, proxy_id or seq is missing",
        last[:50]: "no JSON object of an event",
        "m\ufffd\ufffd": "no JSON object of an event",
    }
    with (folder / "audit.jsonl").open("ab") as file:
        file.write(last[60:].encode() + b"\n{worse\n")
    (folder / "audit.jsonl").rename(folder / "audit.jsonl.1")
    write(folder, "audit.jsonl", ["{worse still"])
    result = run(spark, folder, lake)
    assert (result.events, result.rejects) == (2, 9)
    after = [row["line"] for row in rows(spark, lake, "audit_rejects")]
    assert sorted(after) == sorted([*first, "{worse", "{worse still"])
    assert len(rows(spark, lake, "audit_rejects")) == len(after)


def test_rejects_of_earlier_releases_are_known(spark: Any, two_runs: TwoRuns) -> None:
    """They are not added once more; new ones are."""
    lines = sorted(row["line"] for row in rows(spark, two_runs.folder / "lake", "audit_rejects"))
    assert lines == ['{"v": 2}', "{not json"]


def test_a_run_that_died_while_it_added_events_is_run_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some files were in the table already."""
    proxy, adopt = Proxy("one"), Lake.adopt
    for number in range(10):
        proxy.settle(NOON + number, number, number)
    proxy.event("plan_loaded", NOON + 10, plan_id="p", offset=1)
    write(tmp_path / "in", "audit.jsonl", proxy.lines)

    def die(lake: Lake, name: str, table: str, days: Any) -> None:
        if name == "judged":
            raise KeyboardInterrupt
        adopt(lake, name, table, days)

    monkeypatch.setattr(Lake, "adopt", die)
    with pytest.raises(KeyboardInterrupt):
        run(spark, tmp_path / "in", tmp_path / "lake")
    assert len(rows(spark, tmp_path / "lake", "audit_events")) == 10
    monkeypatch.setattr(Lake, "adopt", adopt)
    assert run(spark, tmp_path / "in", tmp_path / "lake") == (11, 0, ("2026-11-21",), ())
    assert sorted(row["seq"] for row in rows(spark, tmp_path / "lake", "audit_events")) == list(range(1, 12))


def test_blocking_members_load_of_key_ranges_and_hot_keys_are_in_tables(spark: Any, story_lake: Path) -> None:
    renew_abuse = {row["member"]: row for row in rows(spark, story_lake, "renew_abuse")}
    assert renew_abuse.keys() == {"slow", "stuck"}
    assert (
        renew_abuse["slow"]["blocked_ms"],
        renew_abuse["slow"]["later_settled"],
        renew_abuse["slow"]["is_held"],
    ) == (8_000, 8, False)
    assert (renew_abuse["stuck"]["blocked_ms"], renew_abuse["stuck"]["is_held"]) == (2_400, True)
    hours = {row["member"]: row["blocked_ms"] for row in rows(spark, story_lake, "group_member_hour")}
    assert hours == {"quick": 0, "slow": 8_000}
    load = {(row["minute"].minute, row["bucket"]): row for row in rows(spark, story_lake, "key_range_load")}
    assert {place: (row["rows"], row["bytes"], row["hold_ms"]) for place, row in load.items()} == {
        (0, 7): (750, 10_000, 6_750), (0, 4095): (250, 40_000, 2_250), (1, -1): (5, 50, 0),
    }  # fmt: skip
    keys = {row["hash"]: (row["share"], row["estimate"]) for row in rows(spark, story_lake, "hot_keys")}
    assert keys == {123: (0.45, 450), 9: (0.05, 50)}


@pytest.mark.broker
def test_events_are_read_from_a_topic(
    spark: Any,
    views_front: Front,
    raw: Raw,
    fresh: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tasks read them themselves, or Spark does if no path leads to the lake."""
    topic, proxy = raw.create_topic(fresh("audit"), 2), Proxy("one")
    for number in range(20):
        proxy.settle(NOON + number, number, number)
    producer = Producer({"bootstrap.servers": views_front.bootstrap})
    for value in (*(line.encode() for line in proxy.lines), b"\xff\n{}", None):
        producer.produce(topic.name, value)
    assert producer.flush(60) == 0
    options = {"bootstrap": views_front.bootstrap, "topic": topic.name}
    lines = audit_job.event_lines_in_topic(spark, options)
    assert lines.batch == audit_job.event_lines_in_topic(spark, options).batch
    for kind in (event_staging.DIRECT, event_staging.PARSED):
        staged = event_staging.stage(spark, Lake(spark, str(tmp_path)), lines)
        firsts = [row["first"] for row in staged[kind].where("day = '2026-11-21'").collect()]
        assert sorted(firsts) == list(range(20))
        assert [row["line"] for row in staged[event_staging.JUDGED].collect()] == ["\ufffd\n{}"]
        monkeypatch.setattr(Lake, "local_staging", lambda *_: None)


def test_the_report_counts_events_rejects_and_lost_events() -> None:
    result = audit_job.AuditResult(10, 1, ("2026-11-22",), (audit_job.LostEvents("one", 2, 9),))
    assert audit_job.report_lines(result) == [
        "10 events of 2026-11-22; 1 lines rejected", "proxy one: 2 of 9 events are missing",
    ]  # fmt: skip


def test_a_missing_event_file_and_a_missing_table_are_errors_with_advice(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="no file is in it"):
        audit_job.event_lines_in_folder(spark, str(tmp_path))
    with pytest.raises(NoLake, match="run kafka-share-proxy pipeline audit --out"):
        Lake(spark, str(tmp_path)).read("deliveries")
