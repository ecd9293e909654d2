"""Offsets of a group in a transaction."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_a_wrong_epoch_is_fenced() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        producer = await caller.transactional()
        codes = []
        for version, epoch in ((4, producer[1]), (4, producer[1] + 1), (1, producer[1] + 1)):
            values = {"transactional_id": "x", "producer_id": producer[0], "producer_epoch": epoch, "group_id": "g"}
            codes.append((await caller.query("AddOffsetsToTxn", version, **values)).error_code)
        assert codes == [ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]
