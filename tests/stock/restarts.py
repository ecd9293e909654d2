"""Orderly restart of a node as a share group sees it, natively and through the proxy (items 100 to 102 and 125 of
tests/oracle).
"""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Callable

from confluent_kafka import ShareConsumer
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.raw import Raw, Topic, until
from tests.support.worlds import ACCEPT, RELEASE, Member, World

LEAVES, STAYS = 3, 2
CLOSE_MAX_S = 5.0
MOVING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)
PREFERRED = 0
"""ElectLeaders gives partitions back to their first replica."""
GROUPS_TRIED = 200
SHARE_KEY = 2
"""Key type of the share coordinator in FindCoordinator."""

KeptAt = Callable[[str, Topic], set[int]]
"""The nodes that the state of a group and of a topic's partition is at."""


def native_coordinators(raw: Raw) -> KeptAt:
    """The coordinator of the group, and that of the share partition."""

    def kept_at(group: str, topic: Topic) -> set[int]:
        topic_id = base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("=")
        response = raw.send_request(
            "FindCoordinator", 6, key_type=SHARE_KEY, coordinator_keys=[f"{group}:{topic_id}:0"]
        )
        (coordinator,) = response.coordinators
        at_group = next(node for node, address in raw.brokers().items() if address == raw.coordinator(group))
        return {at_group, coordinator.node_id}

    return kept_at


def _group_at(node: int, kafka: Cluster, name: str, topic: Topic, kept_at: KeptAt) -> str:
    """The id of a group whose state is at this node; where the node was away before, it leads again what it should."""
    group_ids: list[str] = []

    def find_group() -> bool:
        with Raw(kafka.bootstrap) as raw:
            raw.send_request("ElectLeaders", 2, election_type=PREFERRED, topic_partitions=None, timeout_ms=10_000)
        groups = (f"{name}-g{number}" for number in range(GROUPS_TRIED))
        group_ids.extend(itertools.islice((group for group in groups if kept_at(group, topic) == {node}), 1))
        return bool(group_ids)

    until(find_group, f"a group whose state is at node {node}")
    return group_ids[0]


def groups_survive_a_node(w: World, kafka: Cluster, name: str, kept_at: KeptAt) -> None:
    """The leader of one topic, which also has the group's state, stops and returns.

    [125] The lag of another topic is unchanged. [102] Its members continue, and get the released records. [100] A
    consumer that reads from the node is closed in time. [101] Acknowledgements of records held there get error 122,
    because their session has ended, and exactly the unaccepted records are delivered again.
    """
    t = w.raw.create_topic(name, assignments={0: [LEAVES]})
    u = w.raw.create_topic(f"{name}-u", assignments={0: [STAYS, LEAVES, 1]})
    group = _group_at(LEAVES, kafka, name, u, kept_at)
    w.raw.configure_group(group, {"share.auto.offset.reset": "earliest"})
    for topic in (t, u):
        w.raw.produce(topic, 10)
    a, b = w.member(group, "A", node=LEAVES, topics=[t]), w.member(group, "B", node=STAYS, topics=[u])
    assert a.take(t).acquired(t) == [(0, 9, 1)]
    assert a.acknowledge((t, 0, 0, 3, ACCEPT)).code(t) == 0
    assert b.take(u).acquired(u) == [(0, 9, 1)]
    assert b.acknowledge((u, 0, 0, 5, ACCEPT), (u, 0, 6, 9, RELEASE)).code(u) == 0
    assert _lag(w, group, u) == 4
    consumer = _reader(w, f"{name}-other", t)
    kafka.node(LEAVES).stop()
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < CLOSE_MAX_S
    until(lambda: _lag(w, group, u) == 4, "the lag at another coordinator")
    until(lambda: _goes_on(b), "a heartbeat at another coordinator")
    assert b.take(u).acquired(u) == [(6, 9, 2)]
    b.acknowledge((u, 0, 6, 9, ACCEPT))
    until(lambda: _lag(w, group, u) == 0, "all of the topic whose leader stayed")
    kafka.node(LEAVES).start()
    kafka.wait_ready()
    a.disconnect()
    assert a.acknowledge((t, 0, 4, 9, ACCEPT)).error == ErrorCode.SHARE_SESSION_NOT_FOUND
    a.epoch = 0
    got = [offset for first, last, _ in a.take(t).acquired(t) for offset in range(first, last + 1)]
    assert got == [4, 5, 6, 7, 8, 9]
    a.acknowledge((t, 0, 4, 9, ACCEPT))
    until(lambda: _lag(w, group, t) == 0, "all of the topic whose leader was away")


def _reader(w: World, group: str, t: Topic) -> ShareConsumer:
    """A stock consumer that has just read from the node that leaves."""
    w.raw.configure_group(group, {"share.auto.offset.reset": "earliest"})
    settings = {"bootstrap.servers": str(w.raw.bootstrap[0]), "group.id": group, "log_level": 2}
    consumer = ShareConsumer(settings)
    consumer.subscribe([t.name])
    until(lambda: consumer.poll(0.3), "records from the node that leaves")
    return consumer


def _lag(w: World, group: str, t: Topic) -> int | None:
    """Return the lag, or None if unknown."""
    expected = [{"topic_name": t.name, "partitions": [0]}]
    response = w.raw.send_request(
        "DescribeShareGroupOffsets", 1, on=w.raw.on_coordinator(group), groups=[{"group_id": group, "topics": expected}]
    ).groups[0]  # fmt: skip
    if response.error_code:
        return None
    (partition_response,) = response.topics[0].partitions
    return None if partition_response.error_code else int(partition_response.lag)


def _goes_on(member: Member) -> bool:
    """True if a heartbeat at the present epoch is taken; False while the coordinator moves."""
    code = ErrorCode.of(member.heartbeat(silent=True).error_code)
    assert code == ErrorCode.NONE or code in MOVING, code
    return code == ErrorCode.NONE
