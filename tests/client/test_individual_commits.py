"""Records finished in any order."""

from __future__ import annotations

import pytest
import trio
from kafka_share_proxy.client.individual_commits import IndividualCommits
from kafka_share_proxy.client.polled_records import PartitionRecords, PolledRecords, open_chunk
from kafka_share_proxy.consumer.events import PositionFound
from kafka_share_proxy.consumer.fetch.positions import Positions
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.offsets.commit_text import CommitTextError

from tests.client.cluster import cluster
from tests.client.test_polled_records import A0, A1, batch, chunk
from tests.consumer.world import FakeKafka


def assigned() -> Positions:
    positions = Positions()
    positions.assign([A0, A1])
    for each in (A0, A1):
        positions.seek(each, 0)
    return positions


def parts(first: int, count: int) -> list[PartitionRecords]:
    return list(open_chunk(chunk(batch(first, count), first, first + count), read_committed=False))


def offsets(partition_records: list[PartitionRecords]) -> list[int]:
    return [record.offset for record in PolledRecords(partition_records)]


def test_records_done_in_any_order_are_committed_as_ranges() -> None:
    commits = IndividualCommits(assigned())
    assert offsets(commits.delivered(parts(0, 5))) == [0, 1, 2, 3, 4]
    assert commits.done(A0, 3)
    assert commits.to_commit() == {A0: OffsetAndMetadata(0, "ic/1;3-3")}
    for offset in (0, 1):
        assert commits.done(A0, offset)
    commit = commits.to_commit()
    assert commit == {A0: OffsetAndMetadata(2, "ic/1;3-3")}
    commits.committed(commit)
    assert commits.to_commit() == {}
    with pytest.raises(ValueError, match="done already"):
        commits.done(A0, 3)
    with pytest.raises(ValueError, match="was not delivered"):
        commits.done(A0, 9)


def test_records_in_committed_ranges_are_not_returned() -> None:
    positions = assigned()
    commits = IndividualCommits(positions)
    commits.on_position(PositionFound(partition=A0, committed=OffsetAndMetadata(2, "ic/1;3-3,6-7")))
    assert offsets(commits.delivered(parts(2, 7))) == [2, 4, 5, 8]
    for offset in (2, 4, 5, 8):
        commits.done(A0, offset)
    assert commits.to_commit() == {A0: OffsetAndMetadata(9, "ic/1;")}


def test_a_position_that_moves_begins_anew() -> None:
    positions = assigned()
    commits = IndividualCommits(positions)
    commits.delivered(parts(0, 5))
    positions.seek(A0, 2)
    assert offsets(commits.delivered(parts(2, 3))) == [2, 3, 4]
    commits.done(A0, 2)
    assert commits.to_commit() == {A0: OffsetAndMetadata(3, "ic/1;")}


def test_a_lost_partition_is_not_committed() -> None:
    positions = assigned()
    commits = IndividualCommits(positions)
    commits.delivered(parts(0, 5))
    positions.drop([A0])
    assert commits.done(A0, 1) is False
    assert commits.to_commit() == {}


def test_records_that_are_not_done_are_bounded() -> None:
    commits = IndividualCommits(assigned(), outstanding_max=3)
    assert commits.room(A0) == 3
    commits.delivered(parts(0, 2))
    assert commits.room(A0) == 1
    commits.done(A0, 1)
    assert commits.room(A0) == 2


def test_text_that_cannot_be_read_is_an_error_and_its_offset_counts() -> None:
    commits = IndividualCommits(assigned())
    with pytest.raises(CommitTextError):
        commits.on_position(PositionFound(partition=A0, committed=OffsetAndMetadata(2, "ic/1;9-3")))
    assert offsets(commits.delivered(parts(2, 2))) == [2, 3]


async def test_work_is_done_where_it_ends_without_an_error(autojump_clock: trio.testing.MockClock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 4)
    options = {"group": "g", "topics": ["a"], "auto_offset_reset": "earliest", "individual_commits": True}
    async with cluster(kafka) as brokers, brokers.consumer(**options) as consumer:
        records = (await consumer.poll(60)).records
        while len(records) < 4:
            records = (await consumer.poll(60)).records
        for number in (0, 2, 3):
            async with consumer.work(records[number]):
                await trio.sleep(1)
        with pytest.raises(KeyError):
            async with consumer.work(records[1]):
                raise KeyError
        await consumer.commit()
        assert kafka.committed == {A0: 1}
        assert consumer.done(records[1])
        await consumer.commit()
        assert kafka.committed == {A0: 4}


async def test_without_individual_commits_done_is_misuse(autojump_clock: trio.testing.MockClock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 1)
    options = {"partitions": [A0], "auto_offset_reset": "earliest"}
    async with cluster(kafka) as brokers, brokers.consumer(**options) as consumer:
        (record,) = (await consumer.poll(60)).records
        with pytest.raises(ConfigurationError, match="individual_commits=True"):
            consumer.done(record)
