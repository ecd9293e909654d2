"""Connections of one task to leaders and coordinators, kept between requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.open_nodes import OpenNodes
from kafka_share_proxy.brokers.queries import CoordinatorOf
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import UpstreamLost
from kafka_share_proxy.wire.values import Address, TopicPartition

from tests.support.raw import Raw

pytestmark = pytest.mark.broker


def opened(kafka: Cluster) -> OpenNodes:
    host, port = kafka.bootstrap.split(":")
    return OpenNodes(ClusterClient([Address(host, int(port))], ClusterClientSettings()))


def test_requests_reach_the_leader_and_missing_partitions_are_named(
    kafka_43: Cluster, fresh: Callable[[str], str]
) -> None:
    with Raw(kafka_43.bootstrap) as raw:
        topic = raw.create_topic(fresh("topic"), 2)

    async def main() -> None:
        nodes = opened(kafka_43)
        assert await nodes.partitions_of(topic.name) == 2
        assert await nodes.partitions_of(fresh("absent")) == 0
        message = messages.ListOffsetsRequest
        asked = message.ListOffsetsTopic(
            name=topic.name, partitions=[message.ListOffsetsPartition(partition_index=1, timestamp=-1)]
        )
        request = message(replica_id=-1, topics=[asked])
        for _ in range(2):
            response = await nodes.to_leader(TopicPartition(topic.name, 1), ApiKey.LIST_OFFSETS, request, 6)
            assert response.topics[0].partitions[0].offset == 0
        with pytest.raises(UpstreamLost, match="does not exist"):
            await nodes.to_leader(TopicPartition(topic.name, 2), ApiKey.LIST_OFFSETS, request, 6)
        assert (await nodes.coordinator(CoordinatorOf.GROUP, "g")).port
        await nodes.aclose()
        await nodes.client.aclose()

    trio.run(main)
