"""The calls of a share consumer, with a scripted group: what they do, what they refuse, what a cancellation leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from kafka_share_proxy.client.network_task import WokenUp
from kafka_share_proxy.client.share_consumer import ShareConsumer
from kafka_share_proxy.client.share_records import ShareRecord
from kafka_share_proxy.consumer.events import ConsumerError
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.consumer.requests import FailureKind, RequestFailure
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_holds import AcknowledgementResult, LockLostError
from kafka_share_proxy.consumer.share.share_membership import ShareMemberState
from kafka_share_proxy.loop.boot_clock import SuspensionClock
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.share_cluster import share_cluster
from tests.consumer.share_world import ShareKafka

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
Clock = trio.testing.MockClock
ACCEPT, RELEASE, REJECT, RENEW = (AcknowledgeType(n) for n in (1, 2, 3, 4))


def kafka_with(records: int, partitions: int = 1, lock_s: float = 30.0) -> ShareKafka:
    kafka = ShareKafka(a=partitions)
    kafka.share.lock_s = lock_s
    for number in range(partitions):
        kafka.produce(TopicPartition("a", number), records)
    return kafka


def settled(kafka: ShareKafka, partition: TopicPartition = A0) -> set[int]:
    return kafka.share.share(partition).settled


# Polls and acknowledgements


async def test_records_are_settled_as_the_application_says(autojump_clock: Clock) -> None:
    kafka = kafka_with(3)
    results: list[AcknowledgementResult] = []
    async with share_cluster(kafka) as brokers, brokers.consumer(on_acknowledged=results.append) as consumer:
        assert consumer.acquisition_lock_timeout_ms is None
        one, two, three = await consumer.poll()
        assert (consumer.acquisition_lock_timeout_ms, consumer.assignment) == (30_000, {A0})
        assert (one.value, two.offset, three.delivery_count) == (b"0", 1, 1)
        for record, kind in ((one, ACCEPT), (two, RELEASE), (three, REJECT)):
            assert consumer.acknowledge(record, kind) is True
        assert results == []
        assert await consumer.commit() == {A0: None}
        assert [dict(result.types) for result in results] == [{0: ACCEPT, 1: RELEASE, 2: REJECT}]
        (again,) = await consumer.poll()
        assert (again.offset, again.delivery_count) == (1, 2)
        with pytest.raises(ValueError, match="is not held"):
            consumer.acknowledge(one)
        consumer.acknowledge(again)
        consumer.commit_nowait()
        await trio.sleep(1)
        assert settled(kafka) == {0, 1, 2}
        assert await consumer.poll(0) == []
        assert len(results) == 2
        assert await consumer.commit() == {}


async def test_the_implicit_mode_accepts_with_the_next_poll_and_with_a_commit(autojump_clock: Clock) -> None:
    kafka = kafka_with(3)
    async with share_cluster(kafka) as brokers, brokers.consumer(acknowledgement_mode="implicit") as consumer:
        assert len(await consumer.poll()) == 3
        assert await consumer.poll(1) == []
        assert settled(kafka) == {0, 1, 2}
        kafka.produce(A0, 2)
        (record, _) = await consumer.poll()
        assert await consumer.commit() == {A0: None}
        assert settled(kafka) == set(range(5))
        with pytest.raises(ConfigurationError, match="acknowledgement_mode"):
            consumer.acknowledge(record)
        with pytest.raises(ConfigurationError, match="acknowledgement_mode"):
            await consumer.renew(record)
        with pytest.raises(ConfigurationError, match="acknowledgement_mode"):
            async with consumer.work(record):
                pytest.fail("the block must not run")


async def test_iteration_gives_record_by_record(autojump_clock: Clock) -> None:
    kafka = kafka_with(5)
    async with share_cluster(kafka) as brokers, brokers.consumer(acknowledgement_mode="implicit") as consumer:
        got: list[int] = []
        async for record in consumer:
            got.append(record.offset)
            if len(got) == 5:
                break
        assert got == list(range(5))


async def test_records_that_a_loop_did_not_reach_are_not_accepted(autojump_clock: Clock) -> None:
    """In the implicit mode a commit accepts the returned records; a poll returns the rest."""
    kafka = kafka_with(5)
    async with share_cluster(kafka) as brokers:
        async with brokers.consumer(acknowledgement_mode="implicit") as consumer:
            async for record in consumer:
                if record.offset == 1:
                    break
            assert await consumer.commit() == {A0: None}
            assert settled(kafka) == {0, 1}
            assert [record.offset for record in await consumer.poll(5)] == [2, 3, 4]
            assert settled(kafka) == {0, 1}
            assert await consumer.poll(1) == []
            assert settled(kafka) == set(range(5))
        kafka.produce(A0, 3)
        async with brokers.consumer(acknowledgement_mode="implicit") as consumer:
            async for record in consumer:
                assert record.offset == 5
                break
            consumer.commit_nowait()
        assert settled(kafka) == set(range(6))


async def test_one_task_polls_and_is_woken_up(autojump_clock: Clock) -> None:
    async with share_cluster(kafka_with(0)) as brokers, brokers.consumer() as consumer:

        async def wait() -> None:
            with pytest.raises(WokenUp):
                await consumer.poll()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1)
            with pytest.raises(trio.BusyResourceError):
                await consumer.poll()
            consumer.wakeup()
        assert await consumer.poll(0) == []


async def test_a_callback_that_raises_is_raised_by_the_call(autojump_clock: Clock) -> None:
    def raising(_: AcknowledgementResult) -> None:
        raise ZeroDivisionError

    kafka = kafka_with(1)
    async with share_cluster(kafka) as brokers, brokers.consumer(on_acknowledged=raising) as consumer:
        (record,) = await consumer.poll()
        consumer.acknowledge(record)
        with pytest.raises(ZeroDivisionError):
            await consumer.commit()
        assert await consumer.poll(0) == []


# Renewals


async def test_work_outlasts_the_lock_and_ends_with_an_acceptance(autojump_clock: Clock) -> None:
    kafka = kafka_with(1, lock_s=2.0)
    async with share_cluster(kafka) as brokers, brokers.consumer() as consumer, brokers.consumer() as other:
        (record,) = await consumer.poll()
        async with consumer.work(record) as same:
            assert same is record
            assert await other.poll(9) == []
        await trio.sleep(1)
        assert settled(kafka) == {0}
        assert kafka.share.shares[A0].counts == {0: 1}


async def test_work_that_raises_or_is_cancelled_releases(autojump_clock: Clock) -> None:
    kafka = kafka_with(2)
    async with share_cluster(kafka) as brokers, brokers.consumer() as consumer:
        one, two = await consumer.poll()
        with pytest.raises(ZeroDivisionError):
            async with consumer.work(one):
                raise ZeroDivisionError
        with trio.move_on_after(1):
            async with consumer.work(two):
                await trio.sleep_forever()
        again = await consumer.poll()
        while len(again) < 2:
            again += await consumer.poll()
        assert sorted((record.offset, record.delivery_count) for record in again) == [(0, 2), (1, 2)]


async def test_acknowledgements_of_the_block_are_kept(autojump_clock: Clock) -> None:
    kafka = kafka_with(1)
    async with share_cluster(kafka) as brokers, brokers.consumer() as consumer:
        (record,) = await consumer.poll()
        async with consumer.work(record):
            consumer.acknowledge(record, REJECT)
        await trio.sleep(1)
    assert [kind for _, _, _, kind in kafka.share.acknowledged] == [REJECT]


async def test_a_lock_that_is_lost_cancels_the_work(autojump_clock: Clock) -> None:
    kafka = kafka_with(2)
    async with share_cluster(kafka) as brokers, brokers.consumer() as consumer:
        one, two = await consumer.poll()
        begin = trio.current_time()
        async with trio.open_nursery() as nursery:

            async def work() -> None:
                with pytest.raises(LockLostError):
                    async with consumer.work(one):
                        await trio.sleep_forever()

            nursery.start_soon(work)
            await trio.sleep(1)
            brokers.cut()
            nursery.start_soon(consumer.poll, 1)
        assert trio.current_time() - begin < 10
        assert consumer.acknowledge(two) is False
        with pytest.raises(LockLostError):
            async with consumer.work(one):
                pytest.fail("the block must not run")
        with pytest.raises(LockLostError):
            await consumer.renew(one)


async def test_work_that_does_not_notice_a_lost_lock_gets_an_error_at_its_end(autojump_clock: Clock) -> None:
    kafka = kafka_with(1)
    async with share_cluster(kafka) as brokers, brokers.consumer() as consumer:
        (record,) = await consumer.poll()

        async def work() -> None:
            async with consumer.work(record):
                with trio.CancelScope(shield=True):
                    brokers.cut()
                    await consumer.poll(1)

        with pytest.raises(LockLostError):
            await work()


async def test_each_renewal_extends_the_lock_until_renewals_end(autojump_clock: Clock) -> None:
    kafka = kafka_with(2, lock_s=4.0)
    async with share_cluster(kafka) as brokers, brokers.consumer() as consumer:
        records = await consumer.poll()
        for _ in range(3):
            await trio.sleep(3)
            await consumer.renew(*records)
        assert await consumer.poll(1) == []
        await consumer.renew()
        await trio.sleep(5)
        with pytest.raises(LockLostError):
            await consumer.renew(records[0])


async def test_a_renewed_record_is_delivered_again_with_the_next_poll(autojump_clock: Clock) -> None:
    kafka = kafka_with(2)
    async with share_cluster(kafka) as brokers, brokers.consumer() as consumer:
        one, two = await consumer.poll()
        consumer.acknowledge(one, RENEW)
        consumer.acknowledge(two)
        kafka.produce(A0, 1)
        assert await consumer.poll() == [one]
        assert [record.offset for record in await consumer.poll()] == [2]


async def test_a_broker_that_cannot_renew(autojump_clock: Clock) -> None:
    """R003-6: by the callback, and never out of poll."""
    kafka = kafka_with(1, lock_s=2.0)
    results: list[AcknowledgementResult] = []
    async with share_cluster(kafka) as brokers:
        for node in brokers.brokers.nodes.values():
            node.ranges |= {78: (1, 1), 79: (1, 1)}
        async with brokers.consumer(on_acknowledged=results.append) as consumer:
            (record,) = await consumer.poll()
            consumer.acknowledge(record, RENEW)
            assert await consumer.poll(0.5) == []
            (result,) = results
            assert "UNSUPPORTED_VERSION" in str(result.error)
            with pytest.raises(ConsumerError, match="UNSUPPORTED_VERSION"):
                await consumer.renew(record)
            async with consumer.work(record):
                await trio.sleep(0.5)
            await trio.sleep(1)
    assert settled(kafka) == {0}


# Cancellation


Call = Callable[[ShareConsumer, list[ShareRecord]], Awaitable[Any]]


async def _commit(consumer: ShareConsumer, records: list[ShareRecord]) -> None:
    for record in records:
        consumer.acknowledge(record)
    await consumer.commit()


async def _renew(consumer: ShareConsumer, records: list[ShareRecord]) -> None:
    await consumer.renew(*records)


async def _work(consumer: ShareConsumer, records: list[ShareRecord]) -> None:
    for record in records:
        async with consumer.work(record):
            await trio.sleep(0.004)


async def _unsubscribe(consumer: ShareConsumer, records: list[ShareRecord]) -> None:
    for record in records[:2]:
        consumer.acknowledge(record)
    await consumer.unsubscribe()


async def test_a_poll_that_is_cancelled_anywhere_loses_nothing(autojump_clock: Clock) -> None:
    kafka = kafka_with(0, 2)
    got: list[tuple[int, int, int]] = []
    async with share_cluster(kafka) as brokers, brokers.consumer() as consumer:
        for iteration in range(120):
            kafka.produce((A0, A1)[iteration % 2], 3)
            with trio.move_on_after(iteration % 40 * 0.001):
                for record in await consumer.poll():
                    consumer.acknowledge(record)
                    got.append((record.partition, record.offset, record.delivery_count))
        while records := await consumer.poll(2):
            for record in records:
                consumer.acknowledge(record)
                got.append((record.partition, record.offset, record.delivery_count))
        assert sorted(got) == [(partition, offset, 1) for partition in (0, 1) for offset in range(180)]
        await consumer.commit()
        assert consumer.state().held == 0


@pytest.mark.parametrize("call", [_commit, _renew, _work, _unsubscribe])
async def test_a_call_that_is_cancelled_anywhere_loses_nothing(call: Call, autojump_clock: Clock) -> None:
    kafka = kafka_with(4)
    async with share_cluster(kafka) as brokers, brokers.consumer() as consumer:
        for iteration in range(25):
            records = await _all(consumer, 4)
            with trio.move_on_after(iteration * 0.001):
                await call(consumer, records)
            await trio.sleep(1)  # what was sent has its effect, whether or not anybody waits for it
            consumer.subscribe(["a"])
            kafka.produce(A0, 4 - _free(kafka) - consumer.state().held)
            for record in records:
                try:
                    consumer.acknowledge(record, RELEASE)
                except ValueError:
                    continue
            await consumer.commit()
        records = await _all(consumer, 4)
        await _commit(consumer, records)
        assert settled(kafka) == set(range(kafka.ends[A0]))
        assert consumer.state().held == 0


async def _all(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    polled: list[ShareRecord] = []
    with trio.fail_after(60):
        while len(polled) < count:
            polled += await consumer.poll(5)
    return polled


def _free(kafka: ShareKafka) -> int:
    share = kafka.share.share(A0)
    return sum(each not in share.settled and each not in share.locks for each in range(kafka.ends[A0]))


# The end


async def test_unsubscribing_says_what_is_due_and_releases_the_rest(autojump_clock: Clock) -> None:
    kafka = kafka_with(3)
    async with share_cluster(kafka) as brokers, brokers.consumer() as consumer:
        records = await consumer.poll()
        consumer.acknowledge(records[1])
        await consumer.unsubscribe()
        assert settled(kafka) == {1}
        assert kafka.share.shares[A0].locks == {}
        assert consumer.state().member is ShareMemberState.OUTSIDE
        assert consumer.acknowledge(records[0]) is False
        consumer.subscribe(["a"])
        assert [(record.offset, record.delivery_count) for record in await consumer.poll()] == [(0, 2), (2, 2)]


async def test_errors_of_the_group_come_out_of_poll(autojump_clock: Clock) -> None:
    kafka = kafka_with(1)
    kafka.faults["ShareGroupHeartbeat"] = [lambda _: _refusal(81)]
    async with share_cluster(kafka) as brokers, brokers.consumer() as consumer:
        for _ in range(2):
            with pytest.raises(ConsumerError, match="GROUP_MAX_SIZE_REACHED"):
                await consumer.poll()


def _refusal(code: int) -> Any:
    return registry.message("ShareGroupHeartbeatResponse")(error_code=code)


async def test_a_repeated_error_is_reported_once(autojump_clock: Clock) -> None:
    kafka = kafka_with(1)
    kafka.faults["ShareGroupHeartbeat"] = [lambda _: _refusal(29) for _ in range(5)]
    async with share_cluster(kafka) as brokers, brokers.consumer() as consumer:
        with pytest.raises(ConsumerError, match="TOPIC_AUTHORIZATION_FAILED"):
            await consumer.poll()
        await trio.sleep(10)
        with pytest.raises(ConsumerError, match="TOPIC_AUTHORIZATION_FAILED"):
            await consumer.poll()
        assert len(await consumer.poll()) == 1


async def test_connections_that_end_are_made_again(autojump_clock: Clock) -> None:
    kafka = kafka_with(2)
    kafka.faults["ShareFetch"] = [lambda _: RequestFailure(FailureKind.DISCONNECTED)] * 2
    async with share_cluster(kafka) as brokers, brokers.consumer() as consumer:
        assert len(await consumer.poll()) == 2


# Suspension


async def test_work_learns_within_seconds_that_the_machine_was_suspended_beyond_its_lock(autojump_clock: Clock) -> None:
    """Trio's clock does not count a suspension, and no broker reports it."""
    kafka = kafka_with(1, lock_s=30.0)
    suspended = [0.0]
    async with share_cluster(kafka) as brokers, brokers.consumer() as consumer:
        consumer._network.clock = SuspensionClock(lambda: suspended[0])
        (record,) = await consumer.poll()
        began = trio.current_time()

        async def work() -> None:
            async with consumer.work(record):
                await trio.sleep(1)
                suspended[0] = 31.0
                await trio.sleep_forever()

        with pytest.raises(LockLostError):
            await work()
        assert trio.current_time() - began < 3
        with pytest.raises(LockLostError):
            await consumer.renew(record)
