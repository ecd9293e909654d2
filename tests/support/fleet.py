"""Several proxies of one fleet in processes of their own, and clients at each of them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import trustme
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import QUICK, Running
from tests.support.raw import until
from tests.support.relay import Relay
from tests.support.worlds import BEFORE_LOCK_S, Member, World

SECRET = "of this fleet alone"
LEASE_S = 6.0
PARTITIONS = 50


def certificates(folder: Path) -> dict[str, str]:
    """Settings of cluster.peer.tls, with files of an authority made for this."""
    authority = trustme.CA()
    issued = authority.issue_cert(HOST)
    files = {name: folder / f"{name}.pem" for name in ("ca_file", "cert_file", "key_file")}
    authority.cert_pem.write_to_path(str(files["ca_file"]))
    issued.private_key_pem.write_to_path(str(files["key_file"]))
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(files["cert_file"]), append=True)
    return {name: str(file) for name, file in files.items()}


class Fleet:
    """Proxies by name, and the worlds of clients that go through them."""

    def __init__(self, running: Running, kafka: Cluster, tls: Mapping[str, str] | None = None) -> None:
        """`tls`: settings of cluster.peer.tls; None = plain text between the proxies."""
        self._running, self._kafka, self._tls = running, kafka, dict(tls or {})
        self.fronts: dict[str, Front] = {}
        self.relays: list[Relay] = []
        self.worlds: list[World] = []

    def start(
        self,
        name: str,
        settings: Mapping[str, Any] | None = None,
        *,
        relayed: bool = False,
        command: Sequence[str] | None = None,
    ) -> Front:
        """Start a proxy. `settings`: more sections of its settings. `relayed`: other proxies reach it through a relay.

        `command`: replaces the installed one.
        """
        port = free_ports(1)[0]
        peer: dict[str, Any] = {"listen": f"{HOST}:{port}", "secret": SECRET, "tls": self._tls}
        if relayed:
            relay = Relay(f"{HOST}:{port}").__enter__()
            self.relays.append(relay)
            peer["advertise"] = relay.address
        sections = {"cluster": {"mode": "fleet", "peer": peer}, "share_groups": {"broker": QUICK}, **(settings or {})}
        self.fronts[name] = front = self._running.front(self._kafka.bootstrap, sections, command)
        return front

    def owned(self, name: str) -> int:
        """Return how many state partitions a proxy serves; -1 while it serves no share groups."""
        ready, text = self.fronts[name].send_request("/readyz/share-groups")
        return int(json.loads(text)["state_partitions"]) if ready else -1

    def settled(self, *names: str) -> None:
        """Wait until these share everything evenly."""

        def even() -> bool:
            counts = [self.owned(name) for name in names]
            return sum(counts) == PARTITIONS and max(counts) - min(counts) <= 1

        until(even, f"{', '.join(names)} to share all state partitions")

    def world(self, name: str, prefix: str) -> World:
        """Return the clients of one of the proxies."""
        world = World("proxy", self.fronts[name].bootstrap, prefix)
        self.worlds.append(world)
        return world

    def close_worlds(self) -> None:
        while self.worlds:
            self.worlds.pop().close()


def far_group(fleet: Fleet, world: World, edge: str, **settings: str) -> str:
    """A group that the clients' own proxy does not own: its admin listener does not show it."""
    for number in range(40):
        group = world.group(f"g{number}", **settings)
        Member(world, group, f"probe-{group}"[-36:]).heartbeat(0, topics=["none"], silent=True)
        if not fleet.fronts[edge].send_request(f"/groups/{group}")[0]:
            return group
    raise AssertionError("every group is owned there")


def elsewhere(world: World, member: Member, name: str) -> Member:
    """Return another member of the same group, at another proxy."""
    world._labels |= member.world._labels
    return Member(world, member.group, f"{name}-{member.member_id}"[:36])


def acquired_again(member: Member, topic: Any, limit_s: float = BEFORE_LOCK_S) -> list[tuple[int, int, int]]:
    """Return the records acquired by a member that opens sessions again for the given time."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        response = member.fetch(topic)
        assert response.error in (0, 122), response.plain
        if response.error:
            member.epoch = 0
        elif got := response.acquired(topic):
            return got
    raise AssertionError(f"nothing came within {limit_s} s")
