"""Events are staged as Spark alone would read them (pipeline/README.md rules 26 and 27)."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.pipeline.audit import audit_job, event_input, event_staging
from kafka_share_proxy.pipeline.tables.lake import Lake

from tests.support.audit_story import NOON, Proxy
from tests.support.odd_lines import BROKEN, ODD, TAKEN

pytestmark = pytest.mark.slow


def test_spark_parses_each_line_to_the_same(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of all sorts with all sorts of ends, in a file that several tasks read, and in a compressed one."""
    dice, proxy = random.Random(5), Proxy("usual")
    for number in range(3_000):
        proxy.settle(NOON + number, number, number)
    lines = [*BROKEN, *(each.encode() for each in (*TAKEN, *ODD, *proxy.lines))]
    dice.shuffle(lines)
    ends = [b"\n", b"\n", b"\n", b"\r\n", b"\r", b"\n\n", b"\r\r\n"]
    text = b"\xef\xbb\xbf" + b"".join(line + dice.choice(ends) for line in lines) + proxy.lines[0][:50].encode()
    files = [tmp_path / "in" / name for name in ("audit.jsonl", "older.jsonl.gz")]
    files[0].parent.mkdir()
    files[0].write_bytes(text)
    files[1].write_bytes(gzip.compress(text))
    monkeypatch.setattr(event_input, "RANGE_BYTES_LEAST", 200_000)
    event_lines = audit_job.event_lines_in_folder(spark, str(files[0].parent))
    assert len(event_lines.direct.shares) > 1
    staged = event_staging.stage(spark, Lake(spark, str(tmp_path / "lake")), event_lines)
    monkeypatch.setattr(Lake, "local_staging", lambda *_: None)
    truth = event_staging.stage(spark, Lake(spark, str(tmp_path / "other")), event_lines)
    assert event_staging.DIRECT not in truth
    assert counted(staged) == counted(truth)
    assert staged[event_staging.DIRECT].count() > 1_000
    assert staged[event_staging.JUDGED].where("day is null").count() > 2 * len(BROKEN)


def counted(staged: dict[str, Any]) -> Counter[str]:
    whole = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), staged.values())
    return Counter(repr(row) for row in whole.select(sorted(set(whole.columns) - {"ingest_batch"})).collect())
