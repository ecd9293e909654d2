"""The proxy in front of the target: without Java, a stock client has share groups, views and individual commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from kafka_share_proxy.conformance.cluster_thread import KafkaCluster, running_cluster
from kafka_share_proxy.conformance.suite.all_cases import ALL_CASES
from kafka_share_proxy.conformance.suite.dialling import Dialling
from kafka_share_proxy.conformance.suite.outcomes import Status
from kafka_share_proxy.conformance.suite.runner import run_suite
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.values import Address

from tests.support.raw import Raw

TOPIC, GROUP = "orders", "workers"
RECORDS = 20
LIMIT_S, POLL_S = 30.0, 0.2
LOCAL = {"share_groups": {"serve": "local"}}
EARLIEST = {"share.auto.offset.reset": "earliest"}


@pytest.fixture(scope="module")
def target() -> Iterator[KafkaCluster]:
    with running_cluster() as cluster:
        cluster.create_topic(TOPIC, 2)
        yield cluster
        assert cluster.failures() == []


@pytest.fixture(scope="module")
def proxy(target: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A proxy that serves share groups itself, although the target could."""
    with Front(target.bootstrap, tmp_path_factory.mktemp("proxy"), LOCAL) as front:
        yield front


@pytest.fixture(scope="module")
def values(proxy: Front) -> set[bytes]:
    """Values of the records in the topic."""
    producer = Producer({"bootstrap.servers": proxy.bootstrap})
    produced = {b"job %d" % number for number in range(RECORDS)}
    for value in sorted(produced):
        producer.produce(TOPIC, value, key=value)
    assert producer.flush(LIMIT_S) == 0
    return produced


def received(poll: Callable[[], Iterable[Any]]) -> list[Any]:
    """Poll until there are RECORDS records."""
    records: list[Any] = []
    end = time.monotonic() + LIMIT_S
    while len(records) < RECORDS and time.monotonic() < end:
        records += poll()
    return records


def topics_of(target: KafkaCluster) -> set[str]:
    return {topic["name"] for topic in target.state()["topics"]}


def consumer_of(proxy: Front, group: str, **settings: Any) -> Consumer:
    common = {"bootstrap.servers": proxy.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    return Consumer({**common, "enable.auto.commit": False, **settings})


def test_a_stock_client_shares(proxy: Front, target: KafkaCluster, values: set[bytes]) -> None:
    with Raw(proxy.bootstrap) as raw:
        raw.configure_group(GROUP, EARLIEST)
    consumer = ShareConsumer({"bootstrap.servers": proxy.bootstrap, "group.id": GROUP})
    consumer.subscribe([TOPIC])
    records = received(lambda: consumer.poll(timeout=POLL_S))
    consumer.close()
    assert {record.value() for record in records} == values
    assert "__proxy_share_state" in topics_of(target)


def test_share_groups_of_three_nodes_differ_only_where_declared(proxy: Front) -> None:
    chosen = ALL_CASES.select(patterns=["share-groups.list", "share-groups.nodes", "share-groups.membership.unknown"])
    host, port = proxy.bootstrap.split(":")
    report = trio.run(partial(run_suite, Dialling([Address(host, int(port))]), chosen, lambda _: None))
    assert {each.case.id: f"{each.reason}: {each.expected}, {each.actual}" for each in report.failed} == {}
    assert {each.case.id for each in report.outcomes if each.status is Status.DIFFERS} == {
        "share-groups.list.at-the-coordinator",
        "share-groups.membership.unknown-group",
        "share-groups.nodes.alter-offsets",
        "share-groups.nodes.delete-offsets",
        "share-groups.nodes.describe",
        "share-groups.nodes.describe-offsets",
        "share-groups.nodes.heartbeat",
    }


def test_a_stock_client_reads_a_view(proxy: Front, target: KafkaCluster, values: set[bytes]) -> None:
    view = f"__view.r2.{TOPIC}"
    consumer = consumer_of(proxy, "viewers")
    consumer.subscribe([view])
    records = received(lambda: consumer.consume(RECORDS, POLL_S))
    consumer.commit(asynchronous=False)
    consumer.close()
    assert {record.value() for record in records} == values
    assert {record.topic() for record in records} == {view}
    assert len({record.partition() for record in records}) > 2, "records of both slots"
    assert "__proxy_views" in topics_of(target), "the proxy serves the view"


def test_a_stock_client_commits_individual_offsets(proxy: Front, values: set[bytes]) -> None:
    consumer = consumer_of(proxy, "committers")
    first = TopicPartition(TOPIC, 0, 0, metadata="ic/1;0-1,3-3")
    committed = consumer.commit(offsets=[first], asynchronous=False)
    assert [each.error for each in committed or ()] == [None]
    (stored,) = consumer.committed([TopicPartition(TOPIC, 0)], LIMIT_S)
    consumer.close()
    assert (stored.offset, stored.metadata) == (2, "ic/1;3-3")
