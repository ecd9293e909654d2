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
from kafka_share_proxy.pipeline.kafka.cluster import ClusterClient
from kafka_share_proxy.pipeline.kafka.group_commits import CommitsOfGroup
from kafka_share_proxy.pipeline.source.checkpoints import files_for
from kafka_share_proxy.pipeline.source.options import BadOption, offset_range, read_options
from kafka_share_proxy.pipeline.source.planning import PlannedRead
from kafka_share_proxy.pipeline.tables.ingest_job import KEPT_COLUMNS, PARTITIONS
from kafka_share_proxy.pipeline.tables.lake import Lake
from kafka_share_proxy.pipeline.tables.record_claims import TABLE, Divided, RecordClaims, rows_of
from kafka_share_proxy.wire.topic_ids import parse_topic_id, topic_id_text
from kafka_share_proxy.wire.values import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOLES_MAX = 5_000
"""Maximum number of holes per partition in one run: a commit may have 10,000 ranges, and those of the group merge with
these."""
RANGES = "backfill"
"""Value of the column `ranges`."""

Holes = Mapping[TopicPartition, list[OffsetSpan]]


class Backfilled(NamedTuple):
    """Result of a run."""

    offsets: int
    """Number of requested offsets that were not done."""
    rows: int
    """Number of records at these offsets."""
    left: int
    """Number of holes that are left for another run."""
    is_committed: bool


class Tokens(NamedTuple):
    """Output of `commits GROUP --holes --json`."""

    group: str
    holes: Holes
    ids: Mapping[str, bytes] = {}
    """Topic -> id of the topic with the holes. Empty for tokens of earlier releases."""


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
    for place, span in entries:
        holes[place].append(span)
    return Tokens(group, {place: ascending(spans) for place, spans in sorted(holes.items())}, ids)


def run(
    spark: SparkSession,
    given: Mapping[str, str],
    tokens: Tokens,
    out: str,
    progress: Callable[[str], None],
    *,
    commit: bool,
    table_format: str | None = None,
) -> Backfilled:
    """Read the holes, write their records, and commit the holes after that.

    Args:
        spark: a session with the source.
        given: options of the source, without topic.
        tokens: the holes.
        out: the lake.
        progress: called with a line for each step.
        commit: commit the holes for the group. Offsets that are done already are then not read.
        table_format: format of the table if it is created; see Lake.

    Raises:
        GroupHasMembers: the records are written, but not committed.
        ProxyError: the text has the reason.
    """
    if not tokens.holes:
        return Backfilled(0, 0, 0, False)
    topics = ",".join(dict.fromkeys(place.topic for place in tokens.holes))
    settings = read_options({**given, "topic": topics})
    lake = Lake(spark, out, table_format)
    lake.check_writable(TABLE)
    claims = RecordClaims(spark, lake)
    with ClusterClient(settings) as cluster, claims.backfilling(_name(tokens.holes)):
        planned = PlannedRead(cluster, settings)
        ids = {**planned.topic_ids(), **tokens.ids}
        gone = planned.replaced(ids)
        holes = {place: spans for place, spans in tokens.holes.items() if place.topic not in gone}
        group = CommitsOfGroup(cluster, tokens.group)
        wanted = _not_done(group, holes) if commit else holes
        chosen = {place: spans[:HOLES_MAX] for place, spans in wanted.items()}
        left = sum(len(spans) for spans in wanted.values()) - sum(len(spans) for spans in chosen.values())
        divided = claims.divided(chosen, ids)
        for line in _lines_of(divided):
            progress(line)
        rows = _write(spark, given, divided.mine, ids, lake) if divided.mine else 0
        progress(f"{rows} records of {_count(divided.mine)} offsets are written")
        done = _joined(divided.mine, divided.loaded)
        if commit and done:
            cluster.forget()  # brokers close connections that were idle for long
            group.commit(done)
            progress(f"committed for group {tokens.group}")
    return Backfilled(_count(divided.mine), rows, left, bool(commit and done))


def _count(spans: Holes) -> int:
    return sum(span.end - span.start for listed in spans.values() for span in listed)


