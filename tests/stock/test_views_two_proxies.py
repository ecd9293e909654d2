"""The same views through two proxies that know of each other only what the cluster keeps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.views import state_records
from kafka_share_proxy.views.model.catalog import Binding, ViewCatalog
from kafka_share_proxy.wire.records import records

from tests.support.brokers import VIEWS, Running
from tests.support.raw import Raw, Topic, until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(480)]

BASES, SLOTS, CLIENTS = 3, 4, 3
"""This many clients of either proxy each request the views of this many bases."""
Fresh = Callable[[str], str]


@pytest.fixture
def front(request: pytest.FixtureRequest) -> Front:
    """The proxy that other tests use."""
    front: Front = request.getfixturevalue(f"views_{request.param}")
    return front


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Cluster:
    cluster: Cluster = request.getfixturevalue(f"kafka_{request.node.callspec.params['front']}")
    return cluster


@pytest.fixture(scope="module")
def other_fronts(running: Running) -> Callable[[Cluster], Front]:
    """A proxy more in front of a cluster, one for all tests of this file."""
    fronts_by_cluster: dict[str, Front] = {}

    def other(kafka: Cluster) -> Front:
        if kafka.bootstrap not in fronts_by_cluster:
            fronts_by_cluster[kafka.bootstrap] = running.front(kafka.bootstrap, VIEWS)
        return fronts_by_cluster[kafka.bootstrap]

    return other


def at_once(fronts: Sequence[Front], views: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return what Metadata says of the views, which all clients of all proxies create at the same moment."""
    started = threading.Barrier(len(fronts) * CLIENTS)

    def send_request(front: Front) -> Mapping[str, Any]:
        with Raw(front.bootstrap) as raw:
            raw.brokers()
            started.wait(20)
            first = [{"partition_index": 0, "timestamp": -2, "current_leader_epoch": -1}]
            topics = [{"name": view, "partitions": first} for view in views]
            listed = raw.send_request("ListOffsets", 7, replica_id=-1, isolation_level=0, topics=topics)
            assert {topic.partitions[0].error_code for topic in listed.topics} == {0}
            response = raw.send_request("Metadata", 12, topics=[{"name": view} for view in views])
            return {topic.name: topic for topic in response.topics}

    with ThreadPoolExecutor(len(fronts) * CLIENTS) as pool:
        return list(pool.map(send_request, list(fronts) * CLIENTS))


def stored_bindings(broker: Raw) -> Mapping[str, Binding | None]:
    """Return what the cluster keeps about views, by name."""
    topic = broker.topic(state_records.TOPIC)
    assert topic is not None
    catalog = ViewCatalog()
    response = broker.send_request(
        "Fetch", 12, on=broker.kept(broker.node(topic.leaders[0])), max_wait_ms=100, min_bytes=1, max_bytes=1 << 24,
        session_id=0, session_epoch=-1,
        topics=[{"topic": topic.name, "partitions": [
            {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 24, "current_leader_epoch": -1}
        ]}],
    )  # fmt: skip
    data = memoryview(response.responses[0].partitions[0].records or b"")
    for batch in records.iter_batches(data):
        for record in records.decode_records(data[batch.position : batch.end]):
            state_records.take_in(catalog, record.key, record.value)
    return {name: catalog.binding(name) for name in catalog.bound}


def check(described: Sequence[Mapping[str, Any]], bases: Mapping[str, Topic], broker: Raw, partitions: int) -> None:
    """Everybody was shown the same topics, which belong to their bases."""
    bindings = stored_bindings(broker)
    for view, base in bases.items():
        assert {topics[view].error_code for topics in described} == {0}
        # A client that looks while the other proxy replaces the topic is shown a view without one.
        (view_id,) = {bytes(topics[view].topic_id) for topics in described} - {bytes(16)}
        assert {len(topics[view].partitions) for topics in described} == {partitions}
        there = broker.topic(view)
        assert there is not None
        assert (there.topic_id, len(there.leaders)) == (view_id, partitions)
        assert bindings[view] == Binding(view_id, base.topic_id)


@pytest.mark.parametrize("front", ["39", "43"], indirect=True)
def test_clients_of_both_make_the_same_views_at_the_same_moment(
    front: Front, kafka: Cluster, other_fronts: Callable[[Cluster], Front], fresh: Fresh
) -> None:
    """Each view has one topic, whichever proxy created it; also when they grow, and when their bases are created
    again.
    """
    fronts = [front, other_fronts(kafka)]
    with Raw(kafka.bootstrap) as broker:
        bases = {
            f"__view.r{SLOTS}.{base.name}": base for base in (broker.create_topic(fresh("b")) for _ in range(BASES))
        }
        check(at_once(fronts, list(bases)), bases, broker, SLOTS)
        grown = {view: broker.add_partitions(base, 2) for view, base in bases.items()}
        check(at_once(fronts, list(bases)), grown, broker, 2 * SLOTS)
        before = {view: broker.topic(view) for view in bases}
        for base in grown.values():
            broker.delete_topic(base)
        anew = {view: broker.create_topic(base.name) for view, base in bases.items()}
        check(at_once(fronts, list(bases)), anew, broker, SLOTS)
        for view in bases:
            until(lambda view=view: broker.topic(view).topic_id != before[view].topic_id, f"{view} made anew")
        for base in anew.values():
            broker.append(base, records.build_batch(0, [records.Record(key=b"k", value=b"v", timestamp=1)]))
        for each in fronts:
            with Raw(each.bootstrap) as raw:
                ends = [
                    raw.end_offset(topic, slot) for view in bases for slot in range(SLOTS) if (topic := raw.topic(view))
                ]
                assert ends == [1] * BASES * SLOTS
