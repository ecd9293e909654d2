"""Listeners that follow the cluster."""

from __future__ import annotations

import pytest
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.wire.values import UNKNOWN_NODE

from tests.app.serving.test_composition import A, B, config, parts, snapshot


def test_opening_binds_brokers_before_the_bootstrap_listener() -> None:
    """A client that bootstraps gets only ports that are open."""
    serving_parts = parts(config())
    serving_parts.open(snapshot({0: A, 3: B}))
    assert list(serving_parts.plane.listening) == [0, 3, UNKNOWN_NODE]
    assert {node: port for node, (port, _) in serving_parts.plane.listening.items()} == {
        0: 9093,
        3: 9096,
        UNKNOWN_NODE: 9092,
    }
    assert serving_parts.plane.listening[3][1]() == [B]
    assert serving_parts.plane.listening[UNKNOWN_NODE][1]() == [A]
    assert serving_parts.state()["brokers"] == {"0": "h:9093", "3": "h:9096"}


def test_a_port_that_cannot_be_had_at_start_is_an_error() -> None:
    """Taken, or above the last port."""
    serving_parts = parts(config())
    serving_parts.plane.occupied_ports.add(9096)
    with pytest.raises(OSError, match=r"broker 3 has no listener: Address already in use"):
        serving_parts.open(snapshot({0: A, 3: B}))
    with pytest.raises(OSError, match="65535"):
        parts(config()).open(snapshot({60_000: A}))


def test_later_a_broker_without_port_is_left_out_and_tried_again() -> None:
    """The other brokers are served; the error is logged once, not at every check."""
    serving_parts = parts(config())
    serving_parts.open(snapshot({0: A}))
    serving_parts.plane.occupied_ports.add(9094)
    for _ in range(3):
        serving_parts.on_cluster(snapshot({0: A, 1: B}))
    assert serving_parts.services.notes.events.count("broker-not-bound") == 1
    assert serving_parts.state()["left_out"] == {"1": "Address already in use"}
    serving_parts.plane.occupied_ports.clear()
    serving_parts.on_cluster(snapshot({0: A, 1: B}))
    assert (sorted(serving_parts.plane.listening), serving_parts.state()["left_out"]) == ([UNKNOWN_NODE, 0, 1], {})


def test_a_broker_that_moves_keeps_its_listener() -> None:
    """New connections go to the new address."""
    serving_parts = parts(config())
    serving_parts.open(snapshot({0: A}))
    serving_parts.on_cluster(snapshot({0: B}))
    assert serving_parts.plane.listening[0][1]() == [B]
    assert serving_parts.services.notes.events.count("broker-listening") == 1


def test_a_vanished_broker_keeps_its_listener_for_the_grace_time() -> None:
    """A broker that restarts in time is not noticed by clients; one that returns later gets its port again."""
    serving_parts = parts(config(vanished_broker_grace_s=60))
    serving_parts.open(snapshot({0: A, 1: B}))
    timers = serving_parts.services.timers
    serving_parts.on_cluster(snapshot({0: A}))
    timers.time = 59
    serving_parts.on_cluster(snapshot({0: A}))
    assert 1 in serving_parts.plane.listening
    serving_parts.on_cluster(snapshot({0: A, 1: B}))
    timers.time = 100
    serving_parts.on_cluster(snapshot({0: A}))
    assert 1 in serving_parts.plane.listening
    timers.time = 160
    serving_parts.on_cluster(snapshot({0: A}))
    assert 1 not in serving_parts.plane.listening
    assert serving_parts.services.notes.events.count("broker-vanished") == 2
    serving_parts.on_cluster(snapshot({0: A, 1: B}))
    assert serving_parts.plane.listening[1][0] == 9094


def test_with_one_port_brokers_have_names_and_the_port_of_the_bootstrap_listener() -> None:
    """They come and go like listeners. The advertised port may be that of a load balancer."""
    names = {"exposure": "sni", "advertise": "kafka.example", "broker_names": "broker-{id}.kafka.example"}
    serving_parts = parts(config(**names, advertise_port=443, vanished_broker_grace_s=1))
    serving_parts.open(snapshot({0: A, 60_000: B}))
    assert {node: port for node, (port, _) in serving_parts.plane.listening.items()} == {UNKNOWN_NODE: 9092}
    assert {node: (name, targets()) for node, (name, targets) in serving_parts.plane.by_name.items()} == {
        0: ("broker-0.kafka.example", [A]),
        60_000: ("broker-60000.kafka.example", [B]),
    }
    assert serving_parts.state()["brokers"] == {
        "0": "broker-0.kafka.example:443",
        "60000": "broker-60000.kafka.example:443",
    }
    for _ in range(2):
        serving_parts.on_cluster(snapshot({0: A}))
        serving_parts.services.timers.time += 2
    assert list(serving_parts.plane.by_name) == [0]


def test_a_refresh_without_identity_removes_no_broker() -> None:
    """Brokers that clients' own responses named are not known to the proxy otherwise."""
    serving_parts = parts(config(vanished_broker_grace_s=1))
    serving_parts.open(snapshot({0: A}))
    serving_parts.services.timers.time = 100
    for _ in range(2):
        serving_parts.on_cluster(ClusterSnapshot(brokers={}, metadata=(), versions={}, silent={}))
        serving_parts.services.timers.time += 100
    assert 0 in serving_parts.plane.listening
