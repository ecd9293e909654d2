"""Requests to a cluster, and their number (pipeline/README.md rules 6 and 7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka_share_proxy.pipeline.kafka import cluster
from kafka_share_proxy.pipeline.kafka.cluster import (
    ATTEMPTS_MAX,
    BlockingClusterClient,
    Deadline,
    ReadRefused,
    TopicReplaced,
    TryAgain,
    Unavailable,
)
from kafka_share_proxy.pipeline.source.options import read_options
from kafka_share_proxy.wire.codec.headers import RequestHeader
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.blocking_server import BlockingServer

PLACE = TopicPartition("orders", 0)
ID = bytes(range(16))


class Broker:
    """One node with one partition, and error codes for its first responses."""

    def __init__(self, topic_codes: list[int] | None = None, offset_codes: list[int] | None = None) -> None:
        self.topic_codes, self.offset_codes = topic_codes or [], offset_codes or []
        self.leader = 1
        self.port = 0

    def __call__(self, header: RequestHeader, request: Any) -> Any:
        return self.metadata() if header.key == ApiKey.METADATA else self.offsets(request)

    def metadata(self) -> messages.MetadataResponse:
        response = messages.MetadataResponse
        code = self.topic_codes.pop(0) if self.topic_codes else 0
        partition = response.MetadataResponsePartition(partition_index=0, leader_id=self.leader)
        topic = response.MetadataResponseTopic(error_code=code, name="orders", topic_id=ID, partitions=[partition])
        return response(
            brokers=[response.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)], topics=[topic]
        )

    def offsets(self, request: Any) -> messages.ListOffsetsResponse:
        response = messages.ListOffsetsResponse
        code = self.offset_codes.pop(0) if self.offset_codes else 0
        offset = 100 + request.topics[0].partitions[0].timestamp + 10 * request.isolation_level
        entry = response.ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=offset)
        return response(topics=[response.ListOffsetsTopicResponse(name="orders", partitions=[entry])])


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "BACKOFF_S", 0.001)


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def client(broker: Broker) -> Iterator[BlockingClusterClient]:
    with BlockingServer(broker) as server:
        broker.port = server.port
        options = {"bootstrap": server.bootstrap, "topic": "orders", "timeoutMs": "20000"}
        with BlockingClusterClient(read_options(options)) as opened:
            yield opened


def test_topics_and_offsets_are_returned(client: BlockingClusterClient) -> None:
    assert client.topics(["orders"]) == {"orders": (ID, {0: 1})}
    assert client.offsets([PLACE], cluster.EARLIEST_TIMESTAMP) == {PLACE: 108}
    assert client.offsets([], cluster.LATEST_TIMESTAMP) == {}


def test_retriable_errors_are_retried_with_new_metadata(client: BlockingClusterClient, broker: Broker) -> None:
    broker.topic_codes = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE]
    broker.offset_codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert client.topics(["orders"])["orders"].topic_id == ID
    assert client.offsets([PLACE], cluster.LATEST_TIMESTAMP) == {PLACE: 109}


def test_permanent_errors_are_raised_immediately(client: BlockingClusterClient, broker: Broker) -> None:
    broker.topic_codes = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(ReadRefused, match=r"topic orders: TOPIC_AUTHORIZATION_FAILED \(29\)"):
        client.topics(["orders"])
    with pytest.raises(ReadRefused, match="orders-7 does not exist"):
        client.offsets([TopicPartition("orders", 7)], cluster.LATEST_TIMESTAMP)


def test_a_topic_that_was_made_anew_is_not_read(client: BlockingClusterClient) -> None:
    assert client.leader(PLACE, ID).versions
    with pytest.raises(TopicReplaced, match="deleted and created again"):
        client.leader(PLACE, bytes(15) + b"\1")


def test_a_partition_without_leader_may_get_one(client: BlockingClusterClient, broker: Broker) -> None:
    broker.leader = -1
    with pytest.raises(TryAgain, match="has no leader"):
        client.leader(PLACE, ID)


def test_attempts_end_by_time_and_by_number() -> None:
    now = [0.0]
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    deadline = Deadline(5.0, lambda: now[0], sleep)
    with pytest.raises(Unavailable, match=r"nobody is there \(\d+ attempts, timeoutMs=5000\)"):
        wait_for_ever(deadline)
    assert sum(slept) < 5.0
    deadline.restart()
    assert not deadline.is_over
    with pytest.raises(Unavailable, match=f"{ATTEMPTS_MAX} attempts"):
        wait_for_ever(Deadline(1e9, lambda: 0.0, lambda _seconds: None))


def wait_for_ever(deadline: Deadline) -> None:
    for _ in range(ATTEMPTS_MAX + 1):
        deadline.wait("nobody is there")
