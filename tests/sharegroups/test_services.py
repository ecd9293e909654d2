"""The parts of the share room, put together."""

from __future__ import annotations

from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.services import ShareOptions

from tests.support.ports import World, acquired


def test_limits_and_options_reach_their_parts():
    world = World(
        limits=Limits(share_cache_bytes=123, local_answers_total_bytes=456), options=ShareOptions(cache_age_s=9)
    )
    assert world.services.responses.limit == 456
    assert world.services.reads.cache.limits.bytes == 123
    assert world.services.reads.cache.limits.age_s == 9


def test_one_clock_ends_members_locks_and_cached_batches():
    """Nothing rings while there is nothing to end, and nothing is left when all has ended."""
    world = World()
    world.configure("g", share_auto_offset_reset="earliest")
    assert world.timers.planned == 0
    topic = world.cluster.create("t")
    for _ in range(3):
        world.cluster.produce(topic, 1)
    member = world.member()
    member.heartbeat(0, ["t"])
    assert acquired(member.fetch(topic, max_records=1)) == [(0, 0, 1)]
    assert world.timers.planned == 1
    world.timers.advance(100)
    assert world.timers.planned == 0
    assert world.services.coordinator.group("g").members == {}
    assert world.services.reads.cache.bytes == 0
    share = world.services.coordinator.share(ShareKey("g", topic.topic_id, 0))
    assert share.partition.next_fetch_offset() == 0
