"""Lists of transactions."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_filters_by_state_duration_and_pattern() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.transactional("idle")
        await caller.produce_in(await caller.transactional(), "t", "a")

        async def names(**values: object) -> list[str]:
            response = await caller.query("ListTransactions", **values)
            return sorted(each.transactional_id for each in response.transaction_states)

        assert await names() == ["idle", "x"]
        assert await names(state_filters=["Ongoing", "Odd"]) == ["x"]
        assert await names(transactional_id_pattern="id.*") == ["idle"]
        assert (await caller.query("ListTransactions", state_filters=["Odd"])).unknown_state_filters == ["Odd"]
        wrong = await caller.query("ListTransactions", transactional_id_pattern="(")
        assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
