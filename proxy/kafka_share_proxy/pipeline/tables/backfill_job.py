"""The job `backfill`: reads offsets that a group has skipped and adds them to the table `records`.

See pipeline/README.md rules 38 and 39.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_share_proxy.offsets.ranges import OffsetSpan, ascending
from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient
from kafka_share_proxy.pipeline.kafka.group_commits import CommitsOfGroup
from kafka_share_proxy.pipeline.source.checkpoints import files_for
from kafka_share_proxy.pipeline.source.options import BadOption, offset_range, read_options
from kafka_share_proxy.pipeline.source.split_planning import PlannedRead
from kafka_share_proxy.pipeline.tables.ingest_job import KEPT_COLUMNS, PARTITIONS
from kafka_share_proxy.pipeline.tables.lake import Lake
from kafka_share_proxy.pipeline.tables.record_claims import TABLE, Divided, RecordClaims, rows_of
from kafka_share_proxy.wire.topic_ids import parse_topic_id, topic_id_text
from kafka_share_proxy.wire.values import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOLES_MAX = 5_000
"""Maximum number of holes per partition in one run: a commit may have 10,000 ranges."""
RANGES = "backfill"

Holes = Mapping[TopicPartition, list[OffsetSpan]]


class Backfilled(NamedTuple):
    """Result of a run."""

    offsets: int
    """Number of requested offsets that were not done."""
    rows: int
    remaining: int
    """Number of holes for another run."""
    is_committed: bool


class Tokens(NamedTuple):
    """Output of `commits GROUP --holes --json`."""

    group: str
    holes: Holes
    ids: Mapping[str, bytes] = {}
    """Empty for tokens of earlier releases."""


def read_tokens(text: str) -> Tokens:
    """Parse the output of `commits GROUP --holes --json`. Raises BadOption."""
    try:
        document = json.loads(text)
        entries = [offset_range(each) for each in document["holes"]]
        ids = {each["topic"]: parse_topic_id(each["topic_id"]) for each in document["holes"] if "topic_id" in each}
        group = document["group"]
    except (ValueError, TypeError, KeyError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise BadOption(
            f"--tokens: {reason}; it is what kafka-share-proxy commits GROUP --holes --json prints"
        ) from None
    if not isinstance(group, str) or not group:
        raise BadOption("--tokens: group is missing")
    holes: dict[TopicPartition, list[OffsetSpan]] = defaultdict(list)
    for partition, span in entries:
        holes[partition].append(span)
    return Tokens(group, {partition: ascending(spans) for partition, spans in sorted(holes.items())}, ids)


def run(
    spark: SparkSession,
    option_values: Mapping[str, str],
    tokens: Tokens,
    out: str,
    progress: Callable[[str], None],
    *,
    commit: bool,
    table_format: str | None = None,
) -> Backfilled:
    """Read the holes, write their records, and commit the holes after that if `commit` is true.

    With `commit`, offsets that are done already are not read. Raises GroupHasMembers after writing, if the holes cannot
    be committed, and ProxyError.
    """
    if not tokens.holes:
        return Backfilled(0, 0, 0, False)
    topics = ",".join(dict.fromkeys(partition.topic for partition in tokens.holes))
    settings = read_options({**option_values, "topic": topics})
    lake = Lake(spark, out, table_format)
    lake.check_writable(TABLE)
    claims = RecordClaims(spark, lake)
    with BlockingClusterClient(settings) as cluster, claims.backfilling(_name_of(tokens.holes)):
        planned = PlannedRead(cluster, settings)
        ids = {**planned.topic_ids(), **tokens.ids}
        replaced = planned.replaced(ids)
        holes = {partition: spans for partition, spans in tokens.holes.items() if partition.topic not in replaced}
        group = CommitsOfGroup(cluster, tokens.group)
        holes_to_read = _not_done(group, holes) if commit else holes
        chosen = {partition: spans[:HOLES_MAX] for partition, spans in holes_to_read.items()}
        remaining = sum(len(spans) for spans in holes_to_read.values()) - sum(len(spans) for spans in chosen.values())
        divided = claims.divided(chosen, ids)
        for line in _report_lines(divided):
            progress(line)
        rows = _write(spark, option_values, divided.mine, ids, lake) if divided.mine else 0
        progress(f"{rows} records of {_count(divided.mine)} offsets are written")
        done = _joined(divided.mine, divided.loaded)
        if commit and done:
            cluster.forget()  # brokers close connections that were idle for long
            group.commit(done)
            progress(f"committed for group {tokens.group}")
    return Backfilled(_count(divided.mine), rows, remaining, bool(commit and done))


def _count(spans: Holes) -> int:
    return sum(span.end - span.start for listed in spans.values() for span in listed)


def _joined(one: Holes, other: Holes) -> dict[TopicPartition, list[OffsetSpan]]:
    return {
        partition: ascending([*one.get(partition, ()), *other.get(partition, ())])
        for partition in one.keys() | other.keys()
    }


def _report_lines(divided: Divided) -> list[str]:
    lines = []
    if divided.loaded:
        lines.append(f"{_count(divided.loaded)} offsets are in the table already, by a stream")
    if divided.to_come:
        of = ", ".join(f"that with the checkpoint {each.checkpoint} ({each.file})" for each in divided.claims)
        lines.append(
            f"{_count(divided.to_come)} offsets are left to the stream that loads them: {of}; if it is over for good, "
            "delete the file"
        )
    return lines


def _not_done(group: CommitsOfGroup, holes: Holes) -> dict[TopicPartition, list[OffsetSpan]]:
    states = group.states()
    not_done = {}
    for partition, spans in holes.items():
        state = states.get(partition)
        remaining = spans if state is None else [part for span in spans for part in state.not_done(span)]
        if remaining:
            not_done[partition] = remaining
    return not_done


def _name_of(holes: Holes) -> str:
    text = ";".join(f"{partition}:{','.join(map(str, spans))}" for partition, spans in sorted(holes.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def batch_of(partition: TopicPartition, spans: list[OffsetSpan]) -> str:
    """Return the batch name. A repeated run replaces its rows."""
    digest = hashlib.sha256(",".join(map(str, spans)).encode()).hexdigest()[:12]
    return f"backfill-{partition.topic}-{partition.partition}-{digest}"


def _write(
    spark: SparkSession, option_values: Mapping[str, str], chosen: Holes, ids: Mapping[str, bytes], lake: Lake
) -> int:
    from pyspark.sql import functions

    frame = _records(spark, option_values, chosen, ids)
    names = [(partition.topic, partition.partition, batch_of(partition, spans)) for partition, spans in chosen.items()]
    batches = spark.createDataFrame(names, "topic string, partition int, batch string")
    day = functions.date_format("timestamp", "yyyy-MM-dd")
    labelled = frame.join(functions.broadcast(batches), ["topic", "partition"])
    labelled = labelled.select(*frame.columns, functions.lit(RANGES).alias("ranges"), day.alias("day"), "batch")
    mine = [name for _, _, name in names]
    if lake.has(TABLE):
        labelled = labelled.join(
            _rows_of_other_batches(lake.read(TABLE), chosen, ids, mine), ["topic", "partition", "offset"], "left_anti"
        )
        labelled = labelled.select(*frame.columns, "ranges", "day", "batch")
    lake.overwrite(labelled, TABLE, PARTITIONS, files_for(_count(chosen)))
    written = lake.read(TABLE)
    return int(written.where(written["batch"].isin(mine)).count())


def _rows_of_other_batches(table: DataFrame, chosen: Holes, ids: Mapping[str, bytes], mine: list[str]) -> DataFrame:
    from pyspark.sql import functions

    between = functions.lit(False)
    for partition, spans in chosen.items():
        is_there = (functions.col("topic") == partition.topic) & (functions.col("partition") == partition.partition)
        between |= is_there & functions.col("offset").between(spans[0].start, spans[-1].last)
    rows = rows_of(table, {partition.topic for partition in chosen}, ids)
    return rows.where(between & ~functions.col("batch").isin(mine)).select("topic", "partition", "offset")


def _records(
    spark: SparkSession, option_values: Mapping[str, str], chosen: Holes, ids: Mapping[str, bytes]
) -> DataFrame:
    ranges: list[dict[str, Any]] = [
        {"topic": partition.topic, "partition": partition.partition, "first": span.start, "last": span.last}
        for partition, spans in chosen.items()
        for span in spans
    ]
    texts = {topic: topic_id_text(topic_id) for topic, topic_id in ids.items() if topic_id != ZERO_UUID}
    options = {**option_values, **KEPT_COLUMNS, "offsetRanges": json.dumps(ranges), "topicIds": json.dumps(texts)}
    return spark.read.format("keyrange").options(**options).load()
