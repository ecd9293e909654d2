"""/metrics of a running proxy that serves share groups in front of real brokers: each figure that Kafka has, moved."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import QUICK, Running
from tests.support.raw import until
from tests.support.worlds import ACCEPT, REJECT, RELEASE, RENEW, World

pytestmark = [pytest.mark.broker, pytest.mark.timeout(480)]


@pytest.fixture
def front(running: Running, kafka_39: Cluster) -> Front:
    """A separate proxy: only this many groups are shown by name."""
    return running.front(
        kafka_39.bootstrap, {"commits": {"state": "memory"}, "share_groups": {"state": "memory", "broker": QUICK}}
    )


@pytest.fixture
def w(front: Front) -> Iterator[World]:
    world = World("proxy", front.bootstrap, f"metrics-{time.monotonic_ns()}")
    yield world
    world.close()


def figures(front: Front) -> dict[str, float]:
    """Name with labels -> value."""
    page = front.send_request("/metrics")[1].splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in page if not line.startswith("#")}


def test_figures_of_share_groups_move_with_what_members_do(w: World, front: Front) -> None:
    """Acquire, renew, acknowledge in every way, let a lock end, leave: under names that Kafka's map to."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(lock_ms="5000"), topics=[t])  # longer than a pause of a busy machine

    def of(name: str, **labels: str) -> float:
        labels_text = ",".join(f'{key}="{value}"' for key, value in sorted({**labels, "group": a.group}.items()))
        return figures(front)[f"ksp_{name}{{{labels_text}}}"]

    before = figures(front)
    assert a.take(t).acquired(t) == [(0, 9, 1)]
    assert of("share_in_flight_messages") == 10
    assert of("share_in_flight_batches") == 1
    assert of("share_in_flight_batch_messages_sum") == 10
    assert of("share_topic_partitions_acquire_time_seconds_count") == 1
    assert of("share_request_topic_partitions_fetch_ratio_bucket", le="+Inf") >= 1
    assert of("share_request_topic_partitions_fetch_ratio_sum") == 1
    assert of("share_fetch_lock_time_seconds_count") >= 1
    a.acknowledge((t, 0, 0, 9, RENEW), renew=True)
    a.acknowledge((t, 0, 0, 3, ACCEPT), (t, 0, 4, 5, RELEASE), (t, 0, 6, 6, REJECT))
    for ack_type, count in (("renew", 10), ("accept", 4), ("release", 2), ("reject", 1)):
        assert of("share_record_acknowledgements_total", ack_type=ack_type) == count
    until(lambda: of("share_acquisition_lock_timeouts_total") == 3, "the end of the locks of 7 to 9")
    after = figures(front)
    for name in (
        "ksp_share_partition_load_time_seconds_count",
        "ksp_share_state_write_seconds_count",
        'ksp_served_request_seconds_count{api="ShareFetch"}',
        'ksp_served_request_seconds_count{api="ShareAcknowledge"}',
    ):
        assert after[name] > before.get(name, 0), name
    assert after["ksp_share_sessions"] >= 1
    assert after["ksp_share_session_partitions"] >= 1
    a.disconnect()
    evictions = "ksp_share_session_evictions_total"
    until(lambda: figures(front)[evictions] > after[evictions], "the end of the session")
