"""The job `plan`: makes a plan of key ranges from the load of a topic by key (pipeline/README.md rules 23-25)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.pipeline.audit.audit_tables import BUCKETS as LOAD_BUCKETS
from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient
from kafka_share_proxy.pipeline.plan.key_range_planner import (
    BUCKET_WIDTH,
    CONFIDENCE,
    NothingToPlan,
    RangePlan,
    make_plan,
)
from kafka_share_proxy.pipeline.source.options import BadOption, read_options
from kafka_share_proxy.pipeline.source.split_planning import PlannedRead
from kafka_share_proxy.pipeline.tables.lake import Lake
from kafka_share_proxy.views.model import plans
from kafka_share_proxy.wire.key_text import key_text
from kafka_share_proxy.wire.records.key_hash import murmur2
from kafka_share_proxy.wire.records.key_samples import SampleShape, effective_size
from kafka_share_proxy.wire.values import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

ROWS, BYTES, HOLD = "rows", "bytes", "hold"
LOAD_COLUMNS = {ROWS: "rows", BYTES: "bytes", HOLD: "hold_ms"}
BLOCK_OFFSETS = 500
"""Offsets in a block of a sample, about the size of one or two batches of a producer under load."""
BLOCKS_MAX = 20_000
HOT_SHARE = 0.5
"""Share of a fair range that a bucket must have before its keys are examined one by one."""


@dataclass(frozen=True)
class PlannedTopic:
    """A plan, and the facts about its input."""

    topic: str
    plan: RangePlan
    made_from: Mapping[str, Any]


def sample_blocks(
    spans: Sequence[tuple[TopicPartition, OffsetSpan]], share: float
) -> list[tuple[TopicPartition, OffsetSpan]]:
    """Return blocks of offsets, evenly spread over each partition, at least one each.

    Raises BadOption if the share is not above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise BadOption(f"--sample {share:g}: write a share above 0, and 1 at most")
    if share == 1:
        return list(spans)
    total = sum(span.end - span.start for _, span in spans)
    block = max(BLOCK_OFFSETS, round(total * share / BLOCKS_MAX))
    blocks = []
    for partition, span in spans:
        size = span.end - span.start
        count = max(1, round(size * share / block))
        for number in range(count):
            start = span.start + size * number // count
            blocks.append((partition, OffsetSpan(start, min(start + block, span.end))))
    return blocks


def plan_of_topic(
    spark: SparkSession, options: Mapping[str, str], count: int, weight: str = ROWS, share: float = 1.0
) -> PlannedTopic:
    """Make a plan from the records of a topic. `weight` is ROWS or BYTES.

    Raises BadOption, NothingToPlan, ProxyError.
    """
    if weight not in (ROWS, BYTES):
        raise BadOption(
            f"--weight {weight}: a topic has rows and bytes only; how long records are held is in the audit tables"
        )
    checked = read_options(options)
    if len(checked.topics) != 1:
        raise BadOption("a plan is for one topic")
    with BlockingClusterClient(checked) as cluster:
        everything = PlannedRead(cluster, checked).batch()
    chosen = sample_blocks(everything, share)
    if not chosen:
        raise NothingToPlan(f"{checked.topics[0]} has no records: nothing says where to cut")
    frame = _records(spark, options, chosen)
    if share == 1:
        rows, weights = _bucket_weights(frame, weight)
        plan = make_plan(weights, count)
    else:
        rows, weights, variances = _sampled_weights(frame, weight, chosen)
        plan = make_plan(weights, count, variances=variances)
    hot = _hot_keys(frame, weights, weight, count) if plan.hottest_bucket * count > HOT_SHARE else ()
    plan_with_hot_keys = replace(plan, hot_keys=hot)
    offsets = {str(partition): [span.start, span.last] for partition, span in everything}
    made_from = {"weight": weight, "sample": share, "rows": rows, "offsets": offsets}
    return PlannedTopic(checked.topics[0], plan_with_hot_keys, made_from)


