"""Slots of a view that are read together are committed together."""

from __future__ import annotations

from kafka_share_proxy.consumer.events import Assign, Commit
from kafka_share_proxy.consumer.fetch.key_filter import slots_of
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.world import FakeKafka, Member, World

P = TopicPartition("a", 0)
VIEW = "__view.r4.a"


def reader(**committed: int) -> tuple[World, Member]:
    kafka = FakeKafka(a=1, **{VIEW: 4})
    kafka.produce(P, 100)
    for slot, offset in committed.items():
        kafka.committed[TopicPartition(VIEW, int(slot[1:]))] = offset
    world = World(kafka)
    member = world.member("a", key_filter=slots_of(4, [1, 2]))
    member.handle(Assign(frozenset({P})))
    return world, member


def test_all_slots_go_into_one_request_under_the_views_name() -> None:
    world, member = reader()
    world.until(lambda: len(member.got) == 100, [member])  # filtered where records are opened
    member.handle(Commit(5, {P: OffsetAndMetadata(60)}))
    world.run(1, [member])
    assert member.results()[5].value is None
    assert world.kafka.committed == {TopicPartition(VIEW, 1): 60, TopicPartition(VIEW, 2): 60}
    assert world.kafka.wire.count("a OffsetCommit") == 1


def test_the_lowest_offset_of_the_slots_is_where_they_begin() -> None:
    world, member = reader(s1=80, s2=70, s3=5)
    world.until(lambda: len(member.got) == 30, [member])
    assert member.got[0] == (P, 70)


def test_a_slot_without_an_offset_uses_the_reset_policy() -> None:
    world, member = reader(s1=80)
    world.until(lambda: len(member.got) == 100, [member])


def test_the_view_is_named_so_that_it_is_made() -> None:
    world, member = reader()
    world.run(1, [member])
    assert member.core.metadata.topic_id(VIEW) is not None
