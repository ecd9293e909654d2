"""Composition of the parts that serve clients, after the first responses of the cluster, and their later changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from kafka_share_proxy.app.observing.audit_shipping import AuditShipping
from kafka_share_proxy.app.serving import audit_setup, features, state_setup
from kafka_share_proxy.app.serving.broker_listeners import BrokerListeners, address_book
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.settings.tls_contexts import TlsContexts
from kafka_share_proxy.app.workers.seat import Seat
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings, Identity
from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata
from kafka_share_proxy.brokers.cluster_queries import ClusterClientQueries
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.brokers.dialling import Dialler
from kafka_share_proxy.brokers.interfaces import ClusterQueries, Connection
from kafka_share_proxy.brokers.queries import about_topics
from kafka_share_proxy.brokers.rights import HEARTBEAT_VERSION, PROBE_MEMBER, Right, rights_of
from kafka_share_proxy.brokers.topic_leaders import METADATA_VERSION, TopicQueryOptions
from kafka_share_proxy.durable.state_home import StateHome
from kafka_share_proxy.feature.feature import Feature, Platform
from kafka_share_proxy.fleet.carried import CarriedFeatures
from kafka_share_proxy.fleet.links import LinkTls
from kafka_share_proxy.forwarding.admission import Entrance
from kafka_share_proxy.forwarding.data_plane import Plane
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions
from kafka_share_proxy.forwarding.dispatch.routes import Routes
from kafka_share_proxy.forwarding.ports import Bind
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.served import services as shared_services
from kafka_share_proxy.forwarding.served.injected_requests import Query
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.forwarding.served_times import ServedTimes
from kafka_share_proxy.loop.interfaces import Notes, Timer, Timers, Workers
from kafka_share_proxy.loop.listeners import bind
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.proxy_headers import ProxyHeaders
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.loop.workers import WorkerThreads
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import LocalProtocolError
from kafka_share_proxy.wire.values import Address

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from kafka_share_proxy.forwarding.served.tracing import Tracing

T = TypeVar("T")

registry.read_definitions()  # with the program: workers that are forked later must not read files of another release


def cluster_client_settings(config: Config, upstream_tls: TlsContext | None) -> ClusterClientSettings:
    """Return the settings of the proxy's own connections."""
    sasl = config.upstream.sasl
    identity = None
    if sasl.mechanism is not None:
        identity = Identity(mechanism=sasl.mechanism, username=sasl.username or "", password=sasl.secret)
    server_name = config.upstream.tls.server_name
    limits = config.named_limits
    return ClusterClientSettings(
        dial_timeout_s=limits.dial_timeout_s,
        response_bytes=limits.collected_bytes,
        tls=upstream_tls,
        server_name=server_name,
        identity=identity,
    )


@dataclass(slots=True)
class ServingParts:
    """Parts that serve clients."""

    config: Config
    services: Services
    listeners: BrokerListeners
    plane: Plane
    features: tuple[Feature, ...] = ()
    home: StateHome | None = None
    """Keeper of states in topics; None if there are none."""
    audit: AuditShipping | None = None
    """Writer of audit events; None if audit is off."""
    served_times: ServedTimes = field(default_factory=ServedTimes)
    """Durations of locally served requests."""
    seat: Seat | None = None
    """Place among the workers of one supervisor. None without workers."""

    def open(self, cluster: ClusterSnapshot) -> None:
        """Open the listeners for clients.

        Raises:
            OSError: the bootstrap port, or that of a known broker, cannot be bound.
        """
        self._learn(cluster)
        self.listeners.open(self.plane.ports, cluster)
        for feature in self.features:
            feature.on_cluster(cluster)
        if self.home is not None:
            self.home.listen(self.config.cluster.peer.listen if self.seat is None else self.seat.peer_listen)
            if self.home.links is not None:
                self.home.links.admit_clients(self.plane.admission.admit_moved)
        for feature in self.features:
            feature.on_open()

    def on_cluster(self, cluster: ClusterSnapshot) -> None:
        """Apply new cluster metadata."""
        self._learn(cluster)
        for node_id in self.listeners.follow(cluster):
            self.services.versions.forget(node_id)
        for feature in self.features:
            feature.on_cluster(cluster)

    def state(self) -> dict[str, object]:
        """Return the details for /readyz."""
        details = self.listeners.state()
        for feature in self.features:
            details |= feature.probe.details() | feature.probe.also()
        return details | ({} if self.home is None else self.home.state())

    def vanished(self) -> dict[int, str]:
        """See BrokerListeners.vanished."""
        return self.listeners.vanished()

    def _learn(self, cluster: ClusterSnapshot) -> None:
        now = self.services.timers.now()
        for metadata in cluster.metadata:
            self.services.topology.fold(metadata, now)
        for node_id, versions in cluster.versions.items():
            self.services.versions.learn(node_id, versions.ranges)


