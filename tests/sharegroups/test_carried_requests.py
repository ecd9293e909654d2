"""Share groups: requests to another proxy, and its responses.

The whole way, over a link in memory, is in tests/fleet/test_edge.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.fleet.carried import CarriedRequests, EdgeOfLink
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.sharegroups.carried_requests import CarriedShareRequests, ShareEdge
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.records import records

from tests.support.ports import World

HEARTBEAT = 76


def call_of(world: World, key: int, version: int, **fields: Any) -> Call:
    message = registry.message(f"{registry.API_KEYS[key]}Request")(**fields)
    return Call(key, version, 1, "client", message, world.connect())  # type: ignore[arg-type]


def fetched(size: int) -> memoryview:
    """Build a Fetch response with one batch."""
    response = registry.message("FetchResponse")
    batch = records.build_batch(7, [records.Record(value=b"v" * size)])
    part = response.PartitionData(partition_index=0, high_watermark=8, records=batch)
    topic = response.FetchableTopicResponse(topic="t", partitions=[part])
    return memoryview(registry.response(ApiKey.FETCH, 12).encode(response(responses=[topic])))


def test_records_stay_here_and_are_forgotten_by_name() -> None:
    edge = ShareEdge(World().services)
    sent = edge.to_owner(ApiKey.FETCH, 12, b"", fetched(100_000))
    assert len(sent) < 1_000
    assert edge.held.bytes > 100_000
    edge.forget([1])
    assert edge.held.bytes == 0
    other = memoryview(b"another answer")
    assert edge.to_owner(3, 0, b"", other) is other


@pytest.mark.parametrize(("room", "records_expected", "waits_s"), [(64 << 20, 500, 0.0), (1, 0, 0.5)])
def test_without_room_no_records_are_requested(room: int, records_expected: int, waits_s: float) -> None:
    world = World(limits=Limits(local_answers_total_bytes=room))
    world.services.responses.hold(1)
    edge = ShareEdge(world.services)
    call = call_of(world, ApiKey.SHARE_FETCH, 2, max_records=500, max_bytes=1 << 20, max_wait_ms=500, group_id="g")
    prepared = edge.prepared(call)
    assert prepared.request.max_records == records_expected
    assert prepared.request.group_id == "g"
    assert prepared.not_before - world.timers.now() == pytest.approx(waits_s)
    heartbeat = call_of(world, HEARTBEAT, 1, group_id="g")
    assert edge.prepared(heartbeat) == (heartbeat.message, world.timers.now())


def test_response_with_records_that_are_not_here_cannot_be_built() -> None:
    world = World()
    edge = ShareEdge(world.services)
    call = call_of(world, ApiKey.SHARE_FETCH, 2, group_id="g")
    response = registry.message("ShareFetchResponse")
    lost = registry.codec("PeerRecords", 0).encode(registry.message("PeerRecords")(chunk=9, start=0, end=5))
    part = response.PartitionData(partition_index=0, records=lost, current_leader=response.LeaderIdAndEpoch())
    sent = response(responses=[response.ShareFetchableTopicResponse(topic_id=b"t" * 16, partitions=[part])])
    body = registry.response(ApiKey.SHARE_FETCH, 2).encode(sent)
    frame = (len(body) + 5).to_bytes(4, "big") + b"\0\0\0\1\0" + body
    assert edge.completed(call, frame) is None
    heartbeat = call_of(world, HEARTBEAT, 1, group_id="g")
    assert edge.completed(heartbeat, bytearray(b"as it is")) == b"as it is"


def test_owner_reports_its_groups_and_cleans_up_with_the_link() -> None:
    world = World()
    services = world.services
    carried = CarriedShareRequests(services, {})
    services.coordinator.add_group("g")
    world.configure("s", share_auto_offset_reset="earliest")
    held = carried.holdings()
    assert [(group.group_id, group.state) for group in held.groups] == [("g", "Empty")]
    assert list(held.with_settings) == ["s"]
    assert set(carried.groups) == {"g"}
    services.coordinator.remove_group("g")
    assert not carried.groups, "as it is now"
    waiting = services.gate.wait()
    carried.links_changed()
    assert waiting.done
    carried.link_ended(5)
    assert carried.edge() is not carried.edge(), "each link has its own"


def test_it_is_what_links_carry() -> None:
    carried: CarriedRequests = CarriedShareRequests(World().services, {76: _no_member})  # type: ignore[dict-item]
    edge: EdgeOfLink = carried.edge()
    assert list(carried.handlers) == [76]
    assert isinstance(edge, ShareEdge)


async def _no_member(_call: Call) -> None:
    return None
