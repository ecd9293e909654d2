"""What the proxy knows of the cluster behind it: looks at start and again and again, and says when it changes.

Theory of operation. `first` waits until the cluster answers, and every broker it names has told its versions; `follow`
looks again every interval and hands what it saw to `seen`. Where upstream wants an identity and the proxy has none (or
a wrong one), brokers are those of the settings and topics are unknown here: clients are served all the same, under
their own identities, and `trouble` says what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import trio

from proxy.brokers.own_client import AuthenticationNeeded, OwnClient
from proxy.brokers.own_connection import AuthenticationFailed, BrokerVersions
from proxy.loop.interfaces import Notes
from proxy.loop.lasting_trouble import REMIND_S, LastingTrouble
from proxy.wire import messages
from proxy.wire.errors import ProxyError, RemoteProtocolError, UpstreamLost
from proxy.wire.values import Address

RETRY_S = 1.0
"""After a look that failed; doubled up to RETRY_MAX_S while it keeps failing."""
RETRY_MAX_S = 10.0
UNDECIDED_MAX_S = 30.0
"""At start, a broker that is named but does not answer is waited for so long; then the others decide."""
KNOWN_BROKER_S = 3.0
"""A broker that has told its versions before is called silent when it does not answer a look within this."""
TOPICS_MAX = 1_000
"""Topics asked for in one look."""
TOPICS_AT_ONCE = 25
"""Topics in one question: reading an answer about a thousand would hold up every client for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCluster:
    """What one look has shown."""

    brokers: Mapping[int, Address]
    """Node id -> upstream address; empty where nobody may tell and the settings name none."""
    metadata: tuple[messages.MetadataResponse, ...]
    """Decoded MetadataResponses, the topics divided among them; none where the proxy's identity is not enough."""
    versions: Mapping[int, BrokerVersions]
    """By node id, of the brokers that told them."""
    silent: Mapping[int, str]
    """Node id -> reason, of those that did not."""


