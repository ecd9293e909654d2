"""Partitions of a transaction."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_all_partitions_are_added_or_none() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        producer = await caller.transactional()
        error_codes = []
        for names in (["t", "none"], ["t"]):
            added = [{"name": each, "partitions": [0]} for each in names]
            response = await caller.query(
                "AddPartitionsToTxn", v3_and_below_transactional_id="x", v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1], v3_and_below_topics=added,
            )  # fmt: skip
            topics = response.results_by_topic_v3_and_below
            error_codes.append([each.results_by_partition[0].partition_error_code for each in topics])
        assert error_codes == [
            [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
            [ErrorCode.NONE],
        ]
        assert {each.topic for each in cluster.transactions.producers["x"].partitions} == {"t"}


async def test_views_are_not_written() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        producer_id, epoch = await caller.transactional()
        topics = [{"name": name, "partitions": [0]} for name in ("t", "__view.r2.t")]
        response = await caller.query(
            "AddPartitionsToTxn",
            3,
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )
        codes = [each.results_by_partition[0].partition_error_code for each in response.results_by_topic_v3_and_below]
        assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INVALID_TOPIC_EXCEPTION]
