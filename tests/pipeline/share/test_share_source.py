"""The data source `sharegroup`, as Spark calls it; without a JVM (pipeline/README.md rules 42, 44 and 47)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra [spark] is not installed")

from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.pipeline.share.handover import Handover
from kafka_share_proxy.pipeline.share.share_offsets import START, ShareOffset, encode_share_offset
from kafka_share_proxy.pipeline.share.share_options import read_share_options
from kafka_share_proxy.pipeline.share.share_source import ShareSource, ShareStreamReader
from kafka_share_proxy.pipeline.source.options import BadOption
from kafka_share_proxy.pipeline.source.splits import Split
from kafka_share_proxy.wire.values import TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

GIVEN = {"bootstrap": "proxy:9092", "topic": "orders", "group": "lake"}
PLACE = TopicPartition("orders", 0)
BATCH = ShareOffset(1, [(PLACE, OffsetSpan(5, 9)), (PLACE, OffsetSpan(20, 30))], {"orders": bytes(16)})
NOW = ReadAllAvailable()


class Acquirer:
    """Has one batch."""

    def __init__(self) -> None:
        self.reported: list[ShareOffset] = []

    def acquire(self, after: int) -> ShareOffset | None:
        return BATCH if after == 0 else None

    def planned(self, offset: ShareOffset) -> None:
        self.reported.append(offset)


@pytest.fixture
def acquirer() -> Any:
    return Acquirer()


@pytest.fixture
def reader(acquirer: Any) -> Iterator[ShareStreamReader]:
    with Handover(acquirer) as handover:
        stream_reader = ShareStreamReader(read_share_options(GIVEN | {"acquirer": handover.path}))
        yield stream_reader
        stream_reader.stop()


def test_a_batch_is_acquired_and_its_offsets_are_what_tasks_read(reader: ShareStreamReader, acquirer: Any) -> None:
    start = reader.initialOffset()
    assert start == reader.initialOffset() == encode_share_offset(START)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == encode_share_offset(BATCH)
    assert reader.latestOffset(end, NOW) == end
    (split,) = [Split(*each.value) for each in reader.partitions(start, end)]
    assert (split.topic, split.spans) == ("orders", ((5, 9), (20, 30)))
    assert acquirer.reported == [BATCH]
    assert reader.partitions(end, end) == []
    assert len(acquirer.reported) == 1


def test_available_now_ends_after_a_batch_of_later_records(reader: ShareStreamReader) -> None:
    end = encode_share_offset(BATCH._replace(seq=0))
    reader._target = {PLACE: 6}
    assert reader.latestOffset(end, NOW) == encode_share_offset(BATCH)
    reader._target = {PLACE: 5}
    assert reader.latestOffset(end, NOW) == end


def test_tasks_get_no_connection(reader: ShareStreamReader) -> None:
    reader.latestOffset(reader.initialOffset(), NOW)
    assert pickle.loads(pickle.dumps(reader))._handover is None


def test_a_query_without_a_share_stream_is_refused() -> None:
    with pytest.raises(BadOption, match=r"make it with kafka_share_proxy\.ShareStream"):
        ShareStreamReader(read_share_options(GIVEN))


def test_a_batch_read_is_refused() -> None:
    with pytest.raises(BadOption, match=r"sharegroup is for spark.readStream"):
        ShareSource(GIVEN).reader(StructType())
