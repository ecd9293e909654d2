"""Claims on offsets for the table `records` (pipeline/README.md rules 53 to 56)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.pipeline.source.starting import KeptStart
from kafka_share_proxy.pipeline.tables.files import Files
from kafka_share_proxy.pipeline.tables.lake import Lake, LakeError
from kafka_share_proxy.pipeline.tables.record_claims import Claim, RecordClaims
from kafka_share_proxy.wire.topic_ids import topic_id_text
from kafka_share_proxy.wire.values import TopicPartition

ID, OTHER = bytes(range(16)), bytes(range(1, 17))
PLACES = [TopicPartition("orders", number) for number in range(3)]
CLAIM = Claim("s", "cp", "claim.json", {"orders": ID}, {PLACES[0]: 7, PLACES[1]: 9}, True)


def test_a_claim_is_of_the_offsets_from_the_start_of_a_stream_on() -> None:
    assert [CLAIM.start(place, ID) for place in PLACES] == [7, 9, 0], "one is a partition that was added later"
    assert CLAIM._replace(is_whole=False).start(PLACES[2], ID) is None
    assert CLAIM.start(TopicPartition("other", 0), ID) is None


def test_another_topic_of_the_same_name_is_not_claimed_unless_the_stream_continued_with_it() -> None:
    assert CLAIM.start(PLACES[0], OTHER) is None
    assert CLAIM._replace(ids_now={"orders": OTHER}).start(PLACES[0], OTHER) == 0
    assert CLAIM.start(PLACES[0], None) == 7, "tokens of earlier releases"
    assert CLAIM._replace(ids={}).start(PLACES[0], OTHER) == 7, "a stream of earlier releases"


@pytest.mark.slow
def test_a_stream_that_died_while_it_claimed_claims_again(spark: Any, tmp_path: Path) -> None:
    """A table of an earlier release has no topic ids; the stream's own rows are no reason to leave offsets out."""
    lake = Lake(spark, str(tmp_path / "lake"))
    old = [("orders", 0, offset, "d", batch) for offset, batch in ((5, "x-0"), (6, "x-0"), (9, "mine-0"), (12, "x-1"))]
    lake.overwrite(
        spark.createDataFrame(old, "topic string, partition int, offset bigint, day string, batch string"),
        "records", ["day", "batch"],
    )  # fmt: skip
    start = KeptStart("mine", "orders", '{"orders": {"0": 6}}', json.dumps({"orders": topic_id_text(ID)}))
    claims, path = RecordClaims(spark, lake), tmp_path / "lake" / "records" / "_streams" / "mine.json"
    ranges = [{"topic": "orders", "partition": 0, "first": each, "last": each} for each in (6, 12)]
    assert claims.excepted(start, "cp", is_whole=True) == ranges
    document = json.loads(path.read_text())
    unclaimed_document = {name: value for name, value in document.items() if name != "except"}
    Files(spark).write(str(path), json.dumps(unclaimed_document))
    assert claims.excepted(start, "cp", is_whole=True) == ranges
    with claims.backfilling("one"):
        assert claims.excepted(start, "cp", is_whole=True) == ranges, "this is no first start"
        with pytest.raises(LakeError, match="a backfill loads into"):
            claims.excepted(
                start._replace(stream_id="other", topic="b", offsets='{"b": {"0": 0}}'), "cp", is_whole=True
            )
    assert [claim.stream_id for claim in claims.claims()] == ["mine"]


@pytest.mark.slow
def test_one_backfill_at_a_time_loads_into_a_table(spark: Any, tmp_path: Path) -> None:
    claims = RecordClaims(spark, Lake(spark, str(tmp_path)))
    with claims.backfilling("one"):
        with pytest.raises(LakeError, match=r"a backfill loads into .*_backfills/one\.json"), claims.backfilling("two"):
            pass
        with claims.backfilling("one"):  # again, after it was killed
            pass
    with claims.backfilling("two"):
        pass
