"""The data source `keyrange` in Spark, with real brokers and a proxy (pipeline/README.md rules 14 to 20)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra [spark] is not installed")

from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient, TopicReplaced
from kafka_share_proxy.pipeline.kafka.group_commits import CommitsOfGroup
from kafka_share_proxy.pipeline.source.log_reader import OffsetsLost
from kafka_share_proxy.pipeline.source.options import BadOption, read_options
from kafka_share_proxy.pipeline.source.source import BatchReader, StreamReader, read_split
from kafka_share_proxy.pipeline.source.stream_offsets import decode_offsets
from kafka_share_proxy.wire.topic_ids import topic_id_text
from kafka_share_proxy.wire.values import TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from tests.pipeline.conftest import PRODUCED_MS, key_of, produce_keys
from tests.support.raw import Raw, Topic

pytestmark = [pytest.mark.broker, pytest.mark.slow]
Fresh = Callable[[str], str]
Reader = Callable[..., StreamReader]


def frame(spark: Any, front: Front, topic: Topic, **options: str) -> Any:
    reader = spark.read.format("keyrange").option("bootstrap", front.bootstrap).option("topic", topic.name)
    return reader.options(**options).load()


def stream(spark: Any, front: Front, topic: Topic, folder: Path, **options: str) -> Any:
    """Run a stream once with availableNow into Parquet. Return the finished query."""
    reader = spark.readStream.format("keyrange").option("bootstrap", front.bootstrap).option("topic", topic.name)
    writer = reader.options(**options).load().writeStream.format("parquet").trigger(availableNow=True)
    query = writer.option("path", str(folder / "rows")).option("checkpointLocation", str(folder / "checkpoint")).start()
    assert query.awaitTermination(120)
    return query


def committed(front: Front, group: str, topic: Topic) -> dict[TopicPartition, int]:
    with BlockingClusterClient(read_options({"bootstrap": front.bootstrap, "topic": topic.name})) as cluster:
        return {place: state.offset for place, state in CommitsOfGroup(cluster, group).states().items()}


# Without a JVM


@pytest.fixture
def reader_of(views_front: Front, orders: Topic) -> Iterator[Reader]:
    """Makes readers of `orders` with some options, and stops them at the end."""
    readers: list[StreamReader] = []

    def make(**options: str) -> StreamReader:
        readers.append(
            StreamReader(read_options({"bootstrap": views_front.bootstrap, "topic": orders.name, **options}))
        )
        return readers[-1]

    yield make
    for reader in readers:
        reader.stop()


def rows_of(reader: BatchReader | StreamReader, partitions: Any) -> list[dict[str, Any]]:
    return [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]


def test_a_stream_goes_from_offset_to_offset(reader_of: Reader) -> None:
    reader = reader_of(keyRanges="3", columns="value", maxOffsetsPerTrigger="1000")
    start = reader.initialOffset()
    assert start == reader.initialOffset()
    assert reader.getDefaultReadLimit() == ReadMaxRows(1_000)
    middle = reader.latestOffset(start, ReadMaxRows(1_000))
    assert sum(decode_offsets(middle).values()) == 1_000
    end = reader.latestOffset(middle, ReadAllAvailable())
    assert end == reader.reportLatestOffset()
    values = [row["value"] for row in rows_of(reader, reader.partitions(start, middle))]
    values += [row["value"] for row in rows_of(reader, reader.partitions(middle, end))]
    assert sorted(map(int, values)) == list(range(3_000))
    assert reader.partitions(end, end) == []


def test_nothing_after_the_target_of_available_now_is_read(reader_of: Reader, raw: Raw, orders: Topic) -> None:
    reader = reader_of()
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    produce_keys(raw, orders, 100)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert sum(decode_offsets(end).values()) == 3_000


def test_a_replayed_batch_has_the_same_rows_with_other_ranges(reader_of: Reader, orders: Topic) -> None:
    offsets = {"v": 1, "t": {orders.name: {"0": 100, "1": 700}}}, {"v": 1, "t": {orders.name: {"0": 900, "1": 701}}}
    rows_by_replay = []
    for ranges in ("1", "4", "2"):
        reader = reader_of(keyRanges=ranges, columns="partition,offset")
        rows_by_replay.append(
            sorted((row["partition"], row["offset"]) for row in rows_of(reader, reader.partitions(*offsets)))
        )
    assert (
        rows_by_replay[0]
        == rows_by_replay[1]
        == rows_by_replay[2]
        == [(0, offset) for offset in range(100, 900)] + [(1, 700)]
    )


def test_the_group_that_mirrors_a_stream_has_its_processed_offsets(
    views_front: Front, reader_of: Reader, orders: Topic, fresh: Fresh
) -> None:
    group = fresh("group")
    reader = reader_of(mirrorGroup=group, maxOffsetsPerTrigger="1000")
    middle = reader.latestOffset(reader.initialOffset(), ReadMaxRows(1_000))
    assert set(committed(views_front, group, orders).values()) == {0}  # the batch is planned, and not done
    reader.latestOffset(middle, ReadMaxRows(1_000))
    assert committed(views_front, group, orders) == decode_offsets(middle)


@pytest.fixture
def recreated(reader_of: Reader, raw: Raw, orders: Topic) -> tuple[dict[str, Any], Topic]:
    """Offset of a stream that read 3,000 records, and the topic with 50 records that now has the same name."""
    reader = reader_of()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.stop()
    return end, recreate(raw, orders, 50)


def recreate(raw: Raw, topic: Topic, count: int, partitions: int = 2) -> Topic:
    raw.delete_topic(topic)
    other = raw.create_topic(topic.name, partitions)
    assert other.topic_id != topic.topic_id
    produce_keys(raw, other, count)
    return other


@pytest.mark.parametrize("count", [50, 4_000])
def test_a_topic_that_was_created_again_is_an_error(reader_of: Reader, raw: Raw, orders: Topic, count: int) -> None:
    reader = reader_of()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    new = recreate(raw, orders, count)
    ids = topic_id_text(orders.topic_id), topic_id_text(new.topic_id)
    text = rf"{orders.name} was deleted and created again.* id {ids[0]}, .* has id {ids[1]} now"
    with pytest.raises(TopicReplaced, match=text):
        reader.latestOffset(end, ReadAllAvailable())
    with pytest.raises(TopicReplaced, match=text):  # a batch that was planned and not written
        reader.partitions(reader.initialOffset(), end)


def test_a_topic_that_was_created_again_is_read_from_its_beginning_if_data_may_be_lost(
    reader_of: Reader, raw: Raw, recreated: tuple[dict[str, Any], Topic]
) -> None:
    end, _ = recreated
    reader = reader_of(failOnDataLoss="false", columns="value,topic_id", maxOffsetsPerTrigger="40")
    assert reader.partitions({"v": 2, "t": {}, "ids": {}}, end) == [], "those records are gone"
    for start in (end, {"v": 1, "t": end["t"]}):
        middle = reader.latestOffset(start, ReadMaxRows(40))
        rows = rows_of(reader, reader.partitions(start, middle))
        last = reader.latestOffset(middle, ReadAllAvailable())
        rows += rows_of(reader, reader.partitions(middle, last))
        assert sorted(int(row["value"]) for row in rows) == list(range(50))
        assert {row["topic_id"] for row in rows} == {topic_id_text(recreated[1].topic_id)}


def test_a_log_that_ends_before_the_offset_of_an_old_checkpoint_is_an_error(
    reader_of: Reader, recreated: tuple[dict[str, Any], Topic]
) -> None:
    old = {"v": 1, "t": recreated[0]["t"]}
    with pytest.raises(OffsetsLost, match=r"the log ends at offset 25, and offset 1500 was reached"):
        reader_of().latestOffset(old, ReadAllAvailable())


def test_offsets_in_options_can_be_tied_to_a_topic_id(
    views_front: Front, reader_of: Reader, raw: Raw, orders: Topic
) -> None:
    """Both by a stream that was never started, and by a backfill."""
    ids = json.dumps({orders.name: topic_id_text(orders.topic_id)})
    options = {"bootstrap": views_front.bootstrap, "topicIds": ids}
    hole = [{"topic": orders.name, "partition": 0, "first": 10, "last": 19}]
    starting = {"startingOffsets": json.dumps({orders.name: {"0": 1_000, "1": 1_000}}), "topicIds": ids}
    holes = {"offsetRanges": json.dumps(hole)}
    assert len(rows_of(*batch_of(options | holes))) == 10
    recreate(raw, orders, 50, partitions=1)
    with pytest.raises(TopicReplaced, match="deleted and created again"):
        reader_of(**starting).initialOffset()
    with pytest.raises(TopicReplaced, match="deleted and created again"):
        batch_of(options | holes)
    loses = options | {"failOnDataLoss": "false"}
    assert reader_of(failOnDataLoss="false", **starting).initialOffset()["t"] == {orders.name: {"0": 0}}
    assert rows_of(*batch_of(loses | holes)) == []


def batch_of(options: dict[str, str]) -> tuple[BatchReader, Any]:
    reader = BatchReader(read_options(options))
    return reader, reader.partitions()


def test_offsets_that_are_excepted_are_not_read(views_front: Front, orders: Topic) -> None:
    """Unless the topic has another id than that of the option."""
    hole = [{"topic": orders.name, "partition": 0, "first": 10, "last": 1_399}]
    options = {"bootstrap": views_front.bootstrap, "topic": orders.name, "exceptOffsets": json.dumps(hole)}
    for id_of, rows in ((orders.topic_id, 1_610), (bytes(range(16)), 3_000)):
        ids = json.dumps({orders.name: topic_id_text(id_of)})
        reader = StreamReader(read_options(options | {"topicIds": ids}))
        end = reader.reportLatestOffset()
        rows_read = rows_of(reader, reader.partitions({"v": 2, "t": {}, "ids": {}}, end))
        assert len(rows_read) == rows
        reader.stop()


def test_a_task_without_partition_reads_nothing(views_front: Front, orders: Topic) -> None:
    options = read_options({"bootstrap": views_front.bootstrap, "topic": orders.name})
    assert list(read_split(options, None)) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "latest"}, "Spark queries a Python source twice"),
        ({"endingOffsets": '{"orders": {"0": 1}}'}, "endingOffsets is for batch reads"),
    ],
)
def test_a_stream_refuses_what_would_lose_records(options: dict[str, str], text: str) -> None:
    with pytest.raises(BadOption, match=text):
        StreamReader(read_options({"bootstrap": "one", "topic": "orders", **options}))


def test_a_batch_read_has_no_progress_to_mirror() -> None:
    with pytest.raises(BadOption, match="mirrorGroup is for streams"):
        BatchReader(read_options({"bootstrap": "one", "topic": "orders", "mirrorGroup": "g"}))


# In Spark


def test_a_batch_has_every_record_once_with_its_range(spark: Any, views_front: Front, orders: Topic) -> None:
    read = frame(spark, views_front, orders, keyRanges="4", includeKeyHash="true")
    assert read.rdd.getNumPartitions() == 8
    rows = read.collect()
    assert sorted(int(row["value"]) for row in rows) == list(range(3_000))
    assert all((None if row["key"] is None else bytes(row["key"])) == key_of(int(row["value"])) for row in rows)
    assert all(row["range_id"] == row["key_hash"] * 4 >> 32 for row in rows)
    assert all(round(row["timestamp"].timestamp() * 1_000) == PRODUCED_MS + int(row["value"]) for row in rows)


def test_predicates_narrow_what_is_read(spark: Any, views_front: Front, orders: Topic) -> None:
    read = frame(spark, views_front, orders, keyRanges="4")
    one = read.where((read["key"] == bytearray(b"key-12")) & (read["partition"] == 0))
    assert sorted(int(row["value"]) for row in one.collect()) == list(range(12, 3_000, 100))
    assert one.rdd.getNumPartitions() == 1
    few = read.where((read["offset"] >= 10) & (read["offset"] < 20) & (read["partition"] == 1))
    assert few.count() == 10
    assert read.where(read["offset"] < 0).count() == 0


def test_a_stream_has_every_record_once_and_continues(
    spark: Any, views_front: Front, raw: Raw, orders: Topic, tmp_path: Path, fresh: Fresh
) -> None:
    group = fresh("group")
    mirrored = {"maxOffsetsPerTrigger": "2000", "mirrorGroup": group}
    first = stream(spark, views_front, orders, tmp_path, keyRanges="2", **mirrored)
    assert [progress["numInputRows"] for progress in first.recentProgress] == [2_000, 1_000]
    assert sum(committed(views_front, group, orders).values()) == 3_000  # the last batch as well
    produce_keys(raw, orders, 100)
    stream(spark, views_front, orders, tmp_path, keyRanges="3", **mirrored)
    assert sum(committed(views_front, group, orders).values()) == 3_100
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert rows.count() == rows.select("partition", "offset").distinct().count() == 3_100


def test_mistakes_are_reported_in_the_terms_of_users(spark: Any, views_front: Front, orders: Topic) -> None:
    with pytest.raises(Exception, match="did you mean 'keyRanges'"):
        frame(spark, views_front, orders, keyRange="2")
    reader = spark.read.format("keyrange").schema(StructType().add("key", "string"))
    with pytest.raises(Exception, match=r"leave .schema\(\) out"):
        reader.option("bootstrap", views_front.bootstrap).option("topic", orders.name).load().count()