def introduction() -> Query:
    """Return Metadata without topics, which is cheap, and served only to authenticated clients."""
    return ApiKey.METADATA, METADATA_VERSION, registry.request(ApiKey.METADATA, METADATA_VERSION).encode(about_topics())


def keep_alive_query(connection: Connection) -> Query:
    """Return the request that keeps an upstream connection from being closed as idle. It refreshes the client's
    last right.

    It is a Heartbeat of a member that cannot exist, or ApiVersions if no group right was checked. Both change
    nothing upstream.
    """
    groups = [name for right, name in rights_of(connection).verdicts if right is Right.READ_GROUP]
    if not groups:
        return ApiKey.API_VERSIONS, 0, b""
    request = messages.HeartbeatRequest(group_id=groups[-1], generation_id=0, member_id=PROBE_MEMBER)
    return ApiKey.HEARTBEAT, HEARTBEAT_VERSION, registry.request(ApiKey.HEARTBEAT, HEARTBEAT_VERSION).encode(request)


def planned_routes(config: Config, cluster: ClusterSnapshot, kinds: features.Kinds = features.FEATURES) -> Routes:
    """Return the routes that `serve` would have. Nothing is started."""
    book = address_book(config, lambda _node_id, _upstream: False)
    services = _services(config, _StoppedClock(), lambda *_, **__: None, book, cluster, kinds)
    platform = _platform(config, services, cluster_client_settings(config, None), _NoWorkers(), cluster, kinds)
    built = features.build(config, replace(platform, is_displayed=True), kinds)
    return route_table.build(book, services.versions, services.limits, features.handlers(built))


class _StoppedClock:
    """interfaces.Timers for parts that are only displayed."""

    def now(self) -> float:
        """Return a constant."""
        return 0.0

    def wall_ms(self) -> int:
        """Return a constant."""
        return 0

    def call_at(self, deadline: float, callback: Callable[[], None]) -> Timer:
        """Raise LocalProtocolError: nothing is ever scheduled."""
        raise LocalProtocolError(f"{callback} at {deadline}: parts that are only displayed have no timers")


class _NoWorkers:
    """interfaces.Workers for parts that are only displayed."""

    def run(self, work: Callable[[], T], owner: Hashable = None, *, is_large: bool = False) -> Promise[T]:
        """Raise LocalProtocolError: nothing is ever computed."""
        raise LocalProtocolError(f"{work} for {owner} ({is_large}): parts that are only displayed run no work")


def compose(
    config: Config,
    reactor: Reactor,
    notes: Notes,
    nursery: trio.Nursery,
    cluster: ClusterSnapshot,
    *,
    tls: TlsContexts,
    bootstrap: Sequence[Address] | None = None,
    kinds: features.Kinds = features.FEATURES,
    seat: Seat | None = None,
    opening: Bind = bind,
    tracer: Tracer | None = None,
) -> ServingParts:
    """Build the parts that serve clients. `ServingParts.open` opens the listeners.

    Args:
        bootstrap: the bootstrap servers, if a reload may change them.
        seat: place of a worker.
        opening: returns the sockets of a listener.
        tracer: source of spans of served requests; None if tracing is off.
    """
    settings = replace(cluster_client_settings(config, tls.brokers), reactor=reactor)
    listeners = BrokerListeners(config, notes, reactor.now)
    own = ClusterClientQueries(nursery, settings, listeners.book.upstream_of)
    services = _services(config, reactor, notes, listeners.book, cluster, kinds, own)
    platform = _platform(config, services, settings, WorkerThreads(reactor), cluster, kinds, bootstrap)
    if seat is not None:
        platform = replace(platform, address=f"{platform.address}/{seat.number}")
    audit = audit_setup.set_up(config, services, platform.address, platform.client, platform.workers)
    platform = replace(platform, audit=None if audit is None else audit.audit)
    built, home = _with_home(config, platform, reactor, kinds, tls.proxies, seat)
    audit_setup.report(audit, (each for feature in built for each in feature.coverage), config, notes)
    tracing = None if tracer is None else _tracing(tracer, services.topology)
    times, routes = ServedTimes(), partial(_routes, services, built, tracing)
    plane = _plane(config, reactor, services, routes(), times, nursery, tls, opening, tracing)
    for feature in built:
        feature.on_apis(lambda: plane.use_routes(routes()))
    return ServingParts(config, services, listeners, plane, built, home, audit, times, seat)


