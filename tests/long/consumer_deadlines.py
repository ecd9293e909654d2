"""Time-dependent behaviour of our consumer: sessions that would end, brokers that stop. Run by tests/long/run.

Sessions are short here, so that three of them pass in seconds; all else is as in tests/client/test_acceptance.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import trio
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.notes import COORDINATOR_STATE, PARTITIONS_LOST, ConsumerNote
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.client.rebalance_listener import RebalanceListener
from kafka_share_proxy.consumer.groups.states import RebalanceState
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata, Partitions
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.client.tapped import Tap
from tests.client.test_real_brokers import EARLIEST, create, produce
from tests.support.brokers import NEW, OLD, Running

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

SESSION_S = 2.0
SHORT = {"group.min.session.timeout.ms": "1000"}
SHORT_CONSUMER = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
CLASSIC: dict[str, Any] = {
    "assignors": ("cooperative-sticky",),
    "session_timeout_s": SESSION_S,
    "heartbeat_interval_s": 0.5,
    **EARLIEST,
}
POLLS_MAX = 5000
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module", params=[OLD, NEW])
def kafka(request: pytest.FixtureRequest, running: Running) -> Cluster:
    more = SHORT_CONSUMER if request.param == NEW else {}
    return running.cluster(request.param, properties={**SHORT, **more})


def group_of(kafka: Cluster) -> tuple[str, Callable[..., Any]]:
    """A topic of two partitions with ten records each, and what opens a member."""
    number = next(NUMBERS)
    partitions = create(kafka, f"topic-{number}", 2)
    for each in partitions:
        produce(kafka, each, range(10))

    def member(**options: Any) -> Any:
        return open_consumer(
            kafka.bootstrap, group=f"group-{number}", topics=[partitions[0].topic], **{**CLASSIC, **options}
        )

    return partitions[0].topic, member


async def polling(consumer: Consumer) -> None:
    for _ in range(POLLS_MAX):
        await consumer.poll(0.2)


class Slow(RebalanceListener):
    """Takes three sessions to let go."""

    def __init__(self) -> None:
        self.began = trio.Event()

    async def on_partitions_revoked(self, partitions: Partitions) -> None:
        if partitions:
            self.began.set()
            await trio.sleep(3 * SESSION_S)


async def test_a001_5_a_callback_of_three_sessions_leaves_the_member_in_its_group(kafka: Cluster) -> None:
    """R001-2"""
    _, member = group_of(kafka)
    listener, notes = Slow(), list[ConsumerNote]()
    async with member(listener=listener, observe=notes.append) as first, trio.open_nursery() as nursery:
        nursery.start_soon(polling, first)
        with trio.fail_after(60):
            while len(first.assignment) != 2:  # noqa: ASYNC110 - another task polls it
                await trio.sleep(0.1)
        async with member() as second:
            nursery.start_soon(polling, second)
            with trio.fail_after(60):
                await listener.began.wait()
                await trio.sleep(2 * SESSION_S)
                assert first.state().rebalance is RebalanceState.REVOKING_PARTITION
                while len(second.assignment) != 1 or len(first.assignment) != 1:  # noqa: ASYNC110 - as above
                    await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    assert [note for note in notes if note.event == PARTITIONS_LOST] == []


@pytest.mark.parametrize("acknowledges", [True, False])
async def test_a000_8_a_member_of_kip_848_delays_beyond_its_session_and_is_fenced_at_the_rebalance_timeout(
    kafka: Cluster, acknowledges: bool
) -> None:
    if kafka.release == OLD:
        pytest.skip("KIP-848 is early access there")
    topic, member = group_of(kafka)
    options = {"group_protocol": "consumer", **EARLIEST}
    timeout_s = 60.0 if acknowledges else 6.0
    async with member(**options, max_poll_interval_s=timeout_s) as first, trio.open_nursery() as nursery:
        with trio.fail_after(60):
            while len(first.assignment) != 2:
                await first.poll(0.2)
        async with member(**options) as second:
            nursery.start_soon(polling, second)
            going: Partitions = frozenset()
            with trio.fail_after(60):
                while not going:
                    going = (await first.poll(0.2)).to_be_revoked
            began, lost = trio.current_time(), Partitions()
            with trio.fail_after(60):
                while trio.current_time() - began < 3 * SESSION_S and first.delay_revoke(going):
                    lost |= (await first.poll(0.2)).lost
                    assert acknowledges or second.assignment <= going
                if acknowledges:
                    assert (lost, second.assignment) == (frozenset(), frozenset())
                while len(second.assignment) != 1 or len(first.assignment) != 1:
                    lost |= (await first.poll(0.2)).lost
            assert lost == (frozenset() if acknowledges else going), topic
            nursery.cancel_scope.cancel()


async def test_a001_3_with_the_coordinator_stopped_it_is_looked_up_with_pauses_and_the_commit_is_made(
    kafka: Cluster,
) -> None:
    topic, member = group_of(kafka)
    tap, notes = Tap(), list[ConsumerNote]()
    async with member(connect=tap, observe=notes.append, session_timeout_s=30.0) as consumer:
        with trio.fail_after(60):
            while len(consumer.assignment) != 2:
                await consumer.poll(0.2)
        (node,) = kafka.nodes
        await trio.to_thread.run_sync(node.kill)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.commit, {(topic, 0): 7})
            await trio.sleep(3)
            node.start()
            await trio.to_thread.run_sync(kafka.wait_ready)
            with trio.fail_after(90):
                await consumer.commit({(topic, 1): 8})
        assert await consumer.committed([(topic, 0), (topic, 1)]) == {
            (topic, 0): OffsetAndMetadata(7),
            (topic, 1): OffsetAndMetadata(8),
        }
    states = [note.facts["after"] for note in notes if note.event == COORDINATOR_STATE]
    assert states[:4] == ["initialized", "coordinator_discovery", "stable", "coordinator_discovery"]
    looked = tap.times("FindCoordinator")
    assert all(later - earlier >= 0.07 for earlier, later in itertools.pairwise(looked[1:]))
