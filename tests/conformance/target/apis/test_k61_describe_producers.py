"""Producers of a partition."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_open_transactions_show_their_first_offset() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        producer = await caller.transactional()
        await caller.produce_in(producer, "t", "a", "b")
        topics = [{"name": "t", "partition_indexes": [0, 9]}]
        partitions = (await caller.query("DescribeProducers", topics=topics)).topics[0].partitions
        state = partitions[0].active_producers[0]
        assert (state.producer_id, state.last_sequence, state.current_txn_start_offset) == (producer[0], 1, 0)
        assert partitions[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
