"""Port between `app/` and the features: what a feature declares, what it is built from, and what it then offers.

How it works: `app/` knows a tuple of declarations (`FeatureKind`). It reads from them what must be known before the
proxy is built (log events, offered APIs, stored states, checks). Then it builds each feature from the `Platform`, and
combines the results: handlers by `Stage`, states, requests of other proxies, metrics, tasks, probes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.durable.described_state import DescribedState, HeldState
from kafka_share_proxy.durable.hosted_state import HostedState
from kafka_share_proxy.durable.state_home import StateHome
from kafka_share_proxy.durable.state_host import BrokerAccess
from kafka_share_proxy.durable.topic_guard import TopicGuard
from kafka_share_proxy.feature.admin import Pages
from kafka_share_proxy.feature.checks import FeatureCheck
from kafka_share_proxy.feature.metrics import Metrics
from kafka_share_proxy.feature.status import Status
from kafka_share_proxy.fleet.carried import CarriedRequests, HoldsGroups
from kafka_share_proxy.fleet.group_owners import Command, Fleet
from kafka_share_proxy.forwarding.dispatch.declared_api import Served
from kafka_share_proxy.forwarding.dispatch.offered_versions import FeatureOffer
from kafka_share_proxy.forwarding.dispatch.routes import Routes
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.loop.interfaces import Notes, Workers
from kafka_share_proxy.loop.log_levels import EventLevels


class Stage(IntEnum):
    """Position of a handler among those of all features for the same API. Lower stages run first."""

    NAMES = 0
    """Topic names of a request may stand for other topics."""
    BEFORE_GROUPS = 1
    GROUPS = 2
    """Groups of a request may be served here."""
    AFTER_GROUPS = 3
    """The request is about groups of the brokers."""


class Coverage(NamedTuple):
    """Coverage of one subject by the audit events of this proxy."""

    subject: str
    sees: str
    """ALL, PART or NONE."""
    reason: str


ALL, PART, NONE = "all", "part", "none"
"""Share of a subject's events that this proxy sees."""


@dataclass(frozen=True, slots=True)
class SharedRules:
    """Rules that one feature declares and others apply."""

    has_ranges: Callable[[str, str | None], bool] = lambda _group_id, _metadata: False
    """Returns True if a commit of a group with this metadata lists ranges of finished offsets."""
    base_of: Callable[[str], str] = str
    """Returns the topic that stores the records of a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Dependencies of a feature. Complete before the first feature is built."""

    services: Services
    """Dependencies of the handlers of every feature."""
    settings: ClusterClientSettings
    """Settings of the proxy's own connections."""
    client: Callable[[], ClusterClient]
    """Create another client under the proxy's own identity, for one task."""
    workers: Workers
    """Threads for computations that would block the loop."""
    cluster: ClusterSnapshot
    """First view of the cluster."""
    is_displayed: bool = False
    """True if the parts are only displayed: they serve no request and store no state."""
    home: StateHome | None = None
    """Owner of the stored states; None if there are none."""
    address: str = ""
    """Bootstrap address of this proxy, which identifies it among others."""
    is_fleet: bool = False
    """True if several proxies share the work."""
    fleet: Fleet | None = None
    """Other proxies that own groups; None if this one owns all or none."""
    audit: Audit | None = None
    """Receiver of audit events; None if audit is off."""
    rules: SharedRules = field(default_factory=SharedRules)

    @property
    def notes(self) -> Notes:
        """Receiver of log events."""
        return self.services.notes

    @property
    def access(self) -> BrokerAccess:
        """Access to brokers, for the topics of states."""
        return BrokerAccess(client=self.client, settings=self.settings, own=self.services.own, notes=self.notes)

    def host(self, state: DescribedState[Any], held: HeldState, partition_of: Callable[[str], int]) -> HostedState:
        """Store a state in its topic. See StateHome.host."""
        if self.home is None:
            raise ValueError(f"{state.name} cannot be stored: no feature has declared it, or parts are only displayed")
        return self.home.host(state, held, partition_of)


