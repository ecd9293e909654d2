"""Watch of the upstream cluster: requests its metadata at start and periodically, and reports changes.

`first` waits until the cluster responds and every listed broker has reported its versions. `follow` repeats this every
interval and passes the result to `on_cluster`. Without a sufficient identity the brokers are those of the settings, and
topics are unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from kafka_share_proxy.brokers.cluster_client import AuthenticationNeeded, ClusterClient
from kafka_share_proxy.brokers.cluster_connection import AuthenticationFailed, BrokerVersions
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.lasting_trouble import REMIND_S, LastingTrouble
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ProxyError, RemoteProtocolError, UpstreamLost
from kafka_share_proxy.wire.values import Address

RETRY_S = 1.0
"""Initial delay in seconds after a failure, doubled up to RETRY_MAX_S while it fails."""
RETRY_MAX_S = 10.0
UNDECIDED_MAX_S = 30.0
"""Maximum seconds at start to wait for a listed broker that is silent."""
KNOWN_BROKER_S = 3.0
"""Seconds after which a broker with known versions counts as silent."""
TOPICS_MAX = 1_000
TOPICS_AT_ONCE = 25
"""Maximum number of topics in one request: parsing a thousand would delay every client."""


class ClusterSnapshot(NamedTuple):
    """Brokers, metadata and versions of the cluster, as of one refresh."""

    brokers: Mapping[int, Address]
    """Empty if no broker may report them and the settings list none."""
    metadata: tuple[messages.MetadataResponse, ...]
    """Empty if the proxy's identity is not sufficient."""
    versions: Mapping[int, BrokerVersions]
    silent: Mapping[int, str]
    """Node id -> reason, for brokers that did not report their versions."""


