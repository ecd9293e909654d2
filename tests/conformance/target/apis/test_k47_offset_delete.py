"""Deletion of committed offsets."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.apis.k47_offset_delete import classic_topics
from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def delete(caller: Caller, group: str) -> tuple[int, list[int]]:
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    response = await caller.query("OffsetDelete", group_id=group, topics=topics)
    return response.error_code, [each.error_code for topic in response.topics for each in topic.partitions]


async def test_offsets_of_subscribed_topics_stay() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.commit("g", "t", 1)
        assert await delete(caller, "g") == (0, [0])
        assert await caller.committed("g", "t") == (0, -1)
        await caller.join_consumer("k", "m", "t")
        assert await delete(caller, "k") == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
        await caller.only_member("unreadable")
        assert await delete(caller, "unreadable") == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
        assert await delete(caller, "none") == (ErrorCode.GROUP_ID_NOT_FOUND, [])


async def test_topics_are_read_from_the_metadata_and_other_bytes_cannot_be_read() -> None:
    async with running_cluster() as cluster:
        subscription = messages.ConsumerProtocolSubscription(topics=["a", "b"])
        metadata = b"\0\1" + bytes(registry.codec_of(messages.ConsumerProtocolSubscription, 1).encode(subscription))
        subscribed_topics = []
        for group_id, each in (("g", metadata), ("h", b"?")):
            caller = Caller(cluster)
            protocols = [{"name": "range", "metadata": each}]
            member_id = (await caller.join(group_id, protocols=protocols)).member_id
            await caller.join(group_id, member_id, protocols=protocols)
            group = cluster.groups.get(group_id)
            assert isinstance(group, ClassicGroup)
            subscribed_topics.append(classic_topics(group))
        assert subscribed_topics == [{"a", "b"}, None]
