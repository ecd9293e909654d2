"""Changes of single settings."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def alter(caller: Caller, kind: int, name: str, *changes: tuple[str, int, str | None]) -> int:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return int((await caller.query("IncrementalAlterConfigs", resources=[resource])).responses[0].error_code)


async def test_values_are_set_deleted_appended_and_subtracted() -> None:
    async with running_cluster() as cluster:
        topic = cluster.create_topic("t", configs={"retention.ms": "7"})
        caller = Caller(cluster)
        assert await alter(caller, 2, "t", ("retention.ms", 1, None), ("cleanup.policy", 2, "compact")) == 0
        assert topic.configs.stored == {"cleanup.policy": "delete,compact"}
        assert await alter(caller, 2, "t", ("cleanup.policy", 3, "delete")) == 0
        assert topic.configs.stored == {"cleanup.policy": "compact"}


async def test_settings_of_groups_are_checked_together() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        assert await alter(caller, 32, "g", ("share.record.lock.duration.ms", 0, "15000")) == 0
        assert cluster.share.coordinator.settings("g").lock_duration_s == 15
        assert await alter(caller, 32, "g", ("consumer.session.timeout.ms", 0, "1")) == ErrorCode.INVALID_CONFIG
        assert await alter(caller, 4, "1", ("num.partitions", 0, "1")) == ErrorCode.INVALID_CONFIG
        twice = [("retention.ms", 0, "1"), ("retention.ms", 0, "2")]
        cluster.create_topic("t")
        assert await alter(caller, 2, "t", *twice) == ErrorCode.INVALID_REQUEST
