"""State that a worker keeps from one task to the next (pipeline/README.md rule 5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka_share_proxy.pipeline.kafka import cluster
from kafka_share_proxy.pipeline.kafka.cluster import LATEST_TIMESTAMP, BlockingClusterClient, ReadRefused, TopicReplaced
from kafka_share_proxy.pipeline.kafka.kept_connections import KeptConnections
from kafka_share_proxy.pipeline.source.options import SourceOptions, read_options
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.values import TopicPartition

from tests.pipeline.kafka.test_cluster import Broker
from tests.support.blocking_server import BlockingServer

PLACE = TopicPartition("orders", 0)
ID = bytes(range(16))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "BACKOFF_S", 0.001)


@pytest.fixture
def connections() -> Iterator[KeptConnections]:
    kept_connections = KeptConnections()
    yield kept_connections
    kept_connections.close()


@pytest.fixture
def server() -> Iterator[BlockingServer]:
    broker = Broker()
    with BlockingServer(broker) as blocking_server:
        broker.port = blocking_server.port
        yield blocking_server


def options_of(server: BlockingServer, **options: str) -> SourceOptions:
    return read_options({"bootstrap": server.bootstrap, "topic": "orders", "timeoutMs": "20000", **options})


def task(connections: KeptConnections, options: SourceOptions) -> None:
    with connections.cluster(options) as client:
        assert client.offsets([PLACE], LATEST_TIMESTAMP) == {PLACE: 109}


def dialled(server: BlockingServer) -> int:
    return sum(key == ApiKey.API_VERSIONS for key, _ in server.requested)


def metadata_requests(server: BlockingServer) -> int:
    return sum(key == ApiKey.METADATA for key, _ in server.requested)


def test_the_next_task_dials_no_broker_and_knows_the_leader(
    connections: KeptConnections, server: BlockingServer
) -> None:
    for _ in range(3):
        with connections.cluster(options_of(server)) as client:
            assert client.leader(PLACE, ID).versions
    assert (dialled(server), metadata_requests(server)) == (1, 1)


def test_other_partitions_and_other_ids_of_a_topic_are_requested(
    connections: KeptConnections, server: BlockingServer
) -> None:
    with connections.cluster(options_of(server)) as client:
        client.leader(PLACE, ID)
    with connections.cluster(options_of(server)) as client, pytest.raises(ReadRefused, match="orders-7 does not exist"):
        client.leader(TopicPartition("orders", 7), ID)
    with connections.cluster(options_of(server)) as client, pytest.raises(TopicReplaced):
        client.leader(PLACE, bytes(15) + b"\1")
    assert metadata_requests(server) == 3


def test_a_wrong_leader_is_looked_up_again(connections: KeptConnections, server: BlockingServer) -> None:
    with connections.cluster(options_of(server)) as client:
        client.leader(PLACE, ID)
    with connections.cluster(options_of(server)) as client:
        client.forget()
        client.leader(PLACE, ID)
    assert metadata_requests(server) == 2


def test_other_options_have_other_connections(connections: KeptConnections, server: BlockingServer) -> None:
    task(connections, options_of(server))
    task(connections, options_of(server, clientId="another"))
    assert dialled(server) == 2


def test_a_task_that_fails_keeps_none(connections: KeptConnections, server: BlockingServer) -> None:
    def fail(client: BlockingClusterClient) -> None:
        client.topics(["orders"])
        raise ValueError("the sink refuses")

    with pytest.raises(ValueError, match="the sink refuses"), connections.cluster(options_of(server)) as client:
        fail(client)
    task(connections, options_of(server))
    assert dialled(server) == 2


def test_a_pending_response_is_not_used_by_the_next_task(connections: KeptConnections, server: BlockingServer) -> None:
    with connections.cluster(options_of(server)) as client:
        connection = client.any_connection()
        request: Any = cluster.messages.MetadataRequest(topics=[])
        connection.send(ApiKey.METADATA, request, connection.version(ApiKey.METADATA, 12))
    task(connections, options_of(server))
    assert dialled(server) == 2


def test_what_the_server_closed_meanwhile_is_dialled_again(
    connections: KeptConnections, server: BlockingServer
) -> None:
    task(connections, options_of(server))
    server.cut()
    task(connections, options_of(server))
    assert dialled(server) == 2
