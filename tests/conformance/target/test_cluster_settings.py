"""Settings of a cluster."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.cluster_settings import ClusterSettings
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_topics_are_not_created_where_that_is_off() -> None:
    async with running_cluster(settings=ClusterSettings(auto_create_topics=False)) as cluster:
        await Caller(cluster).query("Metadata", topics=[{"name": "t"}])
        assert cluster.topics.with_name("t") is None


async def test_the_size_of_groups_is_limited() -> None:
    async with running_cluster(settings=ClusterSettings(group_size_max=1)) as cluster:
        caller = Caller(cluster)
        await caller.only_member("g")
        assert (await caller.join("g")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
