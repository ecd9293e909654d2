"""Start offsets set by an administrator."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, batch, running_cluster


async def alter(caller: Caller, topic: str, offset: int) -> tuple[int, list[int]]:
    topics = [{"topic_name": topic, "partitions": [{"partition_index": 0, "start_offset": offset}]}]
    response = await caller.query("AlterShareGroupOffsets", group_id="g", topics=topics)
    return response.error_code, [each.error_code for entry in response.responses for each in entry.partitions]


async def test_a_group_begins_where_it_was_set() -> None:
    async with running_cluster() as cluster:
        topic_id = cluster.create_topic("t").topic_id
        caller = Caller(cluster)
        await caller.produce("t", batch("a", "b", "c"))
        assert await alter(caller, "t", 1) == (0, [0])
        assert await alter(caller, "none", 1) == (0, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
        acquired_spans = (await caller.share_fetch("g", topic_id, 0)).responses[0].partitions[0].acquired_records
        assert [(each.first_offset, each.last_offset) for each in acquired_spans] == [(1, 2)]
        await caller.query(
            "ShareGroupHeartbeat", group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
        )
        assert await alter(caller, "t", 1) == (ErrorCode.NON_EMPTY_GROUP, [])
