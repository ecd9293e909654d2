"""The job `plan`: the load of a topic by key, made into a plan (pipeline/README.md rules 23-25)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proxy.offsets.ranges import OffsetSpan
from proxy.pipeline.audit_tables import BUCKETS as LOAD_BUCKETS
from proxy.pipeline.cluster import ClusterClient
from proxy.pipeline.lake import Lake
from proxy.pipeline.options import BadOption, read_options
from proxy.pipeline.planner import BUCKET_WIDTH, NothingToPlan, RangePlan, make_plan
from proxy.pipeline.planning import PlannedRead
from proxy.views.model import plans
from proxy.wire.key_hash import murmur2
from proxy.wire.values import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS, BYTES, HOLD = "rows", "bytes", "hold"
LOAD_COLUMNS = {ROWS: "rows", BYTES: "bytes", HOLD: "hold_ms"}
"""Weight -> column of `key_range_load`."""
BLOCK_OFFSETS = 500
"""Neighbouring offsets of a sample: what a producer under load has in a batch or two."""
BLOCKS_MAX = 20_000
"""Of one sample; beyond it they become longer."""
HOT_SHARE = 0.5
"""Keys are looked at one by one in buckets that weigh so much of a fair range."""


@dataclass(frozen=True)
class PlannedTopic:
    """A plan, and what it was made from."""

    topic: str
    plan: RangePlan
    made_from: Mapping[str, Any]


def sampled(
    wanted: Sequence[tuple[TopicPartition, OffsetSpan]], share: float
) -> list[tuple[TopicPartition, OffsetSpan]]:
    """Blocks of offsets, evenly spread over each partition; about `share` of all of them, at least one block each.

    Raises:
        BadOption: a share that is none.
    """
    if not 0 < share <= 1:
        raise BadOption(f"--sample {share:g}: write a share above 0, and 1 at most")
    if share == 1:
        return list(wanted)
    total = sum(span.end - span.start for _, span in wanted)
    block = max(BLOCK_OFFSETS, round(total * share / BLOCKS_MAX))
    found = []
    for place, span in wanted:
        size = span.end - span.start
        blocks = max(1, round(size * share / block))
        for number in range(blocks):
            start = span.start + size * number // blocks
            found.append((place, OffsetSpan(start, min(start + block, span.end))))
    return found


def plan_of_topic(
    spark: SparkSession, options: Mapping[str, str], count: int, weight: str = ROWS, share: float = 1.0
) -> PlannedTopic:
    """A plan for one topic, from its records.

    Args:
        spark: a session with the source.
        options: of the source; one topic.
        count: ranges.
        weight: ROWS or BYTES.
        share: of the offsets that are read, above 0.

    Raises:
        BadOption, NothingToPlan, ProxyError: as their texts say.
    """
    if weight not in (ROWS, BYTES):
        raise BadOption(f"--weight {weight}: a topic tells rows and bytes; how long records are held the audit tells")
    checked = read_options(options)
    if len(checked.topics) != 1:
        raise BadOption("a plan is for one topic")
    with ClusterClient(checked) as cluster:
        everything = PlannedRead(cluster, checked).batch()
    chosen = sampled(everything, share)
    if not chosen:
        raise NothingToPlan(f"{checked.topics[0]} has no records: nothing says where to cut")
    frame = _records(spark, options, chosen)
    rows, weights = _bucket_weights(frame, weight)
    plan = make_plan(weights, count)
    hot = _hot_keys(frame, weights, weight, count) if plan.hottest_bucket * count > HOT_SHARE else ()
    made = RangePlan(plan.starts, plan.weights, plan.hottest_bucket, hot)
    offsets = {str(place): [span.start, span.last] for place, span in everything}
    return PlannedTopic(checked.topics[0], made, {"weight": weight, "sample": share, "rows": rows, "offsets": offsets})


def plan_of_lake(lake: Lake, topic: str | None, count: int, weight: str = ROWS) -> PlannedTopic:
    """A plan for one topic, from the tables that the job `audit` made.

    Args:
        lake: has `key_range_load` and `hot_keys`.
        topic: None: the only one there is.
        count: ranges.
        weight: ROWS, BYTES or HOLD.

    Raises:
        BadOption, NothingToPlan, NoLake: as their texts say.
    """
    from pyspark.sql import functions

    if weight not in LOAD_COLUMNS:
        raise BadOption(f"--weight {weight}: one of {', '.join(LOAD_COLUMNS)}")
    load = lake.read("key_range_load").where("bucket >= 0 and topic is not null")
    sums = load.groupBy("topic", "bucket").agg(
        functions.sum(LOAD_COLUMNS[weight]).alias("weight"), functions.sum("rows").alias("rows")
    )
    found = sums.collect()
    topic = _only_topic(sorted({row["topic"] for row in found}), topic)
    mine = [row for row in found if row["topic"] == topic]
    hot = _hot_hashes(lake, topic)
    weights = {row["bucket"]: float(row["weight"]) for row in mine}
    plan = make_plan(weights, count, LOAD_BUCKETS)  # nobody knows how the load lies within a bucket
    named = _named_hashes(hot, weights, count)
    days = sorted(row["day"] for row in load.where(load["topic"] == topic).select("day").distinct().collect())
    made_from = {"weight": weight, "days": days, "rows": round(sum(row["rows"] for row in mine))}
    return PlannedTopic(topic, RangePlan(plan.starts, plan.weights, plan.hottest_bucket, named), made_from)


def _only_topic(there: Sequence[str], topic: str | None) -> str:
    if topic is None and len(there) > 1:
        raise BadOption(f"say --topic: the tables have {', '.join(there)}")
    if not there or topic not in (None, *there):
        raise NothingToPlan(f"the tables have no load of {topic or 'any topic'}: nothing says where to cut")
    return topic or there[0]


def _hot_hashes(lake: Lake, topic: str) -> dict[int, float]:
    """Hash -> share of the topic's records, over all days, the heaviest first."""
    table = lake.read("hot_keys")
    listed = table.where(table["topic"] == topic).collect()
    total = sum({row["day"]: row["rows"] for row in listed}.values())
    found: dict[int, float] = {}
    for row in listed:
        found[row["hash"]] = found.get(row["hash"], 0) + row["estimate"] / total
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))


