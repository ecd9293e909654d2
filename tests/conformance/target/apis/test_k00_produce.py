"""Produce to the cluster in one process."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target.interfaces import ConnectionEnds
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.blocking_connection import build
from tests.support.target_caller import Caller, batch, running_cluster


async def test_a_batch_gets_the_next_offset_and_a_repeated_one_its_first_offset() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        data = batch("a", "b", producer_id=7, producer_epoch=0, base_sequence=0)
        assert [(await caller.produce("t", data)).base_offset for _ in range(2)] == [0, 0]
        assert (await caller.produce("t", batch("c"))).base_offset == 2


async def test_without_acks_there_is_no_response() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        data = {"name": "t", "partition_data": [{"index": 0, "records": batch("a")}]}
        assert await Caller(cluster).send(build("ProduceRequest", acks=0, topic_data=[data]), 9) is None
        assert cluster.partition("t", 0).log.end == 1


async def test_a_refusal_without_acks_ends_the_connection() -> None:
    async with running_cluster() as cluster:
        data = {"name": "none", "partition_data": [{"index": 0, "records": batch("a")}]}
        with pytest.raises(ConnectionEnds):
            await Caller(cluster).send(build("ProduceRequest", acks=0, topic_data=[data]), 9)


async def test_gaps_old_epochs_and_wrong_checksums_are_refused() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.produce("t", batch("a", producer_id=7, producer_epoch=3, base_sequence=0))
        gap = batch("b", producer_id=7, producer_epoch=3, base_sequence=2)
        old = batch("b", producer_id=7, producer_epoch=2, base_sequence=1)
        broken = batch("b")[:-1] + b"?"
        codes = [(await caller.produce("t", each)).error_code for each in (gap, old, broken)]
        assert codes == [
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.CORRUPT_MESSAGE,
        ]


async def test_another_node_names_the_leader() -> None:
    async with running_cluster(2) as cluster:
        partition = cluster.create_topic("t", replication=2).partitions[0]
        response = await Caller(cluster, 3 - partition.leader).produce("t", batch("a"))
        assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (response.current_leader.leader_id, response.current_leader.leader_epoch) == (partition.leader, 0)


async def test_transactional_records_need_a_transaction() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        producer = await caller.transactional()
        header = {
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "base_sequence": 0,
            "is_transactional": True,
        }
        data = batch("a", **header)
        codes = [
            (await caller.produce("t", data, transactional_id="x", version=each)).error_code for each in (10, 11, 12)
        ]
        assert codes == [ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NONE]


async def test_too_few_replicas_in_sync_are_refused() -> None:
    async with running_cluster(2) as cluster:
        partition = cluster.create_topic("t", replication=2, configs={"min.insync.replicas": "2"}).partitions[0]
        cluster.take_node_down(3 - partition.leader)
        caller = Caller(cluster, partition.leader)
        assert (await caller.produce("t", batch("a"))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await caller.produce("t", batch("a"), acks=1)).error_code == ErrorCode.NONE
