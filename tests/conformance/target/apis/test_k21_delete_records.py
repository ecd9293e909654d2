"""Deletion of records."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, batch, running_cluster


async def test_the_start_of_the_log_moves_forward_only() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        for _ in range(3):
            await caller.produce("t", batch("a"))
        results = []
        for offset in (2, 1, 4, -1):
            partitions = [{"partition_index": 0, "offset": offset}]
            response = await caller.query("DeleteRecords", topics=[{"name": "t", "partitions": partitions}])
            results.append(
                (response.topics[0].partitions[0].error_code, response.topics[0].partitions[0].low_watermark)
            )
        assert results == [(0, 2), (0, 2), (ErrorCode.OFFSET_OUT_OF_RANGE, -1), (0, 3)]
