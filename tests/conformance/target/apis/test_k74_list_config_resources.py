"""Resources with settings."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_groups_are_listed_once_they_have_settings() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        cluster.group_configs.store("g", {"share.auto.offset.reset": "earliest"})
        caller = Caller(cluster)
        resources = (await caller.query("ListConfigResources", resource_types=[2, 32])).config_resources
        assert [(each.resource_type, each.resource_name) for each in resources] == [(2, "t"), (32, "g")]
        wrong = await caller.query("ListConfigResources", resource_types=[99])
        assert wrong.error_code == ErrorCode.UNSUPPORTED_VERSION
