"""Replacement of all settings."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_settings_that_are_not_named_are_removed() -> None:
    async with running_cluster() as cluster:
        topic = cluster.create_topic("t", configs={"retention.ms": "7"})
        codes = []
        for value in ("x", "8"):
            configs = [{"name": "segment.ms", "value": value}]
            resource = {"resource_type": 2, "resource_name": "t", "configs": configs}
            codes.append((await Caller(cluster).query("AlterConfigs", resources=[resource])).responses[0].error_code)
        assert codes == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
        assert topic.configs.stored == {"segment.ms": "8"}