def plan_of_lake(lake: Lake, topic: str | None, count: int, weight: str = ROWS) -> PlannedTopic:
    """Make a plan from the tables of the job `audit`. `topic` may be None if they have only one.

    Raises BadOption, NothingToPlan, NoLake.
    """

    if weight not in LOAD_COLUMNS:
        raise BadOption(f"--weight {weight}: one of {', '.join(LOAD_COLUMNS)}")
    sums = _bucket_sums(lake, LOAD_COLUMNS[weight])
    topic = _only_topic(sorted({row["topic"] for row in sums if row["bucket"] >= 0}), topic)
    topic_sums = [row for row in sums if row["topic"] == topic]
    days = sorted({day for row in topic_sums for day in row["days"]})
    if any(row["variance"] is None for row in topic_sums):
        raise NothingToPlan(f"{lake.root}: some days were made by an earlier version: run pipeline audit again")
    bucket_sums = [row for row in topic_sums if row["bucket"] >= 0]
    rows, everything = (round(sum(row["rows"] for row in some)) for some in (bucket_sums, topic_sums))
    hot = _hot_hashes(lake, topic)
    weights = {row["bucket"]: float(row["weight"]) for row in bucket_sums}
    variances = {row["bucket"]: row["variance"] for row in bucket_sums}
    # the distribution of load within a bucket is unknown
    plan = make_plan(weights, count, LOAD_BUCKETS, variances, 1 - rows / everything if everything else 0.0)
    hot_keys = _named_hashes(hot, weights, count)
    keys = round(sum(row["keys"] for row in bucket_sums))
    made_from = {"weight": weight, "days": days, "rows": everything, "unseen_rows": everything - rows, "keys": keys}
    return PlannedTopic(topic, replace(plan, hot_keys=hot_keys), made_from)


def _bucket_sums(lake: Lake, column: str) -> list[Row]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    load = lake.read("key_range_load").where("topic is not null")
    for name in ("variance", "sampled"):  # tables of earlier versions lack these columns
        if name not in load.columns:
            load = load.withColumn(name, F.lit(None).cast("double"))
    scale = F.expr(f"if(rows > 0, {column} / rows, 0)")
    variance = F.when(F.count_if(F.col("variance").isNull()) == 0, F.sum(F.col("variance") * scale * scale))
    sums = load.groupBy("topic", "bucket").agg(
        F.sum(column).alias("weight"),
        F.sum("rows").alias("rows"),
        F.sum(F.coalesce("sampled", F.lit(0))).alias("keys"),
        variance.alias("variance"),
        F.collect_set("day").alias("days"),
    )
    rows: list[Row] = sums.collect()
    return rows


def _only_topic(topics: Sequence[str], topic: str | None) -> str:
    if topic is None and len(topics) > 1:
        raise BadOption(f"say --topic: the tables have {', '.join(topics)}")
    if not topics or topic not in (None, *topics):
        raise NothingToPlan(f"the tables have no load of {topic or 'any topic'}: nothing says where to cut")
    return topic or topics[0]


class HotHash(NamedTuple):
    """A heavy key of one topic, over all days."""

    hash: int
    share: float
    key: str | None
    """Key as text, if the audit kept it."""


def _hot_hashes(lake: Lake, topic: str) -> list[HotHash]:
    table = lake.read("hot_keys")
    listed = table.where(table["topic"] == topic).collect()
    total = sum({row["day"]: row["rows"] for row in listed}.values())
    shares, keys = Counter[int](), dict[int, str]()
    for row in listed:
        shares[row["hash"]] += row["estimate"] / total
        if "key" in row and row["key"] is not None:
            keys[row["hash"]] = row["key"]
    return [HotHash(hash_, share, keys.get(hash_)) for hash_, share in shares.most_common()]


