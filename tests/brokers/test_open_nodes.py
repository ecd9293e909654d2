"""Connections of one task to leaders and coordinators, kept between requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import trio
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.open_nodes import TRIES, CoordinatorRefused, OpenNodes
from kafka_share_proxy.brokers.queries import CoordinatorOf
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from kafka_share_proxy.wire.values import Address, TopicPartition
from trio.testing import MockClock

from tests.support.raw import Raw


def opened(kafka: Cluster) -> OpenNodes:
    host, port = kafka.bootstrap.split(":")
    return OpenNodes(ClusterClient([Address(host, int(port))], ClusterClientSettings()))


@pytest.mark.broker
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
        requested = message.ListOffsetsTopic(
            name=topic.name, partitions=[message.ListOffsetsPartition(partition_index=1, timestamp=-1)]
        )
        request = message(replica_id=-1, topics=[requested])
        for _ in range(2):
            response = await nodes.to_leader(TopicPartition(topic.name, 1), ApiKey.LIST_OFFSETS, request, 6)
            assert response.topics[0].partitions[0].offset == 0
        with pytest.raises(UpstreamLost, match="does not exist"):
            await nodes.to_leader(TopicPartition(topic.name, 2), ApiKey.LIST_OFFSETS, request, 6)
        assert (await nodes.coordinator(CoordinatorOf.GROUP, "g")).port
        await nodes.aclose()
        await nodes.client.aclose()

    trio.run(main)


class Client:
    """Client that gets these codes; the last one is repeated."""

    settings = ClusterClientSettings()

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes, self.requests = list(codes), 0

    async def send_request(self, key: int, request: Any) -> tuple[Any, None]:
        assert (key, request.coordinator_keys) == (10, ["g"])
        code = self.codes[min(self.requests, len(self.codes) - 1)]
        self.requests += 1
        response = registry.message("FindCoordinatorResponse")
        entry = response.Coordinator(key="g", node_id=2, host="inner", port=9092, error_code=code)
        return response(coordinators=[entry]), None

    def address_of(self, node_id: int, advertised: Address) -> Address:
        return Address(f"outer-{node_id}", advertised.port)


async def test_coordinator_is_waited_for(autojump_clock: MockClock) -> None:
    """The first look-up makes the brokers create the offsets topic."""
    client: Any = Client(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE)
    assert await OpenNodes(client).coordinator(CoordinatorOf.GROUP, "g") == Address("outer-2", 9092)
    assert client.requests == 3


@pytest.mark.parametrize(
    ("code", "requests"), [(ErrorCode.GROUP_AUTHORIZATION_FAILED, 1), (ErrorCode.COORDINATOR_NOT_AVAILABLE, TRIES)]
)
async def test_refusal_says_why(autojump_clock: MockClock, code: ErrorCode, requests: int) -> None:
    client: Any = Client(code)
    with pytest.raises(CoordinatorRefused, match=code.name):
        await OpenNodes(client).coordinator(CoordinatorOf.GROUP, "g")
    assert client.requests == requests


class Coordinator(OpenNodes):
    """Coordinator that responds to OffsetFetch with these codes, of the group and of its only partition."""

    def __init__(self, *codes: tuple[ErrorCode, ErrorCode]) -> None:
        super().__init__(cast("ClusterClient", Client(ErrorCode.NONE)))
        self.codes, self.requests = list(codes), 0

    async def send_request(self, address: Address, key: int, request: Any, version: int) -> Any:
        assert (address, key, request.groups[0].group_id) == (Address("outer-2", 9092), ApiKey.OFFSET_FETCH, "g")
        group_code, code = self.codes[min(self.requests, len(self.codes) - 1)]
        self.requests += 1
        response = messages.OffsetFetchResponse
        entry = response.OffsetFetchResponsePartitions(partition_index=0, committed_offset=7, error_code=code)
        topic = response.OffsetFetchResponseTopics(name="t", partitions=[entry])
        group = response.OffsetFetchResponseGroup(group_id="g", topics=[topic], error_code=group_code)
        return response(groups=[group])


def offsets_of_g() -> messages.OffsetFetchRequest:
    message = messages.OffsetFetchRequest
    return message(groups=[message.OffsetFetchRequestGroup(group_id="g", topics=None)])


async def test_committed_offsets_wait_for_their_coordinator_and_for_an_open_transaction(
    autojump_clock: MockClock,
) -> None:
    nodes = Coordinator(
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NONE),
        (ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        (ErrorCode.NONE, ErrorCode.NONE),
    )
    group = await nodes.committed_offsets(offsets_of_g())
    assert (nodes.requests, group.topics[0].partitions[0].committed_offset) == (4, 7)


@pytest.mark.parametrize(
    ("code", "requests"), [(ErrorCode.GROUP_AUTHORIZATION_FAILED, 1), (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, TRIES)]
)
async def test_a_refused_group_is_named_with_the_reason(
    autojump_clock: MockClock, code: ErrorCode, requests: int
) -> None:
    nodes = Coordinator((code, ErrorCode.NONE))
    with pytest.raises(CoordinatorRefused, match=f"offsets of group g: {code.name}"):
        await nodes.committed_offsets(offsets_of_g())
    assert nodes.requests == requests


async def test_the_error_of_a_partition_is_returned_with_it(autojump_clock: MockClock) -> None:
    nodes = Coordinator((ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    group = await nodes.committed_offsets(offsets_of_g())
    assert (nodes.requests, group.topics[0].partitions[0].error_code) == (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
