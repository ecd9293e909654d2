"""Descriptions of transactions."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_an_open_transaction_shows_its_partitions() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.produce_in(await caller.transactional(), "t", "a")
        transactions = (
            await caller.query("DescribeTransactions", transactional_ids=["x", "none", ""])
        ).transaction_states
        assert (
            transactions[0].transaction_state,
            transactions[0].topics[0].topic,
            transactions[0].topics[0].partitions,
        ) == (
            "Ongoing",
            "t",
            [0],
        )
        assert [each.error_code for each in transactions] == [
            ErrorCode.NONE,
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            ErrorCode.INVALID_REQUEST,
        ]
