"""A request that names very many views is served in slices, by every handler: other clients are served in between."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import framed
from kafka_share_proxy.wire.codec import frames

from tests.support.stretches import longest_stretch
from tests.support.view_broker import World

FEW, MANY = 300, 1500
NAMES = {
    "of no base": "__view.r2.absent{}",
    "of no kind": "__view.x.absent{}",
    "of no plan": "__view.pabsent{}.base",
    "shown": "__view.r2.base{}",
    "no view": "absent{}",
}
LARGE = 8192
"""A longer request is decoded in slices."""


def metadata(names: list[str]) -> dict[str, Any]:
    return {"topics": [{"name": name} for name in [*names, "__view.r2.base"]]}


def described(names: list[str]) -> dict[str, Any]:
    return {"topics": [{"name": name} for name in [*names, "__view.r2.base"]], "response_partition_limit": 2000}


def created(names: list[str]) -> dict[str, Any]:
    topics = [{"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": []}
              for name in [*names, "__view.r2.base"]]  # fmt: skip
    return {"topics": topics, "timeout_ms": 1000, "validate_only": True}


def subscribed(names: list[str]) -> dict[str, Any]:
    return {"group_id": "g", "member_id": "m", "subscribed_topic_names": names}


REQUESTS = {"Metadata": (3, 12, metadata), "DescribeTopicPartitions": (75, 0, described),
            "CreateTopics": (19, 7, created), "ConsumerGroupHeartbeat": (68, 0, subscribed)}  # fmt: skip


def stretch(api: str, name: str, count: int) -> int:
    key, version, fields = REQUESTS[api]
    world = World()
    world.cluster.make("base", 1)
    for number in range(count):
        world.cluster.make(f"base{number}", 1)
    header, request = frames.decode_request(
        world.frame(key, version, **fields([name.format(number) for number in range(count)]))
    )

    def make(work: Any) -> Any:
        frame = memoryview(bytes(LARGE + 1))
        call = Call(key, version, header.correlation_id, None, request, world.client, work, frame)

        async def serve() -> Any:
            return await framed(call, await world.served[key].handler(call))

        return serve()

    return longest_stretch(make, world.timers.ring)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("api", REQUESTS)
def test_the_longest_stretch_does_not_grow_with_the_number_of_views(api: str, name: str) -> None:
    stretch(api, NAMES[name], 2)  # codecs are compiled
    few, many = stretch(api, NAMES[name], FEW), stretch(api, NAMES[name], MANY)
    assert many < 2 * few, f"{few:,} instructions with {FEW} names, {many:,} with {MANY}"
