"""Claims of streams and backfills on offsets, so that the table `records` has each record once.

A row's key is (topic id, partition, offset). A stream claims all offsets from its start on, before it loads the first
one, except those that the table holds already. A backfill loads the offsets that no stream claims. Rules:
pipeline/README.md 53 to 55.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan
from kafka_share_proxy.pipeline.source.checkpoints import last_committed, stored_offset
from kafka_share_proxy.pipeline.source.starting import KeptStart
from kafka_share_proxy.pipeline.source.stream_offsets import BadStreamOffset, decode_offsets, read_ids
from kafka_share_proxy.pipeline.tables.files import Files, LakeError
from kafka_share_proxy.pipeline.tables.lake import Lake
from kafka_share_proxy.wire.topic_ids import topic_id_text
from kafka_share_proxy.wire.values import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = "records"
STREAMS, BACKFILLS = "_streams", "_backfills"
"""Folders in the table. Spark ignores names that begin with _."""
VERSION = 1
EXCEPT_MAX = 10_000
"""Maximum number of offset ranges that a stream may leave out."""

Spans = Mapping[TopicPartition, list[OffsetSpan]]


class Claim(NamedTuple):
    """Offsets that one stream loads."""

    stream_id: str
    checkpoint: str
    file: str
    ids: Mapping[str, bytes]
    starts: Mapping[TopicPartition, int]
    """First offset of the partitions that existed when the stream started."""
    is_whole: bool
    """True if partitions that are added later belong to the stream."""
    reached: Mapping[TopicPartition, int] = {}
    """Offsets below which the stream has loaded everything."""
    ids_now: Mapping[str, bytes] = {}
    """Topic -> id in the checkpoint. It differs from `ids` if a topic was created again."""

    def topics(self) -> set[str]:
        return {partition.topic for partition in self.starts}

    def start(self, partition: TopicPartition, topic_id: bytes | None) -> int | None:
        """Return the offset from which a stream loads a partition, or None if it does not load it.

        An unknown id (None) counts as that of the same topic.
        """
        mine, now = self.ids.get(partition.topic), self.ids_now.get(partition.topic)
        if partition.topic not in self.topics():
            return None
        if None not in (mine, topic_id) and mine != topic_id:
            return 0 if topic_id == now else None
        return self.starts.get(partition, 0 if self.is_whole else None)


class Divided(NamedTuple):
    """Offsets of a backfill, divided by what loads them."""

    mine: dict[TopicPartition, list[OffsetSpan]]
    loaded: dict[TopicPartition, list[OffsetSpan]]
    to_come: dict[TopicPartition, list[OffsetSpan]]
    claims: tuple[Claim, ...]


class RecordClaims:
    """Access to the claims in one lake."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark, self._lake = spark, lake
        self._files = Files(spark)

    # Streams

    def excepted(self, start: KeptStart, checkpoint: str, *, is_whole: bool) -> list[dict[str, Any]]:
        """Return the offsets that are in the table already, for `exceptOffsets`.

        `is_whole`: the stream reads all partitions of its topics, later ones included. Raises LakeError if another
        stream or a running backfill loads these offsets.
        """
        path = self._path(STREAMS, start.stream_id)
        document = json.loads(self._files.read(path)) if self._files.exists(path) else {}
        if "except" in document:
            excepted: list[dict[str, Any]] = document["except"]
            return excepted
        document = {
            "v": VERSION,
            "checkpoint": self._files.absolute(checkpoint),
            "offsets": json.loads(start.offsets),
            "ids": json.loads(start.topic_ids),
            "whole": is_whole,
        }
        claim = _claim(start.stream_id, path, document)
        self._files.write(path, json.dumps(document))  # from now on no backfill loads these offsets
        try:
            self._check_free(claim)
            document["except"] = self._in_table(claim)
        except BaseException:
            self._files.delete(path)
            raise
        self._files.write(path, json.dumps(document))
        return list(document["except"])

    def claims(self) -> list[Claim]:
        """Return the claims of all streams, with their progress."""
        folder = f"{self._lake.path(TABLE)}/{STREAMS}"
        names = [name.removesuffix(".json") for name in self._files.names(folder) if name.endswith(".json")]
        paths = {name: self._path(STREAMS, name) for name in names}
        claims = [_claim(name, path, json.loads(self._files.read(path))) for name, path in paths.items()]
        return [self._with_progress(claim) for claim in claims]

    def _check_free(self, claim: Claim) -> None:
        for other in self.claims():
            both = [
                partition
                for partition in claim.starts
                if other.stream_id != claim.stream_id
                and other.start(partition, claim.ids.get(partition.topic)) is not None
            ]
            if both:
                raise LakeError(
                    f"{self._lake.path(TABLE)} gets {both[0]} from the stream with the checkpoint {other.checkpoint}, "
                    "and a second stream would load its records twice: continue with that checkpoint, or name another "
                    f"--out; if that stream is over for good, delete {other.file}"
                )
        self._check_no_backfill("start this stream once it has ended")

    def _check_no_backfill(self, advice: str, mine: str = "") -> None:
        running = [
            name for name in self._files.names(f"{self._lake.path(TABLE)}/{BACKFILLS}") if name != f"{mine}.json"
        ]
        running = [name for name in running if name.endswith(".json")]
        if running:
            path = f"{self._lake.path(TABLE)}/{BACKFILLS}/{running[0]}"
            raise LakeError(
                f"a backfill loads into {self._lake.path(TABLE)}, or compact works on it: {advice}; if it was killed, "
                f"run it again with the same tokens, or delete {path}"
            )

    def _in_table(self, claim: Claim) -> list[dict[str, Any]]:
        """Return ranges that other streams or backfills have loaded."""
        from pyspark.sql import functions

        if not self._lake.has(TABLE):
            return []
        rows = rows_of(self._lake.read(TABLE), claim.topics(), claim.ids)
        starts = [(partition.topic, partition.partition, start) for partition, start in claim.starts.items()]
        first = self._spark.createDataFrame(starts, "topic string, partition int, first bigint")
        other_rows = rows.where(~rows["batch"].startswith(f"{claim.stream_id}-"))
        other_rows = other_rows.join(functions.broadcast(first), ["topic", "partition"], "left")
        claimed_rows = (
            other_rows.where("offset >= coalesce(first, 0)").select("topic", "partition", "offset").distinct()
        )
        islands = claimed_rows.selectExpr(
            "*", "offset - row_number() over (partition by topic, partition order by offset) as island"
        )
        ranges = islands.groupBy("topic", "partition", "island").agg(
            functions.min("offset").alias("first"), functions.max("offset").alias("last")
        )
        listed = ranges.orderBy("topic", "partition", "first").drop("island").limit(EXCEPT_MAX + 1).collect()
        if len(listed) > EXCEPT_MAX:
            raise LakeError(
                f"{self._lake.path(TABLE)} holds more than {EXCEPT_MAX} ranges of offsets that this stream would load "
                "again: name another --out, or start after them with --option startingOffsets=..."
            )
        return [row.asDict() for row in listed]

    # Backfills

    @contextmanager
    def backfilling(self, name: str) -> Iterator[None]:
        """Announce a backfill for the time of a block. Raises LakeError if another one is running.

        `name` is derived from the tokens: the same backfill may run again after it was killed.
        """
        path = self._path(BACKFILLS, name)
        self._files.write(path, json.dumps({"v": VERSION}))
        try:
            self._check_no_backfill("run this one once it has ended", name)
            yield
        finally:
            self._files.delete(path)

    def divided(self, holes: Spans, ids: Mapping[str, bytes]) -> Divided:
        """Divide the offsets of a backfill between itself and the streams that load them."""
        divided = Divided({}, {}, {}, ())
        remaining = dict(holes)
        used: dict[str, Claim] = {}
        for claim in self.claims():
            for partition, spans in remaining.items():
                start = claim.start(partition, ids.get(partition.topic))
                if start is None or not spans or spans[-1].end <= start:
                    continue
                end = max(start, claim.reached.get(partition, start))
                used[claim.stream_id] = claim
                _add(divided.loaded, partition, _within(spans, start, end))
                _add(divided.to_come, partition, _within(spans, end, None))
                remaining[partition] = _within(spans, 0, start)
        own_spans = {partition: spans for partition, spans in remaining.items() if spans}
        return divided._replace(mine=own_spans, claims=tuple(used.values()))

    def _with_progress(self, claim: Claim) -> Claim:
        stored = stored_offset(self._files, claim.checkpoint, last_committed(self._files, claim.checkpoint))
        try:
            offsets, ids = ({}, {}) if stored is None else (decode_offsets(stored), read_ids(stored))
        except BadStreamOffset:
            return claim
        return claim._replace(reached=offsets, ids_now=ids)

    def _path(self, folder: str, name: str) -> str:
        return f"{self._lake.path(TABLE)}/{folder}/{name}.json"


