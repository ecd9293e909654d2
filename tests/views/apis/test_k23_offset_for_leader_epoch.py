"""OffsetForLeaderEpoch of views: the broker's responses about the base, for every slot."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.brokers.connection_slots import SlotValues
from kafka_share_proxy.loop.promise import Promise, settled
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.blocking_connection import build
from tests.support.view_ports import ViewWorld

VIEW = "__view.r2.t"


class Client:
    """Client that returns end offset 100 * partition + epoch, and error 74 for a current epoch other than 5."""

    id, node_id, client_host = 1, 1, "h"

    def __init__(self) -> None:
        self.slot_values: SlotValues = {}
        self.tasks: list[Any] = []
        self.requested: list[Any] = []

    def send_request(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        request = registry.request(key, version).decode(body)
        self.requested.append(request)
        topics = [
            {"topic": topic.topic, "partitions": [_entry(each) for each in topic.partitions]}
            for topic in request.topics
        ]
        response = build("OffsetForLeaderEpochResponse", topics=topics, throttle_time_ms=4)
        return settled(memoryview(registry.response(key, version).encode(response)))

    def on_close(self, callback: Any) -> None:
        """Never closed."""

    def not_on_close(self, callback: Any) -> None:
        """Never closed."""


def _entry(requested: Any) -> dict[str, int]:
    return {
        "partition": requested.partition, "leader_epoch": requested.leader_epoch,
        "error_code": 0 if requested.current_leader_epoch in (-1, 5) else ErrorCode.FENCED_LEADER_EPOCH,
        "end_offset": 100 * requested.partition + requested.leader_epoch,
    }  # fmt: skip


@pytest.fixture
def world() -> ViewWorld:
    view_world = ViewWorld()
    view_world.topic("t", (1, 1))
    view_world.view(VIEW)
    return view_world


def requested(world: ViewWorld, client: Client, topics: dict[str, list[tuple[int, int, int]]], version: int) -> Any:
    listed = [
        {"topic": name, "partitions": [
            {"partition": p, "leader_epoch": epoch, "current_leader_epoch": current} for p, epoch, current in expected
        ]}
        for name, expected in topics.items()
    ]  # fmt: skip
    request = build("OffsetForLeaderEpochRequest", topics=listed)
    return world.give(client, 23, version, request).message


@pytest.mark.parametrize("version", [2, 3, 4])
def test_every_slot_has_the_end_of_the_epoch_in_its_base(world, version):
    """With other epochs in other requests, the base itself too, and the broker's throttle time."""
    client = Client()
    expected = {VIEW: [(0, 3, -1), (1, 4, 5), (2, 3, 4), (9, 0, -1)], "t": [(0, 3, -1)], "__view.r2.none": [(0, 0, -1)]}
    response = requested(world, client, expected, version)
    end_offsets = {
        t.topic: [(e.partition, e.error_code, e.leader_epoch, e.end_offset) for e in t.partitions]
        for t in response.topics
    }
    assert end_offsets == {
        VIEW: [(0, 0, 3, 3), (1, 0, 4, 4), (2, 74, 3, 103), (9, 3, -1, -1)],
        "t": [(0, 0, 3, 3)],
        "__view.r2.none": [(0, 3, -1, -1)],
    }
    assert response.throttle_time_ms == 4
    assert len(client.requested) == 2
    for request in client.requested:
        places = [(topic.topic, entry.partition) for topic in request.topics for entry in topic.partitions]
        assert len(places) == len(set(places))
