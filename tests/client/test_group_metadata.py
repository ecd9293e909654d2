"""The bytes are those of confluent-kafka."""

from __future__ import annotations

import confluent_kafka
import pytest
import trio
from kafka_share_proxy.client.group_metadata import group_metadata
from kafka_share_proxy.consumer.groups.classic_messages import MemberIdentity
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.application import until
from tests.client.cluster import cluster
from tests.consumer.world import FakeKafka

A0 = TopicPartition("a", 0)


@pytest.mark.parametrize("instance_id", [None, "one"])
def test_a_member_is_written_as_confluent_kafka_writes_its_own(instance_id: str | None) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "groß", "log_level": 0}
    theirs = confluent_kafka.Consumer(settings | ({"group.instance.id": instance_id} if instance_id else {}))
    try:
        assert group_metadata("groß", MemberIdentity(instance_id=instance_id)) == theirs.consumer_group_metadata()
    finally:
        theirs.close()


async def test_group_metadata_name_the_current_member(autojump_clock: trio.testing.MockClock) -> None:
    kafka = FakeKafka(a=1)
    async with cluster(kafka) as brokers, brokers.consumer(group="g", topics=["a"]) as reader:
        await until(reader, lambda: reader.assignment == {A0})
        (member_id,) = kafka.group.members
        assert reader.group_metadata() == group_metadata("g", MemberIdentity(member_id, kafka.group.generation))
        reader.assign([A0])
        assert reader.group_metadata() == group_metadata("g", MemberIdentity())
    async with cluster(kafka) as brokers, brokers.consumer(partitions=[A0]) as reader:
        with pytest.raises(ConfigurationError, match="needs a group"):
            reader.group_metadata()
