"""Committing for a group without members, through a proxy (pipeline/README.md rule 39)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan
from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient
from kafka_share_proxy.pipeline.kafka.group_commits import (
    CommitsOfGroup,
    CommittedState,
    GroupHasMembers,
    NothingCommitted,
)
from kafka_share_proxy.pipeline.source.options import read_options
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.raw import Topic, until

Fresh = Callable[[str], str]


@pytest.fixture
def cluster(views_front: Front, orders: Topic) -> Iterator[BlockingClusterClient]:
    options = read_options({"bootstrap": views_front.bootstrap, "topic": orders.name, "timeoutMs": "30000"})
    with BlockingClusterClient(options) as opened:
        yield opened


def begin(front: Front, group: str, topic: Topic, offset: int, text: str = "") -> None:
    """Commit as a consumer before it left."""
    consumer = Consumer({"bootstrap.servers": front.bootstrap, "group.id": group})
    from confluent_kafka import TopicPartition as Committed

    consumer.commit(offsets=[Committed(topic.name, 0, offset, metadata=text)], asynchronous=False)
    consumer.close()


@pytest.mark.broker
def test_ranges_are_added_and_the_committed_offset_moves_where_they_touch_it(
    views_front: Front, cluster: BlockingClusterClient, orders: Topic, fresh: Fresh
) -> None:
    name, place = fresh("group"), TopicPartition(orders.name, 0)
    begin(views_front, name, orders, 10, "ic/1;20-29;u=mine")
    group = CommitsOfGroup(cluster, name)
    assert group.states() == {place: CommittedState(10, OffsetRanges([(20, 30)]), "mine")}
    group.commit({place: [OffsetSpan(40, 50)]})
    assert group.states() == {place: CommittedState(10, OffsetRanges([(20, 30), (40, 50)]), "mine")}
    group.commit({place: [OffsetSpan(10, 20)]})
    assert group.states() == {place: CommittedState(30, OffsetRanges([(40, 50)]), "mine")}
    with pytest.raises(NothingCommitted, match="has committed nothing of"):
        group.commit({TopicPartition(orders.name, 1): [OffsetSpan(0, 5)]})


@pytest.mark.broker
def test_a_group_with_members_is_not_committed_for(
    views_front: Front, cluster: BlockingClusterClient, orders: Topic, fresh: Fresh
) -> None:
    name, place = fresh("group"), TopicPartition(orders.name, 0)
    begin(views_front, name, orders, 10, "ic/1;20-29")
    member = Consumer({"bootstrap.servers": views_front.bootstrap, "group.id": name, "enable.auto.commit": False})
    try:
        member.subscribe([orders.name])
        until(lambda: member.poll(0.1) is not None and member.assignment(), "an assignment")
        with pytest.raises(GroupHasMembers, match="stop them and run this again"):
            CommitsOfGroup(cluster, name).commit({place: [OffsetSpan(10, 20)]})
    finally:
        member.close()


def test_offsets_of_a_range_that_are_not_done_are_returned() -> None:
    state = CommittedState(10, OffsetRanges([(20, 30)]))
    assert state.not_done(OffsetSpan(5, 35)) == [(10, 20), (30, 35)]
    assert state.not_done(OffsetSpan(0, 10)) == []
    assert state.not_done(OffsetSpan(22, 28)) == []
