"""One broker of three dies, or becomes unreachable without closing its connections, and returns.

The probe names it, the log has a beginning and an end of it, and share groups continue as soon as brokers do.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from kafka_share_proxy.durable.ownership_rules import GROUP
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import OLD, Running
from tests.support.raw import Raw, Topic, until
from tests.support.worlds import ACCEPT, RECORD_LIMIT, Member, World

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

DEAD = 3
LEASE_S = 6.0
"""Seconds after which the proxy serves only if the next coordinator has responded to it."""
MOVED_S = 10.0
"""How long a starved machine may take, once the brokers have another coordinator."""


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    """Brokers are missed after 3 s, and another controller need not be found first."""
    properties = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "300"}
    return running.cluster(OLD, nodes=3, controller_apart=True, properties=properties)


@pytest.fixture(scope="module")
def front(running: Running, kafka: Cluster) -> Front:
    return running.front(kafka.bootstrap, {"upstream": {"bootstrap": kafka.bootstrap, "metadata_interval_s": 1}})


def body(front: Front, path: str = "/readyz") -> dict[str, Any]:
    page_body: dict[str, Any] = json.loads(front.send_request(path)[1])
    return page_body


def test_readyz_names_a_dead_broker_until_it_is_back(kafka: Cluster, front: Front) -> None:
    """It stays ready for the two others, and views are used meanwhile without flooding the log."""
    with Raw(front.bootstrap) as raw:
        base = raw.create_topic("base", 3)
        until(lambda: raw.view(f"__view.r2.{base.name}"), "a view")
    assert (body(front)["ready"], body(front)["unreachable"]) == (True, {})
    node = kafka.node(DEAD)
    node.kill()
    try:
        until(lambda: set(body(front)["unreachable"]) == {str(DEAD)}, "the dead broker to be named")
        assert front.send_request("/readyz")[0], "forwarding goes on"
        until(lambda: front.send_request("/readyz/share-groups")[0], "share groups to be served again")
        until(lambda: body(front)["ready"], "to be ready")
    finally:
        node.start()
        kafka.wait_ready()
    until(lambda: body(front)["unreachable"] == {}, "the broker to be back")
    lines = front.log.read_text().splitlines()
    counts = {event: sum(f" {event} " in f"{line} " for line in lines) for event in (
        "view-state-not-read", "broker-not-answering", "broker-vanished", "broker-answers", "broker-back",
    )}  # fmt: skip
    assert counts["view-state-not-read"] <= 4, counts
    assert counts["broker-not-answering"] + counts["broker-vanished"] >= 1, counts
    assert counts["broker-answers"] + counts["broker-back"] >= 1, counts


def test_share_groups_go_on_when_the_coordinator_of_the_proxies_is_lost_without_a_word(
    kafka: Cluster, front: Front
) -> None:
    """Its machine is gone: no connection ends. Without a limit, requests to that coordinator waited 15 s and longer."""
    with Raw(kafka.bootstrap) as raw:
        lost = kafka.node(
            raw.send_request("FindCoordinator", 4, key_type=0, coordinator_keys=[GROUP]).coordinators[0].node_id
        )
        stays = next(node for node in kafka.nodes if node is not lost)
    world = World("lost", front.bootstrap, "lost")
    topic = world.topic(assignments={0: [stays.node_id]})
    member = world.member(world.group(), topics=[topic], node=stays.node_id)
    with Raw(stays.address) as raw:
        raw.produce(topic, *[1] * 3)
    settle(member, topic)
    lost.suspend()
    try:
        time.sleep(LEASE_S)
        until(lambda: front.send_request("/readyz/share-groups")[0], "share groups to be served again", MOVED_S)
        settle(member, topic)
    finally:
        lost.resume()
    until(lambda: body(front)["unreachable"] == {}, "the broker to be back")
    settle(member, topic)
    world.close()


def settle(member: Member, topic: Topic) -> None:
    """Take one record and have it settled."""
    ((first, last, _),) = member.take(topic, records=1, batch=1, mode=RECORD_LIMIT).acquired(topic)
    response = member.acknowledge((topic, 0, first, last, ACCEPT))
    assert (response.error, response.code(topic)) == (0, 0)
