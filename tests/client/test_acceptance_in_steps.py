"""Delayed revokes and the two sides call by call, on brokers of 3.9.1 and 4.3.0 (R000-*, R001-*)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from kafka_share_proxy.client.notes import REBALANCE_STATE, ConsumerNote
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.consumer.fetch.offset_requests import NoOffsetForPartition
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.client.tapped import Tap
from tests.client.test_acceptance import (
    COOPERATIVE,
    EAGER,
    Hearing,
    World,
    polling,
    until_assigned,
    until_going,
    world,
)
from tests.client.test_real_brokers import Fresh, kafka, produce, read
from tests.consumer import test_core as chains

__all__ = ["kafka", "world"]
pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

KEEPING: dict[str, dict[str, Any]] = {
    "cooperative": COOPERATIVE,
    "consumer": {"group_protocol": "consumer"},
}


@pytest.mark.parametrize(("kafka", "protocol"), [("3.9.1", "cooperative"), ("4.3.0", "consumer")], indirect=["kafka"])
async def test_partitions_that_one_poll_announces_are_revoked_by_the_next_unless_delayed(
    kafka: Cluster, fresh: Fresh, protocol: str
) -> None:
    """R000-2, 3, 4, 7, 8 and 10: one loop, poll by poll; the listener hears when it is given up."""
    here, listener, tap = World(kafka, fresh), Hearing(), Tap()
    options = KEEPING[protocol]
    async with here.member(listener=listener, connect=tap, **options) as first:
        await read(first, 20)
        async with here.member(**options) as second, trio.open_nursery() as nursery:
            nursery.start_soon(polling, second)
            with trio.fail_after(60):
                records, going, lost = await first.poll(100)  # there is nothing to read, and it does not wait for it
            assert (len(records), len(going), lost) == (0, 1, frozenset())
            assert (first.assignment, listener.revoked) == (set(here.partitions), [])
            assert first.delay_revoke(going)
            for each in here.partitions:
                produce(kafka, each, range(10))
            records, still_going, lost = await first.poll(30)
            assert {record.partition for record in records} == {each.partition for each in first.assignment - going}
            assert (still_going, lost, first.assignment) == (going, frozenset(), set(here.partitions))
            tap.requests.clear()
            await first.commit()
            assert tap.names.count("OffsetCommit") == 1, "of both partitions"
            assert listener.revoked == []
            assert (await first.poll(0)).to_be_revoked == frozenset()
            assert (listener.revoked, first.assignment) == ([going], set(here.partitions) - going)
            with trio.fail_after(30):
                while second.assignment != going:
                    assert {record.partition for record in (await first.poll(0.1)).records}.isdisjoint(
                        each.partition for each in going
                    )
            nursery.cancel_scope.cancel()


async def test_a_member_that_does_not_poll_keeps_partitions_to_be_revoked_until_it_polls(world: World) -> None:
    """R000-12: within max.poll.interval."""
    async with world.member() as first:
        await until_assigned(first, 2)
        async with world.member() as second, trio.open_nursery() as nursery:
            nursery.start_soon(polling, second)
            going = await until_going(first)
            await trio.sleep(1.5)
            assert (second.assignment, len(first.assignment)) == (frozenset(), 2)
            await first.poll(0)
            with trio.fail_after(30):
                while second.assignment != going:  # noqa: ASYNC110 - another task polls it
                    await trio.sleep(0.05)
            nursery.cancel_scope.cancel()


async def test_commits_that_wait_together_are_one_request(world: World) -> None:
    """R001-3: one lookup of the coordinator, and the last of several commits of a partition counts."""
    tap, requested = Tap(), list[int]()
    (partition, _) = world.partitions
    async with open_consumer(world.kafka.bootstrap, group=world.group, connect=tap) as consumer:

        async def commit(offset: int) -> None:
            requested.append(offset)
            await consumer.commit({partition: offset})

        async with trio.open_nursery() as nursery:
            for offset in range(10):
                nursery.start_soon(commit, offset)
        assert await consumer.committed([partition]) == {partition: OffsetAndMetadata(requested[-1])}
    assert tap.names.count("FindCoordinator") == 1
    assert tap.names.count("OffsetCommit") <= 2


async def test_poll_commits_and_raises_and_leaving_commits_and_clears(world: World) -> None:
    """R001-8"""
    first, second = world.partitions
    tap, listener = Tap(), Hearing()
    options = {"connect": tap, "listener": listener, "auto_commit_interval_s": 0.2, "max_poll_records": 5}
    async with world.member(**options) as consumer:
        got = await read(consumer, 5)
        with trio.fail_after(30):
            while not any((await consumer.committed(world.partitions)).values()):
                await trio.sleep(0.1)
                got += (await consumer.poll(0, max_records=1)).records
        await consumer.unsubscribe()
        assert listener.revoked == [set(world.partitions)]
        last_commit = max(at for at, name in enumerate(tap.names) if name == "OffsetCommit")
        assert tap.names.index("LeaveGroup") > last_commit
        known = {
            each: entry.offset if entry else 0 for each, entry in (await consumer.committed(world.partitions)).items()
        }
        assert known == {each: sum(record.partition == each.partition for record in got) for each in world.partitions}
        consumer.assign([first])
        consumer.seek(first, 0)
        assert [record.offset for record in await read(consumer, 5)] == [0, 1, 2, 3, 4]
        consumer.assign([second])
        consumer.seek(second, 0)
        assert {record.partition for record in await read(consumer, 10)} == {second.partition}
        committed = (await consumer.committed([first]))[first]
        assert committed is not None
        assert committed.offset == 5
        consumer.assign([])
        assert not (await consumer.poll(0.3)).records
    async with open_consumer(world.kafka.bootstrap, partitions=[first], auto_offset_reset="none") as consumer:
        with trio.fail_after(30), pytest.raises(NoOffsetForPartition):
            await consumer.poll()


async def test_a_revoke_is_committed_before_the_member_joins_again(world: World) -> None:
    """R001-11 and R001-6: the coordinator, then what is read; then pause, commit, revoke, and the rest."""
    tap, notes = Tap(), list[tuple[float, ConsumerNote]]()

    def observe(note: ConsumerNote) -> None:
        notes.append((trio.current_time(), note))

    def states() -> list[tuple[float, str]]:
        return [(at, note.facts["after"].upper()) for at, note in notes if note.event == REBALANCE_STATE]

    async with world.member(**EAGER, connect=tap, observe=observe, auto_commit_interval_s=100.0) as first:
        await read(first, 20)
        joined = len(tap.requests)
        async with world.member(**EAGER) as second, trio.open_nursery() as nursery:
            nursery.start_soon(polling, second)
            with trio.fail_after(60):
                while not len(first.assignment) == len(second.assignment) == 1 or states()[-1][1] != "STABLE":
                    await first.poll(0.1)
            nursery.cancel_scope.cancel()
        before, since = tap.names[:joined], tap.requests[joined:]
    order = [before.index(name) for name in ("FindCoordinator", "JoinGroup", "SyncGroup", "OffsetFetch", "Fetch")]
    assert order == sorted(order)
    names = [name for _, name in since]
    commit, join = names.index("OffsetCommit"), names.index("JoinGroup")
    assert commit < join
    assert [state for _, state in states()][: len(chains.JOINED + chains.EAGER) - 2] == [
        *chains.JOINED[1:],
        *chains.EAGER[1:],
    ]
    paused_at = next(at for at, state in states() if state == "PREPARE_REVOCATION")
    assert "Fetch" not in [name for at, name in since if paused_at < at < since[join][0]]
