"""Notes for the logs and counters of an application."""

from __future__ import annotations

import math

import pytest
import trio
from kafka_share_proxy.client import notes
from kafka_share_proxy.client.notes import ConsumerNote
from kafka_share_proxy.consumer.events import PartitionLostError
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.application import until
from tests.client.cluster import cluster
from tests.consumer.world import FakeKafka

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


async def test_transitions_delays_and_losses_are_reported(autojump_clock: trio.testing.MockClock) -> None:
    """The chain of a first join, and of a cooperative revoke that ends at its deadline, in the proposal's words."""
    received: list[ConsumerNote] = []
    both = {"group": "g", "topics": ["a"], "assignors": ("cooperative-sticky",), "max_revoke_delay_s": 5.0}
    async with cluster(FakeKafka(a=2)) as brokers, brokers.consumer(observe=received.append, **both) as first:
        await until(first, lambda: first.assignment == {A0, A1})
        assert [note.facts["after"] for note in received if note.event == notes.COORDINATOR_STATE] == [
            "initialized",
            "coordinator_discovery",
            "stable",
        ]
        chain = ["preparing_rebalance", "completing_rebalance", "assigning_partitions", "stable"]
        assert [note.facts["after"] for note in received if note.event == notes.REBALANCE_STATE] == chain
        received.clear()
        async with brokers.consumer(client_id="b", **both) as second, trio.open_nursery() as nursery:
            nursery.start_soon(until, second, lambda: len(second.assignment) == 1)
            going: Partitions = frozenset()
            while not going:
                going = (await first.poll(1)).to_be_revoked
            first.delay_revoke(going)
            while not (await first.poll(0.5)).lost:
                first.delay_revoke(going)
            await until(first, lambda: len(second.assignment) == 1)
        delays = [note.facts for note in received if note.event == notes.REVOKE_DELAYED]
        assert delays[0]["partitions"] == ", ".join(map(str, going))
        assert delays[0]["granted"] is True
        assert delays[0]["remaining_s"] == pytest.approx(5, abs=0.1)
        assert all(each["remaining_s"] < math.inf for each in delays)
        (lost,) = [note.facts for note in received if note.event == notes.PARTITIONS_LOST]
        assert lost["reason"] == "not released before the deadline of the revoke"
        revoke = ["prepare_revocation", "revoking_partition", "partition_revoked", "completing_rebalance"]
        after = [note.facts["after"] for note in received if note.event == notes.REBALANCE_STATE]
        begin = after.index("prepare_revocation")
        assert after[begin : begin + 6] == [*revoke, "assigning_partitions", "stable"]


async def test_polls_and_commits_are_reported_with_result_and_duration(
    autojump_clock: trio.testing.MockClock,
) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 7)
    received: list[ConsumerNote] = []
    options = {"group": "g", "topics": ["a"], "auto_offset_reset": "earliest", "observe": received.append}
    async with cluster(kafka) as brokers, brokers.consumer(**options) as consumer:
        await until(consumer, lambda: sum(note.facts.get("main", 0) for note in received) == 7)
        await consumer.commit()
        with pytest.raises(PartitionLostError):
            await consumer.commit({A0: 7, A1: 1})
    polled = [note.facts for note in received if note.event == notes.POLLED]
    assert polled[-1] == {"main": 7, "child": 0, "took_s": pytest.approx(polled[-1]["took_s"])}
    assert all(0 <= each["took_s"] < 1 for each in polled)
    first, second = [note.facts for note in received if note.event == notes.COMMITTED]
    assert (first["partitions"], first["refused"]) == ("a-0", "")
    assert (second["partitions"], second["refused"]) == ("a-0, a-1", "a-1")
    assert 0 < first["took_s"] < 1
