"""A second state in addition to that of share groups: its own topic, the same owners, the same takeover after kill -9.

Two proxies in processes of their own host both states; a third process follows the second one without owning it.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support import state_proxy
from tests.support.brokers import Running
from tests.support.fleet import LEASE_S, Fleet, acquired_again, far_group
from tests.support.raw import until
from tests.support.small_state import WIDE_STATE, wide_partition_of
from tests.support.worlds import ACCEPT

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(480)]

COMMAND = [sys.executable, str(Path(state_proxy.__file__))]
FOLLOWED_S = 5.0
"""Seconds within which every proxy knows a stored change; an idle machine needs a hundredth of it."""


def send_command(port: int, **command: Any) -> dict[str, Any]:
    """Send a line to such a process. Return its response; empty if it does not listen."""
    try:
        with socket.create_connection((HOST, port), timeout=20) as sock, sock.makefile("rw") as lines:
            lines.write(json.dumps(command) + "\n")
            lines.flush()
            return json.loads(lines.readline() or "{}")
    except OSError:
        return {}


class States:
    """The processes, and the addresses of their control ports."""

    def __init__(self, running: Running, kafka: Cluster, folder: Path) -> None:
        self.fleet = Fleet(running, kafka)
        self.ports = dict(zip(("a", "b", "third"), free_ports(3), strict=True))
        for name in ("a", "b"):
            self.fleet.start(name, command=[*COMMAND, str(self.ports[name])])
        self.third = Child([*COMMAND, str(self.ports["third"]), "follow", kafka.bootstrap], folder / "third.log")
        self.fleet.settled("a", "b")

    def send_request(self, name: str) -> dict[str, Any]:
        return send_command(self.ports[name])

    def owned_by(self, name: str, count: int) -> list[str]:
        """Keys that this proxy owns."""
        served = until(lambda: self.send_request(name).get("served"), f"{name} to serve the test state")
        return [key for key in (f"key-{n}" for n in range(999)) if wide_partition_of(key) in served][:count]

    def put(self, name: str, key: str, text: str) -> None:
        response = send_command(self.ports[name], put=[key, text])
        assert response == {"stored": key}, response

    def all_follow(self, texts: dict[str, str], *names: str) -> float:
        """Wait until each of these has read just that; how long it took."""
        began = time.monotonic()
        for name in names:
            until(lambda name=name: self.send_request(name).get("followed") == texts, f"{name} to follow", FOLLOWED_S)
        return time.monotonic() - began


@pytest.fixture
def states(running: Running, fleet_kafka: Cluster, tmp_path: Path) -> Iterator[States]:
    second_states = States(running, fleet_kafka, tmp_path)
    yield second_states
    second_states.fleet.close_worlds()
    second_states.third.kill()


def test_owner_of_two_states_that_is_killed_is_followed_in_both(states: States, fresh: Callable[[str], str]) -> None:
    """Three records of one state and a share group of the other are where they were, at the proxy that is left."""
    fleet = states.fleet
    a = fleet.world("a", fresh("w")[-16:])
    t = a.topic()
    a.raw.produce(t, 10)
    one = a.member(far_group(fleet, a, "a"), "one", topics=[t])
    assert one.take(t).acquired(t) == [(0, 9, 1)]
    assert one.acknowledge((t, 0, 0, 3, ACCEPT)).code(t) == 0
    keys = states.owned_by("b", 3)
    assert "refused" in send_command(states.ports["a"], put=[keys[0], "not here"])
    texts = {key: f"text of {key}" for key in keys}
    for key, text in texts.items():
        states.put("b", key, text)
    took = states.all_follow(texts, "a", "b", "third")
    third = states.send_request("third")
    assert third["loaded"]
    assert third["behind"] == 0
    assert third["age_s"] < 2 * FOLLOWED_S
    print(f"followed everywhere after {took:.3f} s; delay of the third {third['delay_s']:.3f} s")
    assert states.send_request("a")["held"] == {}

    began = time.monotonic()
    fleet.fronts["b"].kill()
    got = acquired_again(one, t)
    until(
        lambda: len(states.send_request("a").get("served", ())) == WIDE_STATE.partitions,
        "a to serve all of the second state",
    )
    print(f"both states taken over after kill -9: {time.monotonic() - began:.2f} s (session {LEASE_S:g} s)")
    assert got == [(4, 9, 1)]
    assert states.send_request("a")["held"] == texts
    states.put("a", keys[0], "changed")
    texts[keys[0]] = "changed"
    states.all_follow(texts, "a", "third")

    fleet.fronts["b"].start()
    fleet.settled("a", "b")
    served = {name: set(until(lambda name=name: states.send_request(name).get("served"), name)) for name in ("a", "b")}
    assert served["a"] | served["b"] == set(WIDE_STATE.all)
    assert not served["a"] & served["b"]
    held = states.send_request("a")["held"] | states.send_request("b")["held"]
    assert held == texts, "what moved back was loaded where it is owned now"
    states.all_follow(texts, "a", "b", "third")
