"""Transactional producers."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.transactions import (
    LAST_EPOCH,
    ProducerIdentity,
    TransactionState,
    offsets_partition,
)
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.target_caller import Caller, advance, running_cluster


async def test_a_transaction_is_aborted_after_its_timeout() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        producer = await caller.transactional()
        await caller.produce_in(producer, "t", "a")
        await advance(cluster, 59)
        assert cluster.transactions.producers["x"].state is TransactionState.ONGOING
        await advance(cluster, 1)
        state = cluster.transactions.producers["x"]
        assert (state.state, state.epoch) == (TransactionState.COMPLETE_ABORT, producer[1] + 1)
        assert (await caller.end(producer)).error_code == ErrorCode.INVALID_TXN_STATE
        assert cluster.partition("t", 0).log.end == 2


async def test_a_new_producer_aborts_the_open_transaction_first() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        producer = await caller.transactional()
        await caller.produce_in(producer, "t", "a")
        first = cluster.transactions.begin_producer("x", 1000, None)
        second = cluster.transactions.begin_producer("x", 1000, None)
        assert first == ErrorCode.CONCURRENT_TRANSACTIONS
        assert second == ProducerIdentity(producer[0], producer[1] + 2)


async def test_a_producer_id_is_replaced_when_its_epochs_are_used_up() -> None:
    async with running_cluster() as cluster:
        await Caller(cluster).transactional()
        state = cluster.transactions.producers["x"]
        state.epoch = LAST_EPOCH
        identity = ProducerIdentity(state.producer_id, LAST_EPOCH)
        cluster.transactions.add("x", identity, [TopicPartition("t", 0)])
        ended = cluster.transactions.end("x", identity, commits=True, bumps=True)
        assert ended == ProducerIdentity(identity.producer_id + 1, 0)
        assert cluster.transactions.end("x", identity, commits=True, bumps=True) == ended


async def test_a_retry_after_an_error_keeps_the_epoch() -> None:
    async with running_cluster() as cluster:
        producer = ProducerIdentity(*await Caller(cluster).transactional())
        producers = [cluster.transactions.begin_producer("x", 1000, producer) for _ in range(2)]
        assert producers == [ProducerIdentity(producer.producer_id, producer.epoch + 1)] * 2
        other = ProducerIdentity(producer.producer_id, producer.epoch + 9)
        assert cluster.transactions.begin_producer("x", 1000, other) == ErrorCode.PRODUCER_FENCED
        assert cluster.transactions.verify("x", producer, offsets_partition("g")) == ErrorCode.PRODUCER_FENCED