def _with_home(
    config: Config,
    platform: Platform,
    reactor: Reactor,
    kinds: features.Kinds,
    tls: LinkTls | None,
    seat: Seat | None,
) -> tuple[tuple[Feature, ...], StateHome | None]:
    """Build the features, and what owns their stored states."""
    stored = list(features.stored_states(config, platform.cluster, kinds))
    if not stored:
        return features.build(config, platform, kinds), None
    owner, carried = state_setup.membership(config, platform, stored, seat), CarriedFeatures()
    links = state_setup.links(config, platform, reactor, owner, carried, tls, seat)
    home = StateHome(owner, platform.access, reactor, platform.address, links=links)
    built = features.build(config, replace(platform, fleet=links, home=home), kinds)
    for feature in built:
        if feature.carried is not None:
            carried.add(feature.carried, feature.groups, feature.command)
    return built, home


def _routes(services: Services, built: Sequence[Feature], tracing: Tracing | None) -> Routes:
    """Return the routes by the present APIs of the features."""
    routes = route_table.build(services.book, services.versions, services.limits, features.handlers(built))
    for feature in built:
        routes = feature.observed(routes)
    return routes if tracing is None else tracing.traced(routes)


def _services(
    config: Config,
    timers: Timers,
    notes: Notes,
    book: AddressBook,
    cluster: ClusterSnapshot,
    kinds: features.Kinds,
    own: ClusterQueries | None = None,
) -> Services:
    return shared_services.build(
        limits=config.named_limits,
        timers=timers,
        notes=notes,
        book=book,
        topology=ClusterMetadata(),
        versions=EffectiveVersions(features.offer(config, cluster, kinds)),
        own=own,
        options=TopicQueryOptions(rights_cache_s=config.rights_cache_s),
    )


def _platform(
    config: Config,
    services: Services,
    settings: ClusterClientSettings,
    workers: Workers,
    cluster: ClusterSnapshot,
    kinds: features.Kinds,
    bootstrap: Sequence[Address] | None = None,
) -> Platform:
    return Platform(
        services=services,
        settings=settings,
        client=partial(ClusterClient, bootstrap or config.upstream.bootstrap, settings, config.upstream.nodes),
        workers=workers,
        cluster=cluster,
        address=advertised(config),
        is_fleet=config.is_shared,
        rules=features.shared_rules(config, kinds),
    )


def _plane(
    config: Config,
    reactor: Reactor,
    services: Services,
    routes: Routes,
    times: ServedTimes,
    nursery: trio.Nursery,
    tls: TlsContexts,
    opening: Bind,
    tracing: Tracing | None,
) -> Plane:
    return Plane(
        reactor,
        routes,
        services.limits,
        services.notes,
        Dialler(nursery, services.limits.dial_timeout_s),
        client_tls=tls.clients,
        upstream_tls=tls.brokers,
        upstream_server_name=config.upstream.tls.server_name,
        keep_alive=keep_alive_query,
        introduction=introduction(),
        budget=services.responses,
        slices=services.slices,
        served=times.observe,
        node_at=services.topology.node_at,
        tracing=tracing,
        entrance=Entrance(_names_advice(config), _proxy_headers(config, reactor), opening),
    )


def _names_advice(config: Config) -> str:
    if config.exposure != "sni":
        return ""
    return (
        f"let the client bootstrap from {config.bootstrap_address}, by this name and with TLS; brokers have the names "
        f"{config.broker_names}"
    )


def _proxy_headers(config: Config, reactor: Reactor) -> ProxyHeaders | None:
    sources = config.proxy_protocol.clients
    if not sources:
        return None
    return ProxyHeaders(reactor, sources, config.named_limits.proxy_header_s, "proxy_protocol.clients")


def _tracing(tracer: Tracer, topology: ClusterMetadata) -> Tracing:
    from kafka_share_proxy.app.observing.spans import Spans  # an idle proxy without tracing should be small
    from kafka_share_proxy.forwarding.served.tracing import Tracing

    return Tracing(Spans(tracer, partial(_topic_name, topology)).record)


def _topic_name(topology: ClusterMetadata, topic_id: bytes) -> str | None:
    topic = topology.topic_by_id(topic_id)
    return None if topic is None else topic.name


def advertised(config: Config) -> str:
    """Return the bootstrap address, which identifies this proxy among others."""
    return str(config.bootstrap_address)
