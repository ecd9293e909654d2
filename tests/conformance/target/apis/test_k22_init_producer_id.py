"""Producer ids and epochs."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_each_call_fences_the_producers_before() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        first, second = await caller.transactional(), await caller.transactional()
        assert (second[0], second[1]) == (first[0], first[1] + 1)
        assert await caller.produce_in(first, "t", "a") == ErrorCode.INVALID_PRODUCER_EPOCH
        stale = {"producer_id": first[0], "producer_epoch": first[1] - 1}
        codes = [
            (
                await caller.query("InitProducerId", each, transactional_id="x", transaction_timeout_ms=1, **stale)
            ).error_code
            for each in (3, 4)
        ]
        assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]


async def test_ids_without_a_transactional_id_are_new() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        producers = [await caller.query("InitProducerId", transactional_id=None) for _ in range(2)]
        assert [(each.producer_id, each.producer_epoch) for each in producers] == [(0, 0), (1, 0)]


async def test_an_invalid_timeout_is_refused() -> None:
    async with running_cluster() as cluster:
        response = await Caller(cluster).query("InitProducerId", transactional_id="x", transaction_timeout_ms=900_001)
        assert response.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