@dataclass(slots=True)
class ClusterWatch:
    """Periodic refresh through the proxy's own client."""

    client: ClusterClient
    nodes: Mapping[int, Address]
    """Brokers in the settings: dialled there, and known where the cluster requires an identity."""
    bootstrap: Sequence[Address]
    interval_s: float
    notes: Notes
    topics: Callable[[], Iterable[str]] = tuple
    reachable: bool = False
    trouble: str = "upstream was not contacted yet"
    """Empty if there is none."""
    refused: bool = False
    silent: Mapping[int, str] = field(default_factory=dict)
    _versions: dict[int, BrokerVersions] = field(default_factory=dict)
    _troubles: dict[int, LastingTrouble] = field(default_factory=dict)
    _requested: trio.Event = field(default_factory=trio.Event)
    _last_logged: tuple[str, float] = ("", 0.0)
    """Last logged event and its time."""

    async def first(self) -> ClusterSnapshot:
        began = trio.current_time()
        delay = RETRY_S
        undecided = LastingTrouble(self.notes, "share-groups-undecided", "share-groups-decided")
        while True:
            snapshot = await self.refresh()
            if snapshot is not None:
                enough = not snapshot.silent or trio.current_time() - began >= UNDECIDED_MAX_S
                if enough and (snapshot.versions or not snapshot.brokers):
                    undecided.ended()
                    return snapshot
                undecided.happened(f"waiting for {_reasons(snapshot.silent)}")
            await trio.sleep(delay)
            delay = min(2 * delay, RETRY_MAX_S)

    async def follow(self, on_cluster: Callable[[ClusterSnapshot], None]) -> None:
        delay = self.interval_s
        while True:
            self._requested = trio.Event()
            earliest = trio.current_time() + min(RETRY_S, delay)  # however often `check_soon` is called
            with trio.move_on_after(delay):
                await self._requested.wait()
            if trio.current_time() < earliest:
                await trio.sleep_until(earliest)
            snapshot = await self.refresh()
            if snapshot is None:
                delay = min(RETRY_S if delay >= self.interval_s else 2 * delay, RETRY_MAX_S, self.interval_s)
            else:
                delay = self.interval_s
                self._report_silent(snapshot)
                on_cluster(snapshot)

    def check_soon(self) -> None:
        """Refresh soon, because a broker could not be reached."""
        self._requested.set()

    async def refresh(self) -> ClusterSnapshot | None:
        """Query the cluster. Return None if no server responds (`trouble` has the reason)."""
        try:
            brokers, metadata = await self._brokers()
        except (UpstreamLost, RemoteProtocolError, AuthenticationFailed) as error:
            self.reachable, self.trouble = False, str(error)
            self._log_change("upstream-not-reachable")
            return None
        self.silent = silent = await self._request_versions(brokers)
        return ClusterSnapshot(brokers=brokers, metadata=metadata, versions=dict(self._versions), silent=silent)

    async def _brokers(self) -> tuple[Mapping[int, Address], tuple[messages.MetadataResponse, ...]]:
        try:
            metadata = await self._request_metadata()
        except (AuthenticationNeeded, AuthenticationFailed) as error:
            await self.client.any_versions()
            self.refused = isinstance(error, AuthenticationFailed)
            self.reachable, self.trouble = True, _missing_identity(error, self.nodes)
            self._log_change("upstream-asks-for-authentication")
            return self.nodes, ()
        self.reachable, self.trouble, self.refused = True, "", False
        self._log_change("upstream-reached")
        advertised = {broker.node_id: Address(broker.host, broker.port) for broker in metadata[-1].brokers or ()}
        return {node_id: self.nodes.get(node_id, address) for node_id, address in advertised.items()}, metadata

    async def _request_metadata(self) -> tuple[messages.MetadataResponse, ...]:
        topics = list(self.topics())[:TOPICS_MAX]
        firsts = range(0, max(len(topics), 1), TOPICS_AT_ONCE)
        return tuple([(await self.client.metadata(topics[first : first + TOPICS_AT_ONCE]))[0] for first in firsts])

    def _log_change(self, event: str) -> None:
        logged, now = f"{event} {self.trouble}", trio.current_time()
        before, when = self._last_logged
        if logged == before and (not self.trouble or now - when < REMIND_S):
            return
        self._last_logged = (logged, now)
        self.notes(event, **({"reason": self.trouble} if self.trouble else {}))

    def _report_silent(self, snapshot: ClusterSnapshot) -> None:
        """Log brokers that the cluster lists but that are silent, while it lasts and when it ends."""
        for node_id, reason in snapshot.silent.items():
            if node_id not in self._troubles:
                events = ("broker-not-answering", "broker-answers")
                self._troubles[node_id] = LastingTrouble(self.notes, *events, node_id=node_id)
            self._troubles[node_id].happened(reason)
        for node_id in self._troubles.keys() - snapshot.silent.keys():
            trouble = self._troubles.pop(node_id)
            if node_id in snapshot.brokers:
                trouble.ended()

    async def _request_versions(self, brokers: Mapping[int, Address]) -> dict[int, str]:
        """Return node id -> reason for silent brokers. One may be lost or upgraded in place.

        If no broker is known, the bootstrap servers are queried (ids below 0).
        """
        targets = dict(brokers) or {-1 - index: address for index, address in enumerate(self.bootstrap)}
        for removed in set(self._versions) - set(targets):
            del self._versions[removed]
        silent: dict[int, str] = {}

        async def send_request(node_id: int, address: Address) -> None:
            # A broker with known versions gets only a short wait: the rest of the refresh waits for this.
            limit_s = KNOWN_BROKER_S if node_id in self._versions else math.inf
            silent[node_id] = f"{address} did not respond within {limit_s:g} s"
            with trio.move_on_after(limit_s):
                try:
                    self._versions[node_id] = await self.client.versions_of(address)
                    del silent[node_id]
                except ProxyError as error:
                    silent[node_id] = str(error)

        async with trio.open_nursery() as nursery:
            for node_id in sorted(targets):
                nursery.start_soon(send_request, node_id, targets[node_id])
        # A bootstrap server that is down is no particular broker. The others are sufficient.
        return silent if brokers or not self._versions else {}


def _missing_identity(error: ProxyError, nodes: Mapping[int, Address]) -> str:
    if isinstance(error, AuthenticationFailed):
        return str(error)
    listed = "" if nodes else ", or name the brokers in upstream.nodes"
    return (
        "upstream requires authentication, and the proxy has no identity of its own: "
        f"set upstream.sasl.*{listed} ({error})"
    )


def _reasons(silent: Mapping[int, str]) -> str:
    return ", ".join(f"broker {node_id} ({reason})" for node_id, reason in sorted(silent.items()))
