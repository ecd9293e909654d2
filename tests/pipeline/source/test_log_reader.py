"""Splits are read from real brokers and proxies (pipeline/README.md rules 9 to 13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient, ReadRefused
from kafka_share_proxy.pipeline.source.log_reader import LogReader, NotFiltered, OffsetsLost
from kafka_share_proxy.pipeline.source.options import read_options
from kafka_share_proxy.pipeline.source.split_planning import PlannedRead
from kafka_share_proxy.pipeline.source.splits import Split
from kafka_share_proxy.wire.records.records import Record

from tests.pipeline.conftest import key_of, produce_keys
from tests.support.raw import Raw, Topic

pytestmark = pytest.mark.broker
Fresh = Callable[[str], str]


def splits_of(bootstrap: str, topic: str, **options: str) -> tuple[Any, list[Split]]:
    read = read_options({"bootstrap": bootstrap, "topic": topic, "timeoutMs": "30000", **options})
    with BlockingClusterClient(read) as cluster:
        planned = PlannedRead(cluster, read)
        return read, planned.splits(planned.batch())


def records_of(bootstrap: str, topic: str, **options: str) -> dict[Split, list[Record]]:
    read, splits = splits_of(bootstrap, topic, **options)
    return {split: [r for piece in LogReader(read, split).records() for r in piece] for split in splits}


def numbers(read: dict[Split, list[Record]]) -> list[int]:
    """The values of all records, sorted."""
    return sorted(int(record.value or b"-1") for records in read.values() for record in records)


def test_every_record_is_in_one_range_and_keys_keep_their_order(views_front: Front, orders: Topic) -> None:
    read = records_of(views_front.bootstrap, orders.name, keyRanges="4", fetchBytes="4096")
    assert numbers(read) == list(range(3_000))
    homes: dict[tuple[int, bytes | None], set[int]] = {}
    for split, records in read.items():
        offsets = [record.offset for record in records]
        assert offsets == sorted(offsets)
        for record in records:
            assert record.key == key_of(int(record.value or b""))
            if record.key is not None:
                homes.setdefault((split.partition, record.key), set()).add(split.low)
    assert {len(lows) for lows in homes.values()} == {1}
    assert len({split.low for split, split_records in read.items() if split_records}) == 4


def test_pieces_by_offset_need_no_proxy(kafka_43: Cluster, orders: Topic) -> None:
    read = records_of(kafka_43.bootstrap, orders.name, offsetSplits="3")
    assert len(read) == 6
    assert numbers(read) == list(range(3_000))


def test_a_server_without_key_filters_is_refused(kafka_43: Cluster, orders: Topic) -> None:
    with pytest.raises(NotFiltered, match="kafka-share-proxy as bootstrap"):
        records_of(kafka_43.bootstrap, orders.name, keyRanges="2")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(views_front: Front, raw: Raw, fresh: Fresh, codec: str) -> None:
    topic = raw.create_topic(fresh(codec))
    produce_keys(raw, topic, 500, **{"compression.type": codec})
    assert numbers(records_of(views_front.bootstrap, topic.name, keyRanges="2")) == list(range(500))


@pytest.fixture
def transactions(raw: Raw, fresh: Fresh, kafka_43: Cluster) -> tuple[str, list[int]]:
    """Committed and aborted transactions in turn, the last aborted; and what was committed."""
    topic = raw.create_topic(fresh("transactions"))
    producer = Producer({"bootstrap.servers": kafka_43.bootstrap, "transactional.id": fresh("id")})
    producer.init_transactions(30)
    committed = []
    for number in range(12):
        producer.begin_transaction()
        for each in range(5):
            producer.produce(topic.name, b"%d" % (5 * number + each), b"key-%d" % each)
        if number % 3 == 0:
            producer.commit_transaction(30)
            committed += range(5 * number, 5 * number + 5)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
    return topic.name, committed


@pytest.mark.parametrize("ranges", ["1", "3"])
def test_aborted_transactions_and_markers_give_no_rows(
    views_front: Front, kafka_43: Cluster, transactions: tuple[str, list[int]], ranges: str
) -> None:
    name, committed = transactions
    assert numbers(records_of(views_front.bootstrap, name, keyRanges=ranges)) == committed
    everything = records_of(views_front.bootstrap, name, keyRanges=ranges, isolationLevel="read_uncommitted")
    assert numbers(everything) == list(range(60))


def test_offsets_that_hold_only_a_marker_are_passed(views_front: Front, transactions: tuple[str, list[int]]) -> None:
    name, _ = transactions
    only = f'[{{"topic": "{name}", "partition": 0, "first": 5, "last": 5}}]'
    read = read_options({"bootstrap": views_front.bootstrap, "offsetRanges": only})
    with BlockingClusterClient(read) as cluster:
        planned = PlannedRead(cluster, read)
        (split,) = planned.splits(planned.batch())
    assert list(LogReader(read, split).records()) == []


def test_lost_offsets_are_an_error_or_are_counted(views_front: Front, raw: Raw, orders: Topic) -> None:
    read, splits = splits_of(views_front.bootstrap, orders.name)
    deletion = {"partition_index": 0, "offset": 100}
    raw.send_request("DeleteRecords", 2, topics=[{"name": orders.name, "partitions": [deletion]}], timeout_ms=10_000)
    split = next(split for split in splits if split.partition == 0)
    with pytest.raises(OffsetsLost, match=r"100 offsets of .*-0 \[0, 100\) are lost; the log begins at 100"):
        list(LogReader(read, split).records())
    notes: list[str] = []
    read = read_options({"bootstrap": views_front.bootstrap, "topic": orders.name, "failOnDataLoss": "false"})
    offsets = [record.offset for piece in LogReader(read, split, notes.append).records() for record in piece]
    assert offsets == list(range(100, 1_500))
    assert len(notes) == 1
    assert "100 offsets" in notes[0]


def test_an_offset_after_the_end_is_an_error_immediately(views_front: Front, orders: Topic) -> None:
    read = read_options({"bootstrap": views_front.bootstrap, "topic": orders.name})
    split = splits_of(views_front.bootstrap, orders.name)[1][0]._replace(spans=((5_000, 5_010),))
    with pytest.raises(ReadRefused, match="after the end of the log"):
        list(LogReader(read, split).records())


def test_a_returned_proxy_is_used_again(views_front: Front, orders: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that break between two responses cost nothing: the position is kept."""
    read, splits = splits_of(views_front.bootstrap, orders.name, fetchBytes="2048")
    reader = LogReader(read, splits[0])
    offsets, breaks = [], 0
    for piece in reader.records():
        offsets += [record.offset for record in piece]
        if reader._in_flight is not None and breaks < 3:
            reader._in_flight._socket.shutdown(2)
            breaks += 1
    assert breaks == 3
    assert offsets == list(range(1_500))