def _named_hashes(hot: Mapping[int, float], weights: Mapping[int, float], count: int) -> tuple[tuple[str, float], ...]:
    """Keys that alone have more than a fair range. Their shares are of records, also where `weights` are of something
    else: no key weighs more than its bucket.
    """
    total = sum(weights.values())
    shares = {
        hash_: min(share, weights.get(hash_ // (plans.HASH_SPACE // LOAD_BUCKETS), 0) / total)
        for hash_, share in hot.items()
    }
    return tuple((f"hash {hash_}", share) for hash_, share in shares.items() if share * count >= 1)


def _records(
    spark: SparkSession, options: Mapping[str, str], chosen: Sequence[tuple[TopicPartition, OffsetSpan]]
) -> DataFrame:
    """Keys, hashes and sizes of these offsets, in about as many tasks as there are slots."""
    ranges = [
        {"topic": place.topic, "partition": place.partition, "first": span.start, "last": span.last}
        for place, span in chosen
    ]
    places = len({place for place, _ in chosen})
    pieces = max(1, -(-2 * spark.sparkContext.defaultParallelism // places))
    ours = {"offsetranges", "columns", "offsetsplits", "topic", "assign", "startingoffsets", "endingoffsets"}
    given = {name: value for name, value in options.items() if name.lower() not in ours}
    given |= {"columns": "key,key_hash,record_bytes", "offsetRanges": json.dumps(ranges), "offsetSplits": str(pieces)}
    return spark.read.format("keyrange").options(**given).load()


def _measure(weight: str) -> Any:
    from pyspark.sql import functions

    return functions.count("*") if weight == ROWS else functions.sum("record_bytes")


def _bucket_weights(frame: DataFrame, weight: str) -> tuple[int, dict[int, float]]:
    """How many records, and the weight of each bucket."""
    from pyspark.sql import functions

    bucket = functions.expr(f"cast(key_hash div {BUCKET_WIDTH} as int)").alias("bucket")
    grouped = frame.groupBy(bucket).agg(functions.count("*").alias("rows"), _measure(weight).alias("weight"))
    found = grouped.collect()
    return sum(row["rows"] for row in found), {row["bucket"]: float(row["weight"]) for row in found}


def _hot_keys(frame: DataFrame, weights: Mapping[int, float], weight: str, count: int) -> tuple[tuple[str, float], ...]:
    """Keys that alone have more than a fair range: only buckets that are as heavy are looked into."""
    from pyspark.sql import functions

    total = sum(weights.values())
    heavy = [bucket for bucket, value in weights.items() if value * count >= total]
    if not heavy:
        return ()
    inside = frame.where(functions.expr(f"cast(key_hash div {BUCKET_WIDTH} as int)").isin(heavy))
    keys = inside.where("key is not null").groupBy("key").agg(_measure(weight).alias("weight"))
    found = keys.where(functions.col("weight") >= total / count).orderBy(functions.desc("weight")).limit(20).collect()
    return tuple((key_text(bytes(row["key"])), float(row["weight"]) / total) for row in found)


def key_text(key: bytes) -> str:
    """A key for people: as text where it is some, with its hash beside it."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    shown = text if text.isprintable() and text else f"0x{key.hex()}"
    return f"{shown} (hash {murmur2(key)})"


def lines_of(made: PlannedTopic) -> list[str]:
    """What a person is told."""
    plan = made.plan
    count = len(plan.starts)
    lines = [
        f"{made.topic}: {count} ranges from {made.made_from['rows']} records, weight {made.made_from['weight']}",
        f"heaviest range: {plan.heaviest_to_mean:.3f} x the mean (no plan comes below {plan.bound:.3f})",
    ]
    for key, share in plan.hot_keys:
        lines.append(f"hot key {key}: {share:.1%} of the load, a fair range has {1 / count:.1%}: no plan divides a key")
    return lines
