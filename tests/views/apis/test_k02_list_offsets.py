"""ListOffsets of views: the broker's responses about the base, for every slot."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.blocking_connection import build
from tests.support.view_ports import ViewWorld

VIEW = "__view.r2.t"


@pytest.fixture
def world() -> ViewWorld:
    view_world = ViewWorld()
    view_world.base = view_world.topic("t", (1, 1))
    view_world.view(VIEW)
    view_world.produce(view_world.base, [b"a", b"b", b"c"])
    view_world.produce(view_world.base, [b"d"], partition=1)
    return view_world


def requested(world: ViewWorld, topics: dict[str, list[tuple[int, int]]], version: int = 7, epoch: int = -1) -> Any:
    listed = [
        {"name": name, "partitions": [
            {"partition_index": p, "timestamp": t, "current_leader_epoch": epoch} for p, t in expected
        ]}
        for name, expected in topics.items()
    ]  # fmt: skip
    request = build("ListOffsetsRequest", replica_id=-1, topics=listed)
    response = world.give(world.connect(), 2, version, request).message
    return [[(e.partition_index, e.error_code, e.offset) for e in topic.partitions] for topic in response.topics]


@pytest.mark.parametrize("version", [4, 7, 9])
def test_every_slot_has_the_offsets_of_its_base_partition(world, version):
    """Equal requests are sent once."""
    assert requested(world, {VIEW: [(v, -1) for v in range(4)]}, version) == [
        [(0, 0, 3), (1, 0, 3), (2, 0, 1), (3, 0, 1)]
    ]
    (request,) = world.cluster.requests(2)
    assert [len(topic.partitions) for topic in request.topics] == [2]


def test_different_times_are_sent_in_successive_requests(world):
    """Brokers refuse a partition that is named twice; plain topics go along, the base too."""
    expected = {VIEW: [(0, -1), (1, -2)], "t": [(0, 1_700_000_000_000), (1, -1)]}
    assert requested(world, expected) == [[(0, 0, 3), (1, 0, 0)], [(0, 0, 0), (1, 0, 1)]]
    for request in world.cluster.requests(2):
        places = [(topic.name, entry.partition_index) for topic in request.topics for entry in topic.partitions]
        assert len(places) == len(set(places))
    assert len(world.cluster.requests(2)) == 3


def test_errors_of_the_base_are_those_of_the_view(world):
    world.cluster.fail_next[2] = [ErrorCode.FENCED_LEADER_EPOCH]
    assert requested(world, {VIEW: [(0, -1), (1, -1)]}) == [[(0, 74, -1), (1, 74, -1)]]


def test_a_missing_view_or_partition_returns_unknown_topic_or_partition(world):
    """The others get their offsets all the same."""
    assert requested(world, {"__view.r2.none": [(0, -1)], VIEW: [(9, -1), (0, -1)]}) == [
        [(0, 3, -1)],
        [(9, 3, -1), (0, 0, 3)],
    ]


def test_leader_epochs_are_sent_to_the_broker_and_returned(world):
    partition = {"partition_index": 1, "timestamp": -1, "current_leader_epoch": 5}
    request = build("ListOffsetsRequest", replica_id=-1, topics=[{"name": VIEW, "partitions": [partition]}])
    response = world.give(world.connect(), 2, 7, request).message
    assert response.topics[0].partitions[0].leader_epoch == 5
    assert world.cluster.requests(2)[0].topics[0].partitions[0].current_leader_epoch == 5
