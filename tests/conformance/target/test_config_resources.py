"""Resources with settings."""

from __future__ import annotations

import dataclasses

from kafka_share_proxy.conformance.target.cluster_settings import ClusterSettings
from kafka_share_proxy.conformance.target.config_resources import (
    BROKER_NAMES,
    ConfigRefused,
    ConfigResource,
    find_resource,
)

from tests.support.target_caller import running_cluster


async def test_settings_of_nodes_are_read_only() -> None:
    async with running_cluster() as cluster:
        node = find_resource(cluster, 4, "1")
        assert isinstance(node, ConfigResource)
        assert (node.is_read_only, node.stored["auto.create.topics.enable"]) == (True, "true")
        assert isinstance(find_resource(cluster, 4, "2"), ConfigRefused)
        assert isinstance(find_resource(cluster, 32, ""), ConfigRefused)


def test_every_setting_has_its_name_in_kafka() -> None:
    assert {each.name for each in dataclasses.fields(ClusterSettings)} == set(BROKER_NAMES)
