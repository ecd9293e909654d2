"""A network that stalls, trickles and cuts (virtual time): no record is lost or repeated, and commits get through."""

from __future__ import annotations

import random
from itertools import count
from typing import Any

import pytest
import trio
from kafka_share_proxy.brokers.cluster_connection import BrokerVersions, ClusterClientSettings
from kafka_share_proxy.client.broker_connection import READ_BYTES, BrokerConnection
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.consumer.requests import FailureKind, Outcome, RequestFailure
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.values import Address, TopicPartition

from tests.client.application import offsets
from tests.client.cluster import ScriptedCluster, cluster
from tests.consumer.world import FakeKafka

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
Clock = trio.testing.MockClock
FAULTS_S = 150.0
"""Seconds of virtual time with a bad network."""
STALL_MAX_S = 20.0
"""Below the session timeout: after it, another member may own the partitions."""
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"assignors": ("range",)},
    "cooperative": {"assignors": ("cooperative-sticky",)},
    "consumer": {"group_protocol": "consumer"},
}


async def misbehave(brokers: ScriptedCluster, dice: random.Random) -> None:
    """Cause one fault after the other, at one broker each time. Then the network is good again."""
    end = trio.current_time() + FAULTS_S
    while trio.current_time() < end:
        node = dice.choice(list(brokers.nodes.values()))
        match dice.randrange(4):
            case 0:
                node.stalled = True
                await trio.sleep(dice.uniform(0.01, STALL_MAX_S))
                node.flow()
            case 1:
                node.trickle = dice.choice((1, 7, 100))
                await trio.sleep(dice.uniform(0.5, 10))
                node.trickle = 0
            case 2:
                node.cut_after = dice.choice((0, 1, 4, 5, 30, 300))
            case _:
                node.cut()
        await trio.sleep(dice.uniform(0.0, 5.0))
    for node in brokers.nodes.values():
        node.cut_after = None


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_stalls_trickles_and_cuts_cost_time_and_no_record(
    protocol: str, seed: int, autojump_clock: Clock
) -> None:
    kafka = FakeKafka(group="consumer" if protocol == "consumer" else "classic", a=2)
    options = {"group": "g", "topics": ["a"], "auto_offset_reset": "earliest", **PROTOCOLS[protocol]}
    got: list[tuple[int, int]] = []
    async with cluster(kafka) as brokers, brokers.consumer(**options) as reader, trio.open_nursery() as nursery:
        nursery.start_soon(misbehave, brokers, random.Random(seed))
        bad_until = trio.current_time() + FAULTS_S + STALL_MAX_S
        with trio.fail_after(FAULTS_S + 400):
            while trio.current_time() < bad_until or len(got) < sum(kafka.ends.values()):
                if trio.current_time() < bad_until:
                    kafka.produce(A0, 3)
                    kafka.produce(A1, 2)
                    await trio.sleep(1)
                result = await reader.poll(2)
                assert not result.lost, "no session ended"
                got += offsets(result)
                if result.records:
                    await reader.commit()
            assert sorted(got) == [(n, at) for n, each in enumerate((A0, A1)) for at in range(kafka.ends[each])]
            assert [offset for number, offset in got if number == 0] == list(range(kafka.ends[A0])), "in order"
            expected = {each: OffsetAndMetadata(kafka.ends[each]) for each in (A0, A1)}
            assert await reader.committed([A0, A1]) == expected


# Large responses, over a socket


def response(correlation_id: int, size: int) -> bytes:
    """Return a response frame with one record set of that size."""
    message = messages.FetchResponse
    place = message.PartitionData(partition_index=0, high_watermark=1, records=b"\xa5" * size)
    topic = message.FetchableTopicResponse(topic_id=bytes(16), partitions=[place])
    return bytes(frames.response(1, 13, correlation_id, message(responses=[topic])))


class Opened:
    """A connection that has been set up, over one end of a pair of sockets."""

    address = Address("broker", 9092)
    expires = float("inf")

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.versions = BrokerVersions(ranges={1: (13, 13)}, response=None)
        self.correlation_ids = count(1)
        self._stream = stream

    def hand_over(self) -> trio.abc.Stream:
        return self._stream


@pytest.mark.parametrize("pieces", [(1 << 20,), (4, 1 << 20), (1, 2, 3, 5000, 1 << 20), (70_000, 3, 1 << 20)])
async def test_a_large_response_is_assembled_from_any_pieces(pieces: tuple[int, ...]) -> None:
    """And the one after it, whose first bytes come with its last ones."""
    ours, theirs = trio.socket.socketpair()
    connection = BrokerConnection(Opened(trio.SocketStream(ours)), ClusterClientSettings())  # type: ignore[arg-type]
    sizes = [3 * READ_BYTES + 5, 10, READ_BYTES + 1]
    data = b"".join(response(number + 1, size) for number, size in enumerate(sizes))
    arrived: list[Outcome] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        for _ in sizes:
            connection.send("Fetch", messages.FetchRequest(), (13, 13), 30, arrived.append)
        broker = trio.SocketStream(theirs)
        begin = 0
        for size in pieces:
            await broker.send_all(data[begin : begin + size])
            begin += size
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(20):
            while len(arrived) < len(sizes):
                await trio.testing.wait_all_tasks_blocked()
        assembled = [bytes(each.responses[0].partitions[0].records) for each in arrived]  # type: ignore[union-attr]
        assert assembled == [b"\xa5" * size for size in sizes]
        nursery.cancel_scope.cancel()
        theirs.close()


async def test_a_large_response_that_is_cut_is_dropped() -> None:
    ours, theirs = trio.socket.socketpair()
    connection = BrokerConnection(Opened(trio.SocketStream(ours)), ClusterClientSettings())  # type: ignore[arg-type]
    arrived: list[Outcome] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        connection.send("Fetch", messages.FetchRequest(), (13, 13), 30, arrived.append)
        broker = trio.SocketStream(theirs)
        await broker.receive_some()
        await broker.send_all(response(1, 3 * READ_BYTES)[: 2 * READ_BYTES])
        await broker.aclose()
    (outcome,) = arrived
    assert isinstance(outcome, RequestFailure)
    assert outcome.kind is FailureKind.DISCONNECTED
    assert "the broker closed the connection" in outcome.text