def _joined(one: Holes, other: Holes) -> dict[TopicPartition, list[OffsetSpan]]:
    return {place: ascending([*one.get(place, ()), *other.get(place, ())]) for place in one.keys() | other.keys()}


def _lines_of(divided: Divided) -> list[str]:
    """Return the lines about offsets that streams load."""
    said = []
    if divided.loaded:
        said.append(f"{_count(divided.loaded)} offsets are in the table already, by a stream")
    if divided.to_come:
        of = ", ".join(f"that with the checkpoint {each.checkpoint} ({each.file})" for each in divided.claims)
        said.append(
            f"{_count(divided.to_come)} offsets are left to the stream that loads them: {of}; if it is over for good, "
            "delete the file"
        )
    return said


def _not_done(group: CommitsOfGroup, holes: Holes) -> dict[TopicPartition, list[OffsetSpan]]:
    states = group.states()
    found = {}
    for place, spans in holes.items():
        state = states.get(place)
        left = spans if state is None else [part for span in spans for part in state.not_done(span)]
        if left:
            found[place] = left
    return found


def _name(holes: Holes) -> str:
    said = ";".join(f"{place}:{','.join(map(str, spans))}" for place, spans in sorted(holes.items()))
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def batch_of(place: TopicPartition, spans: list[OffsetSpan]) -> str:
    """Return the batch name of the rows of these holes. A repeated run with the same holes replaces its rows.

    Rows that other batches hold are left out, so holes that overlap those of an earlier run are no duplicates.
    """
    said = hashlib.sha256(",".join(map(str, spans)).encode()).hexdigest()[:12]
    return f"backfill-{place.topic}-{place.partition}-{said}"


def _write(spark: SparkSession, given: Mapping[str, str], chosen: Holes, ids: Mapping[str, bytes], lake: Lake) -> int:
    from pyspark.sql import functions

    frame = _records(spark, given, chosen, ids)
    names = [(place.topic, place.partition, batch_of(place, spans)) for place, spans in chosen.items()]
    batches = spark.createDataFrame(names, "topic string, partition int, batch string")
    day = functions.date_format("timestamp", "yyyy-MM-dd")
    named = frame.join(functions.broadcast(batches), ["topic", "partition"])
    named = named.select(*frame.columns, functions.lit(RANGES).alias("ranges"), day.alias("day"), "batch")
    mine = [name for _, _, name in names]
    if lake.has(TABLE):
        named = named.join(_others(lake.read(TABLE), chosen, ids, mine), ["topic", "partition", "offset"], "left_anti")
        named = named.select(*frame.columns, "ranges", "day", "batch")
    lake.overwrite(named, TABLE, PARTITIONS, files_for(_count(chosen)))
    written = lake.read(TABLE)
    return int(written.where(written["batch"].isin(mine)).count())


def _others(table: DataFrame, chosen: Holes, ids: Mapping[str, bytes], mine: list[str]) -> DataFrame:
    """Return topic, partition and offset of rows that other batches hold, in and between the holes."""
    from pyspark.sql import functions

    between = functions.lit(False)
    for place, spans in chosen.items():
        is_there = (functions.col("topic") == place.topic) & (functions.col("partition") == place.partition)
        between |= is_there & functions.col("offset").between(spans[0].start, spans[-1].last)
    rows = rows_of(table, {place.topic for place in chosen}, ids)
    return rows.where(between & ~functions.col("batch").isin(mine)).select("topic", "partition", "offset")


def _records(spark: SparkSession, given: Mapping[str, str], chosen: Holes, ids: Mapping[str, bytes]) -> DataFrame:
    ranges: list[dict[str, Any]] = [
        {"topic": place.topic, "partition": place.partition, "first": span.start, "last": span.last}
        for place, spans in chosen.items()
        for span in spans
    ]
    texts = {topic: topic_id_text(topic_id) for topic, topic_id in ids.items() if topic_id != ZERO_UUID}
    options = {**given, **KEPT_COLUMNS, "offsetRanges": json.dumps(ranges), "topicIds": json.dumps(texts)}
    return spark.read.format("keyrange").options(**options).load()