def rows_of(table: DataFrame, topics: set[str], ids: Mapping[str, bytes]) -> DataFrame:
    """Return rows. Those without topic id, of earlier releases, count as the same topic."""
    from pyspark.sql import functions

    rows = table if "topic_id" in table.columns else table.withColumn("topic_id", functions.lit(None).cast("string"))
    condition = functions.lit(False)
    for topic in topics:
        is_named = functions.col("topic") == topic
        if topic in ids:
            is_named &= functions.coalesce(functions.col("topic_id") == topic_id_text(ids[topic]), functions.lit(True))
        condition |= is_named
    return rows.where(condition)


def _claim(stream_id: str, path: str, document: Mapping[str, Any]) -> Claim:
    try:
        stored = {"v": 2, "t": document["offsets"], "ids": document["ids"]}
        ids, starts = read_ids(stored), decode_offsets(stored)
        return Claim(stream_id, document["checkpoint"], path, ids, starts, bool(document["whole"]))
    except (KeyError, TypeError, BadStreamOffset) as error:
        raise LakeError(f"{path} holds no claim of a stream: {error!r}") from None


def _within(spans: list[OffsetSpan], start: int, end: int | None) -> list[OffsetSpan]:
    cut = [OffsetSpan(max(span.start, start), span.end if end is None else min(span.end, end)) for span in spans]
    return [span for span in cut if span.start < span.end]


def _add(spans_of: dict[TopicPartition, list[OffsetSpan]], partition: TopicPartition, spans: list[OffsetSpan]) -> None:
    if spans:
        spans_of[partition] = list(OffsetRanges([*spans_of.get(partition, ()), *spans]))
