"""Settings with their origin."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def describe(caller: Caller, kind: int, name: str, **values: object) -> object:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None, **values}
    return (await caller.query("DescribeConfigs", resources=[resource], include_synonyms=True)).results[0]


async def test_stored_values_and_defaults_differ_by_their_source() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t", configs={"retention.ms": "7"})
        described = await describe(Caller(cluster), 2, "t", configuration_keys=["retention.ms", "segment.ms"])
        configs = {each.name: (each.value, each.config_source) for each in described.configs}  # type: ignore[attr-defined]
        assert configs == {"retention.ms": ("7", 1), "segment.ms": ("604800000", 5)}


async def test_groups_nodes_and_unknown_resources() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        group, node, topic, other = [
            await describe(caller, *each) for each in ((32, "g"), (4, "1"), (2, "t"), (99, "x"))
        ]
        assert "share.record.lock.duration.ms" in [each.name for each in group.configs]  # type: ignore[attr-defined]
        assert all(each.read_only for each in node.configs)  # type: ignore[attr-defined]
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # type: ignore[attr-defined]
        assert other.error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]
