"""Ends of transactions, with an epoch for each from version 5 on."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_from_version_5_the_next_transaction_has_another_epoch() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        producer = await caller.transactional()
        await caller.produce_in(producer, "t", "a")
        ended, repeated = await caller.end(producer), await caller.end(producer)
        assert (ended.producer_id, ended.producer_epoch) == (producer[0], producer[1] + 1)
        assert (repeated.error_code, repeated.producer_epoch) == (0, producer[1] + 1)
        assert (await caller.end(producer, commits=False)).error_code == ErrorCode.INVALID_TXN_STATE


async def test_before_version_5_the_epoch_stays() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        producer = await caller.transactional()
        await caller.produce_in(producer, "t", "a")
        codes = [(await caller.end(producer, commits=each, version=4)).error_code for each in (True, True, False)]
        assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE]
        assert await caller.produce_in(producer, "t", "b", sequence=1) == ErrorCode.NONE
