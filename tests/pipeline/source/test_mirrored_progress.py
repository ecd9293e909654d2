"""Progress of a stream in a group (pipeline/README.md rule 20)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer
from kafka_share_proxy.localkafka.addresses import free_ports
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient
from kafka_share_proxy.pipeline.kafka.group_commits import CommitsOfGroup
from kafka_share_proxy.pipeline.source import mirrored_progress
from kafka_share_proxy.pipeline.source.mirrored_progress import PAUSE_S, MirroredProgress
from kafka_share_proxy.pipeline.source.options import read_options
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.raw import Topic, until

Fresh = Callable[[str], str]


class World:
    """One group, a clock, and what was noted."""

    def __init__(self, cluster: BlockingClusterClient, group: str) -> None:
        self.time = 100.0
        self.reported: list[str] = []
        self.mirrored = MirroredProgress(cluster, group, self.reported.append, lambda: self.time)
        self._commits = CommitsOfGroup(cluster, group)

    @property
    def committed(self) -> dict[TopicPartition, int]:
        return {place: state.offset for place, state in self._commits.states().items()}


@pytest.fixture
def cluster(views_front: Front, orders: Topic) -> Iterator[BlockingClusterClient]:
    with BlockingClusterClient(read_options({"bootstrap": views_front.bootstrap, "topic": orders.name})) as opened:
        yield opened


@pytest.mark.broker
def test_the_committed_offsets_of_a_new_group_follow_the_stream(
    cluster: BlockingClusterClient, orders: Topic, fresh: Fresh
) -> None:
    world = World(cluster, fresh("group"))
    first, second = (TopicPartition(orders.name, number) for number in (0, 1))
    world.mirrored.commit({first: 0, second: 7})
    assert world.committed == {first: 0, second: 7}
    world.mirrored.commit({first: 5, second: 7})
    assert world.committed == {first: 5, second: 7}
    assert world.reported == []


@pytest.mark.broker
def test_a_group_with_members_is_reported_once_and_tried_again(
    views_front: Front, cluster: BlockingClusterClient, orders: Topic, fresh: Fresh
) -> None:
    world, place = World(cluster, fresh("group")), TopicPartition(orders.name, 0)
    world.mirrored.commit({place: 1})
    name = world.mirrored._group
    member = Consumer({"bootstrap.servers": views_front.bootstrap, "group.id": name, "enable.auto.commit": False})
    try:
        member.subscribe([orders.name])
        until(lambda: member.poll(0.1) is not None and member.assignment(), "an assignment")
        for offset in (2, 3):
            world.mirrored.commit({place: offset})
            world.time += PAUSE_S
        assert world.reported == [
            f"mirrorGroup={name} is behind: it has members, and only they may commit for it: "
            "name a group that no other program uses"
        ]
    finally:
        member.close()
    world.mirrored.commit({place: 4})
    assert world.committed == {place: 4}


def test_a_stream_does_not_wait_long_for_a_group_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrored_progress, "COMMIT_S", 0.2)
    options = read_options({"bootstrap": f"127.0.0.1:{free_ports(1)[0]}", "topic": "orders"})
    with BlockingClusterClient(options) as nobody:
        world, place = World(nobody, "group"), TopicPartition("orders", 0)
        world.mirrored.commit({place: 1})
        world.mirrored.commit({place: 2})  # too soon to be tried
        assert len(world.reported) == 1
        assert "is behind" in world.reported[0]
