"""The topic of a group's dead letters is the one in its settings; at real brokers see tests/stock."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.sharegroups.dead_letters.group_topic import topic_of
from kafka_share_proxy.wire.values import Address

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("cluster", ["kafka_39", "kafka_43"])
def test_a_group_without_the_setting_has_no_topic(
    cluster: str, request: pytest.FixtureRequest, fresh: Callable[[str], str]
) -> None:
    """Neither in the state of a proxy nor at the brokers, of which 3.9 has no settings of groups."""
    kafka: Cluster = request.getfixturevalue(cluster)
    host, port = kafka.bootstrap.split(":")

    async def found() -> str:
        client = ClusterClient([Address(host, int(port))], ClusterClientSettings())
        try:
            return await topic_of(client, fresh("group"))
        finally:
            await client.aclose()

    assert trio.run(found) == ""
