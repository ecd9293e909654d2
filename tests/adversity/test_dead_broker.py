"""One broker of three dies and comes back: the probe names it, and the log has a beginning and an end of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from localkafka.cluster import Cluster
from localkafka.front import Front

from tests.support.brokers import OLD, Running
from tests.support.raw import Raw, until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

DEAD = 3


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(OLD, nodes=3)


@pytest.fixture(scope="module")
def front(running: Running, kafka: Cluster) -> Front:
    return running.front(kafka.bootstrap, {"upstream": {"bootstrap": kafka.bootstrap, "metadata_interval_s": 1}})


def body(front: Front, path: str = "/readyz") -> dict[str, Any]:
    told: dict[str, Any] = json.loads(front.ask(path)[1])
    return told


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
        assert front.ask("/readyz")[0], "forwarding goes on"
        until(lambda: front.ask("/readyz/share-groups")[0], "share groups to be served again")
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
