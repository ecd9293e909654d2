"""Topics in the metadata of classic members."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.conformance.target.subscribed_topics import classic_topics
from kafka_share_proxy.wire.definitions import messages, registry

from tests.support.target_caller import Caller, running_cluster


async def test_topics_are_read_from_the_metadata_and_other_bytes_cannot_be_read() -> None:
    async with running_cluster() as cluster:
        subscription = messages.ConsumerProtocolSubscription(topics=["a", "b"])
        metadata = b"\0\1" + bytes(registry.codec_of(messages.ConsumerProtocolSubscription, 1).encode(subscription))
        found = []
        for group_id, each in (("g", metadata), ("h", b"?")):
            caller = Caller(cluster)
            protocols = [{"name": "range", "metadata": each}]
            member_id = (await caller.join(group_id, protocols=protocols)).member_id
            await caller.join(group_id, member_id, protocols=protocols)
            group = cluster.groups.get(group_id)
            assert isinstance(group, ClassicGroup)
            found.append(classic_topics(group))
        assert found == [{"a", "b"}, None]