def _named_hashes(hot: Iterable[HotHash], weights: Mapping[int, float], count: int) -> tuple[tuple[str, float], ...]:
    """Return the keys that alone have more than a fair range.

    Their shares are of records, limited to the share of their bucket.
    """
    total = sum(weights.values())
    bounded = (
        each._replace(share=min(each.share, weights.get(each.hash // (plans.HASH_SPACE // LOAD_BUCKETS), 0) / total))
        for each in hot
    )
    return tuple(
        (f"hash {each.hash}" if each.key is None else f"{each.key} (hash {each.hash})", each.share)
        for each in bounded
        if each.share * count >= 1
    )


def _records(
    spark: SparkSession, options: Mapping[str, str], chosen: Sequence[tuple[TopicPartition, OffsetSpan]]
) -> DataFrame:
    """Read in about twice as many tasks as there are slots."""
    ranges = [
        {"topic": partition.topic, "partition": partition.partition, "first": span.start, "last": span.last}
        for partition, span in chosen
    ]
    partitions = len({partition for partition, _ in chosen})
    pieces = max(1, -(-2 * spark.sparkContext.defaultParallelism // partitions))
    own_options = {"offsetranges", "columns", "offsetsplits", "topic", "assign", "startingoffsets", "endingoffsets"}
    reader_options = {name: value for name, value in options.items() if name.lower() not in own_options}
    reader_options |= {
        "columns": "key,partition,offset,key_hash,record_bytes",
        "offsetRanges": json.dumps(ranges),
        "offsetSplits": str(pieces),
    }
    return spark.read.format("keyrange").options(**reader_options).load()


def _measure(weight: str) -> Any:
    from pyspark.sql import functions

    return functions.count("*") if weight == ROWS else functions.sum("record_bytes")


def _bucket_weights(frame: DataFrame, weight: str) -> tuple[int, dict[int, float]]:
    from pyspark.sql import functions

    bucket = functions.expr(f"cast(key_hash div {BUCKET_WIDTH} as int)").alias("bucket")
    grouped = frame.groupBy(bucket).agg(functions.count("*").alias("rows"), _measure(weight).alias("weight"))
    rows = grouped.collect()
    return sum(row["rows"] for row in rows), {row["bucket"]: float(row["weight"]) for row in rows}


def _sampled_weights(
    frame: DataFrame, weight: str, chosen: Sequence[tuple[TopicPartition, OffsetSpan]]
) -> tuple[int, dict[int, float], dict[int, float]]:
    """Add the variance of each weight to `_bucket_weights`.

    The blocks are a systematic sample of each partition in proportion to its offsets. Keys of a block may be
    correlated, like those of one sample of the audit (`key_samples.effective_size`).
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    blocks = frame.sparkSession.createDataFrame(
        [(partition.partition, span.start, span.last, number) for number, (partition, span) in enumerate(chosen)],
        "partition int, first long, last long, block int",
    ).alias("b")
    where = F.expr("r.partition = b.partition and r.offset between b.first and b.last")
    bucket = F.expr(f"cast(key_hash div {BUCKET_WIDTH} as int)").alias("bucket")
    cells = frame.alias("r").join(F.broadcast(blocks), where).groupBy("block", bucket)
    counted = cells.agg(F.count("*").alias("rows"), _measure(weight).alias("weight"))
    pairs = F.sum(F.expr("rows * (rows - 1) / 2")).alias("pairs")
    of_buckets = counted.groupBy("bucket").agg(F.sum("rows").alias("rows"), F.sum("weight").alias("weight"), pairs)
    buckets = of_buckets.collect()
    rows = sum(row["rows"] for row in buckets)
    weights = {row["bucket"]: float(row["weight"]) for row in buckets}
    if not rows:
        return 0, weights, {}
    offsets = [span.end - span.start for _, span in chosen]
    keys = [each * rows / sum(offsets) for each in offsets]  # compaction may have left gaps anywhere
    squares, largest = rows, sum(each * each for each in keys)
    shape = SampleShape(rows, squares, largest, sum(row["pairs"] for row in buckets), (largest - rows) / 2)
    each = rows / effective_size(shape, (row["rows"] for row in buckets))
    return rows, weights, {row["bucket"]: row["weight"] ** 2 / row["rows"] * each for row in buckets}


def _hot_keys(frame: DataFrame, weights: Mapping[int, float], weight: str, count: int) -> tuple[tuple[str, float], ...]:
    """Examine only buckets that are as heavy as a fair range."""
    from pyspark.sql import functions

    total = sum(weights.values())
    heavy = [bucket for bucket, value in weights.items() if value * count >= total]
    if not heavy:
        return ()
    inside = frame.where(functions.expr(f"cast(key_hash div {BUCKET_WIDTH} as int)").isin(heavy))
    keys = inside.where("key is not null").groupBy("key").agg(_measure(weight).alias("weight"))
    heaviest = (
        keys.where(functions.col("weight") >= total / count).orderBy(functions.desc("weight")).limit(20).collect()
    )
    return tuple((key_name(bytes(row["key"])), float(row["weight"]) / total) for row in heaviest)


def key_name(key: bytes) -> str:
    return f"{key_text(key)} (hash {murmur2(key)})"


def report_lines(planned: PlannedTopic) -> list[str]:
    plan, facts = planned.plan, planned.made_from
    count = len(plan.starts)
    sample = f", of which {facts['keys']:,} keys were sampled" if "keys" in facts else ""
    lines = [
        f"{planned.topic}: {count} ranges from {facts['rows']:,} records{sample}, weight {facts['weight']}",
        f"heaviest range: {promise(plan)}; no plan comes below {plan.bound:.3f}",
    ]
    if facts.get("unseen_rows"):
        lines.append(
            f"{facts['unseen_rows']:,} records arrived while no key was sampled: the promise puts them in one range"
        )
    if plan.samples_needed > 1:
        lines.append(few_samples(plan))
    for key, share in plan.hot_keys:
        lines.append(f"hot key {key}: {share:.1%} of the load, a fair range has {1 / count:.1%}: no plan divides a key")
    return lines


def promise(plan: RangePlan) -> str:
    if plan.share_at_most is None or plan.at_most <= plan.heaviest_to_mean:
        return f"{plan.heaviest_to_mean:.3f} x the mean"
    at_most = ceil(plan.at_most * 1000) / 1000
    return f"at most {at_most:.3f} x the mean at {CONFIDENCE:.0%} (estimate {plan.heaviest_to_mean:.3f})"


def few_samples(plan: RangePlan) -> str:
    return (
        f"too few samples for a close promise: about {plan.samples_needed:.0f} times as many are needed. Have more "
        "traffic audited before you plan, raise audit.key_samples_per_s, or plan from the topic itself (--from TOPIC), "
        "which reads every key"
    )
