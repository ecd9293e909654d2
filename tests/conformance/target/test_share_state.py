"""Share groups of a cluster."""

from __future__ import annotations

from kafka_share_proxy.sharegroups.model.coordinator import ShareKey

from tests.support.target_caller import Caller, batch, running_cluster


async def test_state_of_a_deleted_topic_is_dropped() -> None:
    async with running_cluster() as cluster:
        topic_id = cluster.create_topic("t").topic_id
        caller = Caller(cluster)
        await caller.share_fetch("g", topic_id, 0)
        assert cluster.share.coordinator.keys_of("g") == (ShareKey("g", topic_id, 0),)
        cluster.delete_topic("t")
        assert cluster.share.coordinator.keys_of("g") == ()


async def test_records_outside_of_the_log_are_dropped() -> None:
    async with running_cluster() as cluster:
        topic = cluster.create_topic("t")
        cluster.group_configs.store("g", {"share.auto.offset.reset": "earliest"})
        caller = Caller(cluster)
        for text in "abc":
            await caller.produce("t", batch(text))
        await caller.share_fetch("g", topic.topic_id, 0)
        cluster.delete_records("t", 0, 2)
        share = cluster.share.share(ShareKey("g", topic.topic_id, 0), topic.partitions[0])
        assert share is not None
        assert share.partition.start_offset == 2


async def test_groups_begin_where_their_setting_says() -> None:
    async with running_cluster() as cluster:
        topic = cluster.create_topic("t")
        await Caller(cluster).produce("t", batch("a"))
        offsets = {}
        for reset in ("earliest", "latest", "by_duration:PT1H"):
            cluster.group_configs.store(reset, {"share.auto.offset.reset": reset})
            share = cluster.share.start(ShareKey(reset, topic.topic_id, 0), topic.partitions[0])
            offsets[reset] = share.partition.start_offset
        assert offsets == {"earliest": 0, "latest": 1, "by_duration:PT1H": 0}
