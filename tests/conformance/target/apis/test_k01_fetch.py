"""Fetch from the cluster in one process."""

from __future__ import annotations

import trio
import trio.testing
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, advance, batch, running_cluster, values


def request(session_id: int, epoch: int, *topics: str) -> messages.FetchRequest:
    message = messages.FetchRequest
    partition = message.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    fetch_topics = [message.FetchTopic(topic=each, partitions=[partition]) for each in topics]
    return message(session_id=session_id, session_epoch=epoch, topics=fetch_topics)


async def test_a_fetch_waits_for_records_until_its_deadline() -> None:
    async with running_cluster() as cluster, trio.open_nursery() as nursery:
        cluster.create_topic("t")
        caller = Caller(cluster)
        fetched: list[list[str]] = []

        async def fetch(max_wait_ms: int) -> None:
            fetched.append(values((await caller.fetch("t", 0, max_wait_ms=max_wait_ms)).records))

        nursery.start_soon(fetch, 1000)
        await trio.testing.wait_all_tasks_blocked()
        await advance(cluster, 0.9)
        assert fetched == []
        await advance(cluster, 0.1)
        assert fetched == [[]]
        nursery.start_soon(fetch, 1000)
        await trio.testing.wait_all_tasks_blocked()
        await caller.produce("t", batch("a"))
        await trio.testing.wait_all_tasks_blocked()
        assert fetched == [[], ["a"]]


async def test_a_session_returns_only_what_changed() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        cluster.create_topic("u")
        caller = Caller(cluster)
        first = await caller.get(request(0, 0, "t", "u"), 12)
        assert [each.topic for each in first.responses] == ["t", "u"]
        assert (await caller.get(request(first.session_id, 1), 12)).responses == []
        await caller.produce("u", batch("a"))
        assert [each.topic for each in (await caller.get(request(first.session_id, 2), 12)).responses] == ["u"]
        wrong = await caller.get(request(first.session_id, 2), 12)
        unknown = await caller.get(request(first.session_id + 1, 1), 12)
        assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_read_committed_ends_at_open_transactions_and_names_aborted_ones() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        producer = await caller.transactional()
        await caller.produce_in(producer, "t", "a")
        await caller.produce("t", batch("plain"))
        assert values((await caller.fetch("t", 0, isolation=1)).records) == []
        assert values((await caller.fetch("t", 0)).records) == ["a", "plain"]
        await caller.end(producer, commits=False)
        fetched = await caller.fetch("t", 0, isolation=1)
        assert values(fetched.records) == ["a", "plain"]
        assert [(each.producer_id, each.first_offset) for each in fetched.aborted_transactions or ()] == [
            (producer[0], 0)
        ]


async def test_a_client_with_another_log_is_shown_where_they_diverge() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        for _ in range(3):
            await caller.produce("t", batch("a"))
        cluster.truncate_log("t", 0, 1)
        message = request(0, -1, "t")
        message.topics[0].partitions[0].fetch_offset, message.topics[0].partitions[0].last_fetched_epoch = 3, 0
        partition = (await caller.get(message, 12)).responses[0].partitions[0]
        assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (0, 1)


async def test_wrong_epochs_offsets_and_topic_ids_have_their_codes() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        cluster.bump_leader_epoch("t", 0)
        codes = []
        for offset, epoch in ((0, 0), (0, 2), (1, -1)):
            message = request(0, -1, "t")
            message.topics[0].partitions[0].fetch_offset = offset
            message.topics[0].partitions[0].current_leader_epoch = epoch
            codes.append((await Caller(cluster).get(message, 12)).responses[0].partitions[0].error_code)
        assert codes == [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_OUT_OF_RANGE]
        message = request(0, -1, "")
        message.topics[0].topic_id = bytes(15) + b"1"
        unknown = (await Caller(cluster).get(message, 17)).responses[0].partitions[0]
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
