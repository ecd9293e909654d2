"""ShareFetches that wait until what is known of their client's rights is too old to be believed."""

from __future__ import annotations

import pytest
from kafka_share_proxy.brokers.rights import Right, rights_of
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import World, acquired, entries

RIGHTS_S = 15.0
"""ShareOptions.rights_cache_s"""


@pytest.fixture
def world() -> World:
    share_world = World()
    share_world.configure("g", share_auto_offset_reset="earliest")
    return share_world


@pytest.mark.parametrize("wait_ms", [500, 3000, 40_000])
def test_rights_that_grow_old_during_the_wait_are_no_reason_to_hide_the_topic(world: World, wait_ms: int) -> None:
    """The client may read; its right only was not checked recently. Late records are still delivered."""
    topic = world.cluster.create("t")
    reader, waiter = world.member(member_id="a"), world.member(member_id="b")
    for member in (reader, waiter):
        member.fetch(topic, wait_ms=0)
    world.timers.advance(RIGHTS_S - 0.2)
    replies = [member.send_fetch(wait_ms=wait_ms) for member in (reader, waiter)]
    world.timers.advance(wait_ms / 1000 - 0.05)
    assert not any(reply.done for reply in replies)
    world.cluster.produce(topic, 1)
    world.timers.advance(0.1)
    assert {entry.error_code for reply in replies for entry in entries(reply.message).values()} == {0}
    assert [span for reply in replies for span in acquired(reply.message)] == [(0, 0, 1)]


def test_a_right_taken_away_during_a_long_wait_is_noticed(world: World) -> None:
    """A right that was granted when the wait began is not cached for longer than elsewhere."""
    topic = world.cluster.create("t")
    reader, waiter = world.member(member_id="a"), world.member(member_id="b")
    for member in (reader, waiter):
        member.fetch(topic, wait_ms=0)
    replies = [member.send_fetch(wait_ms=60_000) for member in (reader, waiter)]
    topic.bits = 0
    world.timers.advance(2 * RIGHTS_S)
    world.cluster.produce(topic, 1)
    world.timers.advance(40)
    for reply in replies:
        (entry,) = entries(reply.message).values()
        assert entry.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not entry.acquired_records


def test_rights_that_expire_while_the_group_is_queried_do_not_refuse_an_acknowledgement(world: World) -> None:
    """One request may get its response while another right, valid when the client's request arrived, expires."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    member = world.member()
    member.fetch(topic)
    world.timers.advance(RIGHTS_S - 0.1)
    verdicts = rights_of(member.connection).verdicts
    del verdicts[Right.READ_GROUP, "g"]
    world.cluster.held.add(ApiKey.HEARTBEAT)
    message = registry.message("ShareAcknowledgeRequest")
    batch = message.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    partition = message.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    request = message(
        group_id="g",
        member_id=member.member_id,
        share_session_epoch=member.epoch,
        topics=[message.AcknowledgeTopic(topic_id=topic.topic_id, partitions=[partition])],
    )
    reply = world.send(member.connection, 79, 2, request)
    world.timers.advance(0.5)
    assert not reply.done
    world.cluster.release()
    assert [entry.error_code for entry in entries(reply.message).values()] == [0]
