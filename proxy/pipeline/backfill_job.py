"""The job `backfill`: offsets that a group has skipped, read and written beside the others.

See pipeline/README.md rules 38 and 39.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from proxy.offsets.ranges import OffsetSpan, ascending
from proxy.pipeline.cluster import ClusterClient
from proxy.pipeline.group_commits import CommitsOfGroup
from proxy.pipeline.ingest_job import PARTITIONS, TABLE
from proxy.pipeline.lake import Lake
from proxy.pipeline.options import BadOption, offset_range, read_options
from proxy.wire.values import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOLES_MAX = 5_000
"""Of one partition in one run: a commit may have 10,000 ranges, and those of the group merge with these."""
RANGES = "backfill"
"""In the column `ranges`."""

Holes = Mapping[TopicPartition, list[OffsetSpan]]


class Backfilled(NamedTuple):
    """What a run did."""

    offsets: int
    """That were asked for and were not done."""
    rows: int
    """Records among them."""
    left: int
    """Holes that are for another run."""
    is_committed: bool


class Tokens(NamedTuple):
    """What `commits GROUP --holes --json` told."""

    group: str
    holes: Holes


def read_tokens(text: str) -> Tokens:
    """Read that JSON. Raises BadOption."""
    try:
        document = json.loads(text)
        entries = [offset_range(each) for each in document["holes"]]
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
    return Tokens(group, {place: ascending(spans) for place, spans in sorted(holes.items())})


def run(
    spark: SparkSession,
    given: Mapping[str, str],
    tokens: Tokens,
    out: str,
    progress: Callable[[str], None],
    *,
    commit: bool,
) -> Backfilled:
    """Read the holes, write them, and only then commit them.

    Args:
        spark: a session with the source.
        given: options of the source; no topic.
        tokens: the holes.
        out: the lake.
        progress: is given a line for each step.
        commit: say for the group that they are done; what is done already is not read then.

    Raises:
        GroupHasMembers: written, and not committed. ProxyError: as its text says.
    """
    settings = read_options({**given, "topic": next(iter(tokens.holes)).topic} if tokens.holes else given)
    with ClusterClient(settings) as cluster:
        group = CommitsOfGroup(cluster, tokens.group)
        wanted = _not_done(group, tokens.holes) if commit else tokens.holes
        chosen = {place: spans[:HOLES_MAX] for place, spans in wanted.items()}
        left = sum(len(spans) for spans in wanted.values()) - sum(len(spans) for spans in chosen.values())
        offsets = sum(span.end - span.start for spans in chosen.values() for span in spans)
        if not offsets:
            return Backfilled(0, 0, left, False)
        rows = _write(spark, given, chosen, Lake(spark, out))
        progress(f"{rows} records of {offsets} offsets are written")
        if commit:
            cluster.forget()  # brokers close what was idle for long
            group.commit(chosen)
            progress(f"committed for group {tokens.group}")
    return Backfilled(offsets, rows, left, commit)


def _not_done(group: CommitsOfGroup, holes: Holes) -> dict[TopicPartition, list[OffsetSpan]]:
    states = group.states()
    found = {}
    for place, spans in holes.items():
        state = states.get(place)
        left = spans if state is None else [part for span in spans for part in state.not_done(span)]
        if left:
            found[place] = left
    return found


def batch_of(place: TopicPartition, spans: list[OffsetSpan]) -> str:
    """The name of what is written for these holes: the same holes replace what an earlier run wrote."""
    said = hashlib.sha256(",".join(map(str, spans)).encode()).hexdigest()[:12]
    return f"backfill-{place.topic}-{place.partition}-{said}"


def _write(spark: SparkSession, given: Mapping[str, str], chosen: Holes, lake: Lake) -> int:
    from pyspark.sql import functions

    frame = _records(spark, given, chosen)
    names = [(place.topic, place.partition, batch_of(place, spans)) for place, spans in chosen.items()]
    batches = spark.createDataFrame(names, "topic string, partition int, batch string")
    day = functions.date_format("timestamp", "yyyy-MM-dd")
    named = frame.join(functions.broadcast(batches), ["topic", "partition"])
    named = named.select(*frame.columns, functions.lit(RANGES).alias("ranges"), day.alias("day"), "batch")
    lake.overwrite(named, TABLE, PARTITIONS)
    written = lake.read(TABLE)
    return int(written.where(written["batch"].isin([name for _, _, name in names])).count())


def _records(spark: SparkSession, given: Mapping[str, str], chosen: Holes) -> DataFrame:
    ranges: list[dict[str, Any]] = [
        {"topic": place.topic, "partition": place.partition, "first": span.start, "last": span.last}
        for place, spans in chosen.items()
        for span in spans
    ]
    options = {**given, "offsetRanges": json.dumps(ranges), "includeKeyHash": "true"}
    return spark.read.format("keyrange").options(**options).load()
