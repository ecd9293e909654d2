"""Deletion of the state of share groups."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, batch, running_cluster


async def test_state_is_deleted_once() -> None:
    async with running_cluster() as cluster:
        topic_id = cluster.create_topic("t").topic_id
        cluster.share.coordinator.add_group("g")
        caller = Caller(cluster)
        await caller.produce("t", batch("a"))
        await caller.share_fetch("g", topic_id, 0)
        codes = []
        for _ in range(2):
            response = await caller.query("DeleteShareGroupOffsets", group_id="g", topics=[{"topic_name": "t"}])
            codes.append(response.responses[0].error_code)
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        wrong = await caller.query("DeleteShareGroupOffsets", group_id="none", topics=[])
        assert wrong.error_code == ErrorCode.GROUP_ID_NOT_FOUND
