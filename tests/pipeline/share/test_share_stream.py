"""A share group read by Spark: written, then acknowledged, whatever is repeated (pipeline/README.md rules 42 to 49)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.pipeline.share import share_job
from kafka_share_proxy.pipeline.share.share_locks import count_offsets
from kafka_share_proxy.pipeline.share.share_member import ShareMember
from kafka_share_proxy.pipeline.share.share_options import read_share_options
from kafka_share_proxy.pipeline.share.share_stream import ShareStream
from kafka_share_proxy.pipeline.source.options import BadOption
from kafka_share_proxy.pipeline.tables.lake import Lake

from tests.pipeline.conftest import produce_keys
from tests.support.raw import Raw, Topic

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture
def group(share_front: Front, fresh: Callable[[str], str]) -> str:
    """Return a group that begins at the first record and whose locks last for a second."""
    name = fresh("group")
    with Raw(share_front.bootstrap) as raw:
        raw.configure_group(name, {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000"})
    return name


@pytest.fixture
def options(share_front: Front, orders: Topic, group: str) -> dict[str, str]:
    return {"bootstrap": share_front.bootstrap, "topic": orders.name, "group": group, "maxOffsetsPerTrigger": "2000"}


def deliverable(options: dict[str, str]) -> int:
    """Acquire as another member. Return the number of offsets."""
    with ShareMember(read_share_options(options), print) as member:
        return count_offsets(each.span for each in member.fetch(10_000, 0.5).acquired)


class SlowTable:
    """Takes the place of `Lake.overwrite`: fails at first, then takes a lock and a half at least for each batch."""

    def __init__(self, lake: type[Lake]) -> None:
        self._overwrite = lake.overwrite
        self.has_failed = False

    def __call__(self, *arguments: Any) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise ValueError("no room")
        time.sleep(1.5)
        self._overwrite(*arguments)


def run(spark: Any, options: dict[str, str], folder: Path) -> tuple[Any, list[str]]:
    lines: list[str] = []
    lake, checkpoint = str(folder / "lake"), str(folder / "checkpoint")
    return share_job.run(spark, options, lake, checkpoint, lines.append, once=True), lines


def test_despite_failures_and_repetitions_each_record_is_written_once_and_then_acknowledged(
    spark: Any, options: dict[str, str], raw: Raw, orders: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = SlowTable(Lake)
    monkeypatch.setattr(Lake, "overwrite", lambda *arguments: table(*arguments))
    with pytest.raises(Exception, match="no room"):
        run(spark, options, tmp_path)
    assert table.has_failed
    assert deliverable(options) == 3_000
    (done, totals), lines = run(spark, options, tmp_path)  # repeats the batch, which is then delivered again
    assert done.rows == 3_000
    assert totals.redelivered == totals.refused > 0
    assert totals.acknowledged + totals.redelivered == 3_000
    assert ", lag 0; so far" in lines[-1]
    assert not lines[-1].endswith(" 0 renewals")
    assert deliverable(options) == 0
    forget_commit(tmp_path / "checkpoint" / "commits")
    produce_keys(raw, orders, 50)
    (done, totals), _ = run(spark, options, tmp_path)
    assert totals.acknowledged == 50
    rows = Lake(spark, str(tmp_path / "lake")).read("share_records")
    assert rows.count() == rows.select("partition", "offset").distinct().count() == 3_050
    assert sorted({int(row["value"]) for row in rows.select("value").collect()}) == list(range(3_000))


def test_a_batch_of_a_topic_that_was_created_again_is_an_error_or_left_out(
    spark: Any, options: dict[str, str], raw: Raw, orders: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch was acquired and not written; the new topic is delivered from its beginning."""

    def fail(*_: Any) -> None:
        raise ValueError("no room")

    with monkeypatch.context() as broken:
        broken.setattr(Lake, "overwrite", fail)
        with pytest.raises(Exception, match="no room"):
            run(spark, options, tmp_path)
    raw.delete_topic(orders)
    produce_keys(raw, raw.create_topic(orders.name, 2), 50)
    with pytest.raises(Exception, match=f"{orders.name} was deleted and created again"):
        run(spark, options, tmp_path)
    (done, totals), _ = run(spark, options | {"failOnDataLoss": "false"}, tmp_path)
    assert (done.rows, totals.acknowledged) == (50, 50)


def forget_commit(commits: Path) -> None:
    """Delete Spark's last commit, as after a crash between acknowledging a batch and Spark's note that it is done."""
    last = max(int(each.name) for each in commits.glob("[0-9]*"))
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink()


def test_mistakes_are_reported_in_the_terms_of_users(spark: Any, options: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(Exception, match="did you mean 'group'"):
        spark.readStream.format("sharegroup").options(**options, grup="x").load()
    ShareStream(spark, options, str(tmp_path))
    with pytest.raises(BadOption, match=f"is that of group {options['group']} and topic"):
        ShareStream(spark, options | {"group": "other"}, str(tmp_path))
