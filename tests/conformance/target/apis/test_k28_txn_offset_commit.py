"""Offsets that are committed with a transaction."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_offsets_of_an_aborted_transaction_are_dropped() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.commit("g", "t", 1)
        producer = await caller.transactional()
        values = {"transactional_id": "x", "producer_id": producer[0], "producer_epoch": producer[1], "group_id": "g"}
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 7}]}]
        codes = [
            (await caller.query("TxnOffsetCommit", each, topics=topics, **values)).topics[0].partitions[0].error_code
            for each in (3, 5)
        ]
        assert codes == [ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE]
        await caller.end(producer, commits=False)
        assert await caller.committed("g", "t") == (0, 1)
