"""ShareFetch: sessions, locks and waiting."""

from __future__ import annotations

import trio
import trio.testing
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, advance, batch, running_cluster

EARLIEST = {"share.auto.offset.reset": "earliest"}


def acquired(response: object) -> list[tuple[int, int, int]]:
    partitions = [each for topic in response.responses for each in topic.partitions]  # type: ignore[attr-defined]
    return [(a.first_offset, a.last_offset, a.delivery_count) for each in partitions for a in each.acquired_records]


async def test_a_lock_expires_when_the_clock_is_advanced() -> None:
    async with running_cluster() as cluster:
        topic_id = cluster.create_topic("t").topic_id
        cluster.group_configs.store("g", EARLIEST)
        caller = Caller(cluster)
        await caller.produce("t", batch("a", "b"))
        assert acquired(await caller.share_fetch("g", topic_id, 0)) == [(0, 1, 1)]
        await advance(cluster, 29)
        assert acquired(await caller.share_fetch("g", topic_id, 1)) == []
        await advance(cluster, 1)
        assert acquired(await caller.share_fetch("g", topic_id, 2)) == [(0, 1, 2)]


async def test_a_fetch_waits_for_records_that_are_released() -> None:
    async with running_cluster() as cluster, trio.open_nursery() as nursery:
        topic_id = cluster.create_topic("t").topic_id
        cluster.group_configs.store("g", EARLIEST)
        one, two = Caller(cluster), Caller(cluster, number=2)
        await one.produce("t", batch("a"))
        await one.share_fetch("g", topic_id, 0)
        acquired_spans = []

        async def fetch() -> None:
            acquired_spans.extend(
                acquired(await two.share_fetch("g", topic_id, 0, member_id="other", max_wait_ms=5000))
            )

        nursery.start_soon(fetch)
        await trio.testing.wait_all_tasks_blocked()
        assert acquired_spans == []
        one.close()
        await trio.testing.wait_all_tasks_blocked()
        assert acquired_spans == [(0, 0, 2)]


async def test_wrong_epochs_and_renewals_are_refused() -> None:
    async with running_cluster() as cluster:
        topic_id = cluster.create_topic("t").topic_id
        caller = Caller(cluster)
        codes = [
            (await caller.share_fetch("g", topic_id, 1)).error_code,
            (await caller.share_fetch("g", topic_id, 0)).error_code,
            (await caller.share_fetch("g", topic_id, 2)).error_code,
            (await caller.share_fetch("g", topic_id, 1, is_renew_ack=True)).error_code,
            (await caller.share_fetch("g", topic_id, 1, member_id="")).error_code,
        ]
        assert codes == [
            ErrorCode.SHARE_SESSION_NOT_FOUND, 0, ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
        ]  # fmt: skip


async def test_locks_end_when_the_leader_moves() -> None:
    async with running_cluster(2) as cluster:
        topic = cluster.create_topic("t", replication=2)
        cluster.group_configs.store("g", EARLIEST)
        leader = topic.partitions[0].leader
        await Caller(cluster, leader).produce("t", batch("a"))
        await Caller(cluster, leader).share_fetch("g", topic.topic_id, 0)
        cluster.move_leader("t", 0, 3 - leader)
        old = await Caller(cluster, leader).share_fetch("g", topic.topic_id, 1)
        partition = old.responses[0].partitions[0]
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.current_leader.leader_id == 3 - leader
        new = Caller(cluster, 3 - leader, number=2)
        assert acquired(await new.share_fetch("g", topic.topic_id, 0)) == [(0, 0, 2)]
