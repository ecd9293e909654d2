"""Plans made from a topic, stored, and served (pipeline/README.md rules 23 to 25)."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.pipeline.plan import plan_job
from kafka_share_proxy.pipeline.plan.key_range_planner import NothingToPlan, make_plan, plan_text
from kafka_share_proxy.pipeline.plan.plan_job import BLOCK_OFFSETS, key_name, sample_blocks
from kafka_share_proxy.pipeline.source.options import BadOption
from kafka_share_proxy.pipeline.tables.lake import Lake
from kafka_share_proxy.views.model.plans import read
from kafka_share_proxy.views.model.slots import RangeCut
from kafka_share_proxy.wire.records.key_hash import murmur2
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.raw import Raw, Topic

Fresh = Callable[[str], str]
PLACE = TopicPartition("orders", 0)
RECORDS = 20_000


def test_a_sample_is_blocks_all_over_the_partition() -> None:
    span = OffsetSpan(1_000, 101_000)
    blocks = [block for _, block in sample_blocks([(PLACE, span)], 0.05)]
    assert sum(block.end - block.start for block in blocks) == 5_000
    assert {block.end - block.start for block in blocks} == {BLOCK_OFFSETS}
    assert blocks[0].start == 1_000
    assert blocks[-1].start == 91_000
    assert sample_blocks([(PLACE, span)], 1) == [(PLACE, span)]
    assert sample_blocks([(PLACE, OffsetSpan(0, 7))], 0.01) == [(PLACE, (0, 7))]
    with pytest.raises(BadOption, match="write a share above 0"):
        sample_blocks([(PLACE, span)], 1.5)


def test_a_plan_from_too_few_samples_says_so_and_how_to_get_more() -> None:
    weights = dict.fromkeys(range(4096), 10.0)
    few, many = (make_plan(weights, 8, 4096, dict.fromkeys(weights, 10.0 * each)) for each in (400, 4))
    reported = [
        "\n".join(
            plan_job.report_lines(plan_job.PlannedTopic("orders", plan, {"weight": "rows", "rows": 40_960, "keys": 9}))
        )
        for plan in (few, many)
    ]
    assert "orders: 8 ranges from 40,960 records, of which 9 keys were sampled, weight rows" in reported[0]
    assert re.search(r"at most 1\.8\d+ x the mean at 95% \(estimate 1\.000\)", reported[0])
    assert re.search(r"too few samples .* about \d+ times as many .* audit\.key_samples_per_s", reported[0])
    assert "too few" not in reported[1]


def test_a_key_is_shown_as_text_where_it_is_some() -> None:
    assert key_name(b"alice") == f"alice (hash {murmur2(b'alice')})"
    assert key_name(b"\xff\x00").startswith("0xff00 (hash ")
    assert key_name(b"").startswith("0x (hash ")


@pytest.fixture
def keys() -> list[bytes]:
    """Return keys of a Zipf distribution, of which one has more records than a fair range of 16."""
    draw = random.Random(7)
    weights = [rank**-1.1 for rank in range(1, 2_001)]
    return [b"key-%d" % number for number in draw.choices(range(2_000), weights, k=RECORDS)]


@pytest.fixture
def skewed(raw: Raw, fresh: Fresh, keys: list[bytes]) -> Topic:
    topic = raw.create_topic(fresh("skewed"), 2)
    producer = Producer({"bootstrap.servers": str(raw.bootstrap[0]), "linger.ms": 5, "batch.num.messages": "250"})
    for number, key in enumerate(keys):
        producer.produce(topic.name, b"v" * (murmur2(key) % 50), key, partition=number % 2)
    assert producer.flush(60) == 0
    return topic


@pytest.mark.broker
@pytest.mark.slow
def test_a_plan_balances_what_is_in_the_topic(spark: Any, views_front: Front, skewed: Topic, keys: list[bytes]) -> None:
    options = {"bootstrap": views_front.bootstrap, "topic": skewed.name}
    planned = plan_job.plan_of_topic(spark, options, 16)
    cut = RangeCut(read("p", plan_text(planned.plan, planned.topic, planned.made_from)).starts)
    load = Counter(cut.slot_of(key, 0) for key in keys)
    assert max(load.values()) * 16 / RECORDS == pytest.approx(planned.plan.heaviest_to_mean, rel=1e-6)
    (hottest, times), *_ = Counter(keys).most_common(1)
    assert planned.plan.hot_keys[0] == (key_name(hottest), times / RECORDS)
    assert planned.made_from["rows"] == RECORDS
    assert any("no plan divides a key" in line for line in plan_job.report_lines(planned))

    by_bytes = plan_job.plan_of_topic(spark, options, 4, plan_job.BYTES)
    sizes = Counter({key: times * (len(key) + murmur2(key) % 50) for key, times in Counter(keys).items()})
    cut = RangeCut(by_bytes.plan.starts)
    shares = Counter[int]()
    for key, size in sizes.items():
        shares[cut.slot_of(key, 0)] += size
    assert max(shares.values()) * 4 / sum(shares.values()) == pytest.approx(by_bytes.plan.heaviest_to_mean, rel=1e-6)

    few = plan_job.plan_of_topic(spark, options, 4, share=0.2)
    assert few.made_from["rows"] == pytest.approx(RECORDS * 0.2, rel=0.05)
    cut = RangeCut(few.plan.starts)
    load = Counter(cut.slot_of(key, 0) for key in keys)
    assert max(load.values()) * 4 / RECORDS <= few.plan.at_most < 1.25
    assert planned.plan.at_most == planned.plan.heaviest_to_mean, "all keys were read"


def test_a_key_is_never_heavier_than_its_bucket() -> None:
    """The bucket bounds the bytes or held time estimated from few records of a key."""
    weights = {9: 11.0, 10: 14.0, 11: 75.0}
    first, second = (9 << 20) + 5, (10 << 20) + 1
    hot = [plan_job.HotHash(first, 0.14, "ann"), plan_job.HotHash(second, 0.13, None)]
    assert plan_job._named_hashes(hot, weights, 8) == ((f"hash {second}", 0.13),)
    assert plan_job._named_hashes(hot, weights | {9: 15.0}, 8)[0] == (f"ann (hash {first})", 0.14)


@pytest.mark.slow
def test_a_plan_is_made_from_what_the_audit_saw(spark: Any, tmp_path: Path) -> None:
    """Held for long: the keys of bucket 0; one hot key in bucket 9."""
    lake = Lake(spark, str(tmp_path))
    columns = "day string, topic string, bucket int, rows double, bytes double, hold_ms double, sampled double"
    columns += ", variance double"
    load = [("d1", "orders", bucket, 10.0, 10.0, 0.0 if bucket else 500.0, 1.0, 100.0) for bucket in range(4096)]
    load += [("d2", "orders", 9, 40_960.0, 0.0, 500.0, 4_096.0, 409_600.0)]
    load += [("d2", "orders", -1, 8_192.0, 7.0, 7.0, 0.0, 0.0)]
    lake.overwrite(spark.createDataFrame(load, columns), "key_range_load", ["day"])
    hot = [("d1", "orders", (9 << 20) + 5, "ann", 60.0, 100.0), ("d2", "orders", (9 << 20) + 5, None, 140.0, 300.0)]
    of_hot = "day string, topic string, hash bigint, key string, estimate double, rows double"
    lake.overwrite(spark.createDataFrame(hot, of_hot), "hot_keys", ["day"])
    rows = plan_job.plan_of_lake(lake, None, 4)
    made_from = {"weight": "rows", "days": ["d1", "d2"], "rows": 90_112, "unseen_rows": 8_192, "keys": 8_192}
    assert (rows.topic, rows.made_from) == ("orders", made_from)
    assert rows.plan.hot_keys == ((f"ann (hash {(9 << 20) + 5})", 0.5),)
    assert 2 * 10 / 11 + 4 / 11 < rows.plan.at_most < 2.06 * 10 / 11 + 4 / 11, "all that is unseen may be in one range"
    assert rows.plan.heaviest_to_mean == pytest.approx(2, rel=0.01)
    assert not any(start % (1 << 20) for start in rows.plan.starts)
    held = plan_job.plan_of_lake(lake, "orders", 2, plan_job.HOLD)
    assert held.plan.weights == pytest.approx((0.5, 0.5), abs=0.001)
    assert 1 << 20 <= held.plan.starts[1] <= 9 << 20
    lake.overwrite(spark.createDataFrame(load, columns).drop("variance"), "key_range_load", ["day"])
    with pytest.raises(NothingToPlan, match="run pipeline audit again"):
        plan_job.plan_of_lake(lake, "orders", 2)
    with pytest.raises(NothingToPlan, match="no load of payments"):
        plan_job.plan_of_lake(lake, "payments", 2)
    with pytest.raises(BadOption, match="one of rows, bytes, hold"):
        plan_job.plan_of_lake(lake, None, 2, "colour")


@pytest.mark.broker
def test_missing_information_of_a_topic_is_reported(views_front: Front, raw: Raw, fresh: Fresh) -> None:
    empty = raw.create_topic(fresh("empty"))
    options = {"bootstrap": views_front.bootstrap, "topic": empty.name}
    with pytest.raises(BadOption, match="is in the audit tables"):
        plan_job.plan_of_topic(None, options, 4, plan_job.HOLD)
    with pytest.raises(NothingToPlan, match="has no records"):
        plan_job.plan_of_topic(None, options, 4)
    with pytest.raises(BadOption, match="a plan is for one topic"):
        plan_job.plan_of_topic(None, options | {"topic": "a,b"}, 4)
