"""What a group has skipped is loaded once, and then committed (pipeline/README.md rules 38 and 39)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from localkafka.front import Front

from proxy.offsets.ranges import OffsetSpan
from proxy.pipeline import backfill_job
from proxy.pipeline.cluster import ClusterClient
from proxy.pipeline.group_commits import CommitsOfGroup
from proxy.pipeline.lake import Lake
from proxy.pipeline.options import BadOption, read_options
from proxy.wire.values import TopicPartition
from tests.pipeline.test_group_commits import begin
from tests.support.raw import Topic

Fresh = Callable[[str], str]
HOLE = {"topic": "orders", "partition": 0, "first": 5, "last": 9}


@pytest.mark.broker
@pytest.mark.slow
def test_holes_and_live_reads_are_every_offset_once(
    spark: Any, views_front: Front, orders: Topic, fresh: Fresh, tmp_path: Path
) -> None:
    group, given = fresh("group"), {"bootstrap": views_front.bootstrap}
    begin(views_front, group, orders, 100, "ic/1;150-299,400-1499")
    holes = [
        {"topic": orders.name, "partition": 0, "first": first, "last": last} for first, last in ((100, 149), (300, 399))
    ]
    tokens = backfill_job.read_tokens(json.dumps({"group": group, "holes": holes}))
    told: list[str] = []
    first = backfill_job.run(spark, given, tokens, str(tmp_path), told.append, commit=False)
    assert first == (150, 150, 0, False)
    again = backfill_job.run(spark, given, tokens, str(tmp_path), told.append, commit=True)
    assert again == (150, 150, 0, True)
    assert told[-1] == f"committed for group {group}"
    live = {*range(100), *range(150, 300), *range(400, 1_500)}
    rows = [row["offset"] for row in Lake(spark, str(tmp_path)).read("records").collect()]
    assert sorted([*live, *rows]) == list(range(1_500))
    with ClusterClient(read_options({**given, "topic": orders.name})) as cluster:
        assert CommitsOfGroup(cluster, group).states()[TopicPartition(orders.name, 0)].offset == 1_500
    assert backfill_job.run(spark, given, tokens, str(tmp_path), told.append, commit=True) == (0, 0, 0, False)


def test_tokens_are_what_the_command_commits_prints() -> None:
    tokens = backfill_job.read_tokens(json.dumps({"group": "g", "holes": [HOLE, {**HOLE, "first": 10, "last": 10}]}))
    assert tokens == ("g", {TopicPartition("orders", 0): [OffsetSpan(5, 11)]})
    assert backfill_job.read_tokens('{"group": "g", "holes": []}').holes == {}


@pytest.mark.parametrize("text", ["", "[]", '{"group": "g"}', '{"holes": []}', '{"group": "", "holes": []}',
                                  json.dumps({"group": "g", "holes": [{"topic": "orders"}]})])  # fmt: skip
def test_what_is_something_else_is_refused(text: str) -> None:
    with pytest.raises(BadOption, match="--tokens: "):
        backfill_job.read_tokens(text)


def test_the_same_holes_have_the_same_name_and_no_others() -> None:
    place = TopicPartition("orders", 0)
    names = {
        backfill_job.batch_of(place, [OffsetSpan(0, 5)]),
        backfill_job.batch_of(place, [OffsetSpan(0, 5)]),
        backfill_job.batch_of(place, [OffsetSpan(0, 6)]),
        backfill_job.batch_of(place._replace(partition=1), [OffsetSpan(0, 5)]),
    }
    assert len(names) == 3
