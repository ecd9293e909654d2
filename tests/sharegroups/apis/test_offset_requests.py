"""Ends of logs, from their leaders; waiting for a share partition that is being started."""

from __future__ import annotations

from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups.apis.offset_requests import log_ends, not_starting
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import UNKNOWN_NODE, TopicIdPartition

from tests.support.ports import World


def run(coroutine):
    task = Task(coroutine, lambda _: None)
    task.start()
    return task


def test_all_leaders_are_queried_in_parallel():
    """One request each, sent before the first response; a partition without leader is not in any."""
    world = World()
    topic = world.cluster.create("t", leaders=(1, 2, 2, UNKNOWN_NODE))
    for node in (1, 2):
        world.member(node_id=node).fetch(topic)
    world.cluster.held.add(2)
    before = world.cluster.count(2)
    known = world.services.topology.topic("t")
    task = run(log_ends(world.connect(), world.services, [(known, partition) for partition in range(4)]))
    assert world.cluster.count(2) - before == 2
    world.cluster.release(2)
    codes = {place.partition: code for place, (code, _) in task.value.items()}
    assert codes == {0: 0, 1: 0, 2: 0, 3: ErrorCode.LEADER_NOT_AVAILABLE}
    assert task.value[TopicIdPartition(topic.topic_id, 0)] == (ErrorCode.NONE, 0)


def test_waiting_ends_with_the_last_that_is_begun():
    world = World()
    reads, keys = world.services.reads, [ShareKey("g", b"t" * 16, partition) for partition in range(2)]
    assert run(not_starting(world.services, keys)).value is True
    reads.starting.update(keys)
    task = run(not_starting(world.services, keys))
    for key in keys:
        assert not task.finished
        reads.starting.discard(key)
        reads.wake(key)
    assert task.value is True
    reads.starting.add(keys[1])
    task = run(not_starting(world.services, keys))
    world.timers.advance(5.1)
    assert task.value is False
    assert reads.waiting == 0