@dataclass(slots=True)
class ClusterWatch:
    """Looks at the cluster through the proxy's own client."""

    client: OwnClient
    nodes: Mapping[int, Address]
    """Brokers by the settings, for a cluster that does not tell the proxy."""
    bootstrap: Sequence[Address]
    interval_s: float
    notes: Notes
    topics: Callable[[], Iterable[str]] = tuple
    """Topics somebody here is interested in."""
    reachable: bool = False
    """Whether the last look reached a broker."""
    trouble: str = "upstream has not been asked yet"
    """What is wrong with what the last look reached; empty when nothing is."""
    refused: bool = False
    """Whether brokers refuse the identity that is set."""
    silent: Mapping[int, str] = field(default_factory=dict)
    """Node id -> reason, of the brokers that did not answer the last look."""
    _versions: dict[int, BrokerVersions] = field(default_factory=dict)
    _troubles: dict[int, LastingTrouble] = field(default_factory=dict)
    """By node id, of brokers that did not answer at one time."""
    _wanted: trio.Event = field(default_factory=trio.Event)
    """Set when the next look should not wait for its time."""
    _told: tuple[str, float] = ("", 0.0)
    """What was told last, and when: the same again only as a reminder."""

    async def first(self) -> SeenCluster:
        """The first sight that is enough to decide by; keeps trying while upstream is not to be reached."""
        began = trio.current_time()
        delay = RETRY_S
        undecided = LastingTrouble(self.notes, "share-groups-undecided", "share-groups-decided")
        while True:
            sight = await self.look()
            if sight is not None:
                enough = not sight.silent or trio.current_time() - began >= UNDECIDED_MAX_S
                if enough and (sight.versions or not sight.brokers):
                    undecided.ended()
                    return sight
                undecided.happened(f"waiting for {_words(sight.silent)}")
            await trio.sleep(delay)
            delay = min(2 * delay, RETRY_MAX_S)

    async def follow(self, seen: Callable[[SeenCluster], None]) -> None:
        """Look again every interval, sooner while it fails or when `look_soon` asks; runs until cancelled."""
        delay = self.interval_s
        while True:
            self._wanted = trio.Event()
            await trio.sleep(min(RETRY_S, delay))  # however often somebody asks
            with trio.move_on_after(delay - min(RETRY_S, delay)):
                await self._wanted.wait()
            sight = await self.look()
            if sight is None:
                delay = min(RETRY_S if delay >= self.interval_s else 2 * delay, RETRY_MAX_S, self.interval_s)
            else:
                delay = self.interval_s
                self._tell_silent(sight)
                seen(sight)

    def look_soon(self) -> None:
        """Somebody could not reach a broker: the cluster may have changed."""
        self._wanted.set()

    async def look(self) -> SeenCluster | None:
        """One look; None when no server answers (`trouble` says why)."""
        try:
            brokers, metadata = await self._brokers()
        except (UpstreamLost, RemoteProtocolError, AuthenticationFailed) as error:
            self.reachable, self.trouble = False, str(error)
            self._tell("upstream-not-reachable")
            return None
        self.silent = silent = await self._ask_versions(brokers)
        return SeenCluster(brokers=brokers, metadata=metadata, versions=dict(self._versions), silent=silent)

    async def _brokers(self) -> tuple[Mapping[int, Address], tuple[messages.MetadataResponse, ...]]:
        try:
            metadata = await self._ask_metadata()
        except (AuthenticationNeeded, AuthenticationFailed) as error:
            await self.client.any_versions()
            self.refused = isinstance(error, AuthenticationFailed)
            self.reachable, self.trouble = True, _missing_identity(error, self.nodes)
            self._tell("upstream-asks-for-authentication")
            return self.nodes, ()
        self.reachable, self.trouble, self.refused = True, "", False
        self._tell("upstream-reached")
        return {broker.node_id: Address(broker.host, broker.port) for broker in metadata[-1].brokers or ()}, metadata

    async def _ask_metadata(self) -> tuple[messages.MetadataResponse, ...]:
        topics = list(self.topics())[:TOPICS_MAX]
        firsts = range(0, max(len(topics), 1), TOPICS_AT_ONCE)
        return tuple([(await self.client.metadata(topics[first : first + TOPICS_AT_ONCE]))[0] for first in firsts])

    def _tell(self, event: str) -> None:
        said, now = f"{event} {self.trouble}", trio.current_time()
        before, when = self._told
        if said == before and (not self.trouble or now - when < REMIND_S):
            return
        self._told = (said, now)
        self.notes(event, **({"reason": self.trouble} if self.trouble else {}))

    def _tell_silent(self, sight: SeenCluster) -> None:
        """A broker that the cluster names and that does not answer: told while it lasts, and when it is over.

        One that the cluster names no more did not come back: whoever follows `seen` tells that.
        """
        for node_id, reason in sight.silent.items():
            if node_id not in self._troubles:
                events = ("broker-not-answering", "broker-answers")
                self._troubles[node_id] = LastingTrouble(self.notes, *events, node_id=node_id)
            self._troubles[node_id].happened(reason)
        for node_id in self._troubles.keys() - sight.silent.keys():
            trouble = self._troubles.pop(node_id)
            if node_id in sight.brokers:
                trouble.ended()

    async def _ask_versions(self, brokers: Mapping[int, Address]) -> dict[int, str]:
        """Ask everybody, for one may be gone, or be upgraded in place: what it said last holds until it says otherwise.

        Where no broker is known, the bootstrap servers stand for them (ids below 0).
        """
        targets = dict(brokers) or {-1 - index: address for index, address in enumerate(self.bootstrap)}
        for gone in set(self._versions) - set(targets):
            del self._versions[gone]
        silent: dict[int, str] = {}

        async def ask(node_id: int, address: Address) -> None:
            # What is known already is worth a short wait only: everything else about the cluster waits for this.
            limit_s = KNOWN_BROKER_S if node_id in self._versions else math.inf
            silent[node_id] = f"{address} did not answer within {limit_s:g} s"
            with trio.move_on_after(limit_s):
                try:
                    self._versions[node_id] = await self.client.versions_of(address)
                    del silent[node_id]
                except ProxyError as error:
                    silent[node_id] = str(error)

        async with trio.open_nursery() as nursery:
            for node_id in sorted(targets):
                nursery.start_soon(ask, node_id, targets[node_id])
        # A bootstrap server that is down is nobody in particular: the others are enough.
        return silent if brokers or not self._versions else {}


def _missing_identity(error: ProxyError, nodes: Mapping[int, Address]) -> str:
    if isinstance(error, AuthenticationFailed):
        return str(error)
    listed = "" if nodes else ", or name the brokers in upstream.nodes"
    return (
        "upstream wants clients to authenticate, and the proxy has no identity of its own: "
        f"set upstream.sasl.*{listed} ({error})"
    )


def _words(silent: Mapping[int, str]) -> str:
    return ", ".join(f"broker {node_id} ({reason})" for node_id, reason in sorted(silent.items()))
