"""ShareAcknowledge by the rules of share groups."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, advance, batch, running_cluster

ACCEPT, RELEASE, RENEW = 1, 2, 4


async def test_accepted_records_are_not_delivered_again_and_released_ones_are() -> None:
    async with running_cluster() as cluster:
        topic_id = cluster.create_topic("t").topic_id
        cluster.group_configs.store("g", {"share.auto.offset.reset": "earliest"})
        caller = Caller(cluster)
        await caller.produce("t", batch("a", "b"))
        await caller.share_fetch("g", topic_id, 0)
        await caller.share_acknowledge("g", topic_id, 1, 0, 0, ACCEPT)
        await caller.share_acknowledge("g", topic_id, 2, 1, 1, RELEASE)
        acquired_spans = (await caller.share_fetch("g", topic_id, 3)).responses[0].partitions[0].acquired_records
        assert [(each.first_offset, each.delivery_count) for each in acquired_spans] == [(1, 2)]


async def test_a_renewed_lock_lasts_and_an_expired_one_is_an_error() -> None:
    async with running_cluster() as cluster:
        topic_id = cluster.create_topic("t").topic_id
        cluster.group_configs.store("g", {"share.auto.offset.reset": "earliest"})
        caller = Caller(cluster)
        await caller.produce("t", batch("a"))
        await caller.share_fetch("g", topic_id, 0)
        codes = []
        for epoch, kind in ((1, RENEW), (2, RENEW), (3, ACCEPT)):
            await advance(cluster, 20 if epoch < 3 else 31)
            response = await caller.share_acknowledge("g", topic_id, epoch, 0, 0, kind)
            codes.append(response.responses[0].partitions[0].error_code)
        assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE]
