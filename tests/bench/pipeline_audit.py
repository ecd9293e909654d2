"""G9: how quickly the audit job makes tables of events, and whether these count what happened."""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kafka_share_proxy.audit.event_log import event_log
from kafka_share_proxy.audit.events import PROXY, Place
from kafka_share_proxy.pipeline.audit import audit_job
from kafka_share_proxy.pipeline.tables.lake import Lake

from tests.bench.pipeline_goals import Figure, cpu_of_tree

TIMES = 16
"""Factor between the smaller and the larger input."""
OUTCOMES = ("accept", "accept", "accept", "accept", "release", "reject", "lock_timeout")
BEGUN_MS = 1_795_262_400_000
SLOTS = 2
IN_ONE_GO = 10_000
COUNTED = ("deliveries", "redeliveries", "renews", "timeouts", "accepts")


class Run(NamedTuple):
    """One run of the job."""

    wall: float
    cpu: float
    counts_are_true: bool


def figures(spark: Any, folder: Path, events: int, rounds: int) -> Iterator[Figure]:
    """`events`: of the larger input."""
    jvm = spark.sparkContext._gateway.proc.pid
    small, large = folder / "small", folder / "large"
    truths = {small: write(small, events // TIMES), large: write(large, events)}
    runs: dict[Path, list[Run]] = {small: [], large: []}
    for number in range(rounds + 1):
        for source in runs:
            if number or source is small:  # the first warms up
                done = run(spark, source, folder / "lake", truths[source], jvm)
                runs[source] += [done] * bool(number)
    wall = {source: statistics.median(each.wall for each in source_runs) for source, source_runs in runs.items()}
    cpu = {source: statistics.median(each.cpu for each in source_runs) for source, source_runs in runs.items()}
    rate, with_cpu = events / wall[large] / 1e6, events * SLOTS / cpu[large] / 1e6
    beside = f"{with_cpu:.2f} M by CPU time; {wall[large]:.1f} s, {cpu[large]:.1f} CPU s"
    yield Figure("G9", f"audit job, {events / 1e6:g} M events", rate, "M events/s", at_least=0.25, beside=beside)
    beside = f"{cpu[large] / cpu[small]:.1f} x the CPU"
    yield Figure("G9", f"{TIMES} x events", wall[large] / wall[small], "x time", at_most=5.0, beside=beside)
    wrong = sum(not each.counts_are_true for source_runs in runs.values() for each in source_runs)
    yield Figure("G9", "runs whose five counts are not the truth", wrong, at_most=0.0, beside=", ".join(COUNTED))


def run(spark: Any, source: Path, out: Path, truth: Counter[str], jvm: int) -> Run:
    """The job into an empty lake."""
    shutil.rmtree(out, ignore_errors=True)
    cpu, started_at = cpu_of_tree(jvm), time.perf_counter()
    event_lines = audit_job.event_lines_in_folder(spark, str(source))
    audit_job.run(spark, event_lines, str(out), None, lambda _: None)
    wall, used = time.perf_counter() - started_at, cpu_of_tree(jvm) - cpu
    sums = ", ".join(f"sum({name}) as {name}" for name in COUNTED)
    totals = Lake(spark, str(out)).read("group_member_hour").selectExpr(*sums.split(", ")).collect()[0].asDict()
    return Run(wall, used, totals == dict(truth))


def write(folder: Path, count: int) -> Counter[str]:
    """Events as proxies write them, and what the tables have to count."""
    folder.mkdir()
    dice, truth = random.Random(7), Counter[str]()
    log = event_log(IN_ONE_GO, lambda: _at(log.seq))
    with (folder / "audit.jsonl").open("wb") as file:
        for start in range(1, count + 1, IN_ONE_GO):
            for seq in range(start, min(start + IN_ONE_GO, count + 1)):
                log.offer(*_event(seq, dice, truth))
            while len(log):
                file.writelines(log.take(IN_ONE_GO, "bench-1", "cluster", bytes.hex))
    return truth


def _at(seq: int) -> int:
    return BEGUN_MS + seq * 20


def _event(seq: int, dice: random.Random, truth: Counter[str]) -> tuple[str, Place, str | None, str | None, Any]:
    """Acquires and settles in turn, renew marks and load between them."""
    first, at = seq * 10, _at(seq)
    member = f"member-{seq // 2 % 50}"
    place = Place("orders", seq % 8)
    if seq % 1000 == 0:
        sample = {str(bucket): [2, 200] for bucket in range(seq % 7, 4096, 97)}
        return ("load", place, None, None, (60_000, 9_000, 900_000, 5_000, 84, 8_400, 0, sample))
    attempt = 1 + (dice.random() < 0.1)
    if seq % 2:
        return ("acquire", place, "group", member, (first, first + 9, attempt, 1_200, 30_000, PROXY))
    outcome, renews = dice.choice(OUTCOMES), int(dice.random() < 0.05)
    truth["deliveries"] += 10
    truth["redeliveries"] += 10 * (attempt > 1)
    truth["renews"] += renews
    truth["timeouts"] += 10 * (outcome == "lock_timeout")
    truth["accepts"] += 10 * (outcome == "accept")
    held = (first, first + 9, attempt, at - dice.randrange(1, 5_000))
    return ("settle", place, "group", member, (*held, outcome, renews, renews * 1_500, first - 30, PROXY))