class Probe(NamedTuple):
    """Readiness of a feature: the path /readyz/PATH and its part of /readyz."""

    path: str
    """Path of the probe, and with "_" the prefix of `*_ready` in /readyz."""
    off: str = ""
    """Reason why the feature is switched off. Empty if it is not."""
    topic: str = ""
    """Topic of the state that must be served. Empty if there is none."""
    why_not: Callable[[], str] = str
    """Return the reason why requests must wait here, in addition to the state. Empty if there is none."""
    lacks: Callable[[], str] = str
    """Return the limitation caused by missing rights. Empty if there is none."""
    is_first: bool = False
    """True if the probe also shows the states of all features."""
    details: Callable[[], dict[str, object]] = dict
    """Return the details for the probe."""
    also: Callable[[], dict[str, object]] = dict
    """Return further details for /readyz."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A feature that was built. `app/` combines several of them."""

    probe: Probe
    apis: Mapping[Stage, Mapping[int, Served]] = field(default_factory=dict)
    """API key -> handler with its selection of requests, by stage."""
    carried: CarriedRequests | None = None
    """Requests that other proxies may send to this one."""
    command: Command | None = None
    """Commands of operators that other proxies may send to this one."""
    groups: HoldsGroups | None = None
    """Groups that every other proxy must know."""
    guards: tuple[TopicGuard, ...] = ()
    """Guards of internal topics other than those of states."""
    add_metrics: Callable[[Metrics], None] = lambda _metrics: None
    tasks: tuple[Callable[[], Awaitable[None]], ...] = ()
    """Background work until the proxy ends."""
    coverage: tuple[Coverage, ...] = ()
    """Which audit events this proxy sees."""
    on_open: Callable[[], None] = lambda: None
    """Called when the listeners open."""
    on_cluster: Callable[[ClusterSnapshot], None] = lambda _cluster: None
    """Called with each new view of the cluster."""
    on_apis: Callable[[Callable[[], object]], None] = lambda _rebuild: None
    """Register a callback for every change of `apis`. Changes are rare: all routes are built again."""
    observed: Callable[[Routes], Routes] = lambda routes: routes
    """Return the routes of all features, with those that emit audit events about responses of the brokers."""
    status: Status | None = None
    """Its section of the status page. None: it has none."""
    pages: Mapping[str, Pages] = field(default_factory=dict)
    """Pages of the admin listener by path (`FeatureKind.admin_paths`)."""
    services: Any = None
    """Dependencies of the feature's handlers, for tests."""


class FeatureKind(ABC):
    """Declaration of a feature, constant and without state. `settings` is its section of the settings.

    A feature overrides what it has. By default it offers, stores, checks and declares nothing.
    """

    section: ClassVar[str]
    """Name of the section of its settings."""
    probe_path: ClassVar[str]
    """Path of its probe (`Probe.path`)."""
    admin_paths: ClassVar[Sequence[str]] = ()
    """First parts of the paths of its pages on the admin listener."""
    events: ClassVar[EventLevels] = {}
    """Level of each of its log events, except those of its states."""
    decisive_topics: ClassVar[Sequence[str]] = ()
    """Topics whose existence must be known before the feature is built."""

    def offers(self, settings: Any, cluster: ClusterSnapshot) -> Sequence[FeatureOffer]:  # noqa: ARG002 - for overriding
        """Return the APIs that are offered to clients."""
        return ()

    def states(self, settings: Any, cluster: ClusterSnapshot) -> Sequence[DescribedState[Any]]:  # noqa: ARG002 - for overriding
        """Return the states that are stored in topics of the cluster."""
        return ()

    def rules(self, settings: Any, shared: SharedRules) -> SharedRules:  # noqa: ARG002 - for overriding
        """Return `shared` with the rules that this feature declares."""
        return shared

    def check(self, settings: Any) -> FeatureCheck | None:  # noqa: ARG002 - for overriding
        """Return its part of `check`; None if there is nothing to report."""
        return None

    @abstractmethod
    def build(self, settings: Any, platform: Platform) -> Feature:
        """Build the feature. Raises ConfigError."""
