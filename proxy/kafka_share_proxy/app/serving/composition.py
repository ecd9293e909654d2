"""Composition of the parts that serve clients, after the first responses of the cluster, and their later changes."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import trio

from kafka_share_proxy.app.observing import observe
from kafka_share_proxy.app.observing.audit_shipping import AuditShipping
from kafka_share_proxy.app.serving import audit_setup, commit_setup, state_setup, view_setup
from kafka_share_proxy.app.serving.state_setup import HostState, StateSetup
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.brokers.cluster_view import ClusterView
from kafka_share_proxy.brokers.cluster_watch import SeenCluster
from kafka_share_proxy.brokers.dialling import Dialler
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.brokers.own_connection import Identity, OwnSettings
from kafka_share_proxy.brokers.own_queries import OwnIdentityQueries
from kafka_share_proxy.brokers.queries import about_topics
from kafka_share_proxy.brokers.rights import HEARTBEAT_VERSION, PROBE_MEMBER, Right, rights_of
from kafka_share_proxy.brokers.topic_leaders import METADATA_VERSION
from kafka_share_proxy.durable.interfaces import Journal
from kafka_share_proxy.durable.journal import TopicJournal
from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.durable.state_home import StateHome
from kafka_share_proxy.forwarding.connection_parts import Query
from kafka_share_proxy.forwarding.data_plane import Plane
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.declared_api import Served
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import Routes
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.served_times import ServedTimes
from kafka_share_proxy.loop.interfaces import Notes, Timer, Timers
from kafka_share_proxy.loop.promise import PROCESS
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.workers import WorkerThreads
from kafka_share_proxy.sharegroups import services as apis_services
from kafka_share_proxy.sharegroups import serving_side, share_group_apis
from kafka_share_proxy.sharegroups.model.renewal import RenewalBound
from kafka_share_proxy.sharegroups.services import ShareOptions, ShareServices
from kafka_share_proxy.sharegroups.state.deleted_topics import DeletedTopics
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE, TOPIC, StateKey
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import LocalProtocolError
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address

BY_GROUP = "proxy or brokers, by group"


def offer(config: Config, local: bool) -> Offer:
    """Return the APIs offered to clients, with share groups served here or not."""
    features = (share_group_apis.OFFER,) if local else ()
    return Offer(features, pass_unknown=config.unknown_apis == "pass")


def own_settings(config: Config, upstream_tls: ssl.SSLContext | None) -> OwnSettings:
    """Return the settings of the proxy's own connections."""
    sasl = config.upstream.sasl
    identity = None
    if sasl.mechanism is not None:
        identity = Identity(mechanism=sasl.mechanism, username=sasl.username or "", password=sasl.secret)
    server_name = config.upstream.tls.server_name
    limits = config.named_limits
    return OwnSettings(
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
    notes: Notes
    services: ShareServices
    plane: Plane
    share_reason: str
    """Reason for the side that serves share groups."""
    home: StateHome | None = None
    """Keeper of states in topics; None if there are none."""
    audit: AuditShipping | None = None
    """Writer of audit events; None if audit is off."""
    views: view_setup.ViewRuntime | None = None
    """Background work for views; None if they are switched off."""
    commits: commit_setup.CommitRuntime | None = None
    """Background work for individual commits; None if they are switched off."""
    served_times: ServedTimes = field(default_factory=ServedTimes)
    """Durations of locally served requests."""
    mixed: bool = False
    """True if some share groups are served here and others by the brokers."""
    _listening: set[int] = field(default_factory=set)
    """Brokers that have a listener here."""
    _refused: dict[int, str] = field(default_factory=dict)
    """Brokers whose listener could not be bound, with the reason."""
    _gone_since: dict[int, float] = field(default_factory=dict)
    """Brokers missing from Metadata, with the time since which they are."""
    _told_restart: bool = False

    @property
    def where(self) -> str:
        """The side that serves share groups: the brokers, the proxy, or both by group."""
        if not self.services.serve_share:
            return "brokers"
        return BY_GROUP if self.mixed else "proxy"

    @property
    def keeps_share_state(self) -> bool:
        """True if share state is stored in its topic."""
        return self.home is not None and self.home.hosted(TOPIC) is not None

    def open(self, sight: SeenCluster) -> None:
        """Open the listeners for clients.

        Raises:
            OSError: the bootstrap port, or that of a known broker, cannot be bound.
        """
        self.seen(sight)
        if self._refused:
            reasons = (
                f"broker {node_id} has no listener: {reason}" for node_id, reason in sorted(self._refused.items())
            )
            raise OSError("; ".join(reasons))
        bootstrap = list(self.config.upstream.bootstrap)
        self.plane.listen(UNKNOWN_NODE, self.config.bound.host, self.config.bound.port, lambda: bootstrap)
        if self.home is not None and self.config.cluster.peer.listen is not None:
            self.home.listen(self.config.cluster.peer.listen)
        placed = observe.SHARE_GROUPS_PLACED if self.keeps_share_state else observe.SHARE_GROUPS_SERVED
        self.notes(placed, by=self.where, reason=self.share_reason)

    def bind(self, node_id: int, upstream: Address) -> bool:
        """Open the listener of a broker, before its address is sent to clients (AddressBook's `on_new`)."""
        if node_id in self._listening:
            return True  # only its upstream address has changed
        ours = self.services.book.address_for(node_id)
        if ours is None:
            return False

        def targets() -> list[Address]:
            address = self.services.book.upstream_of(node_id)
            return [] if address is None else [address]

        try:
            self.plane.listen(node_id, self.config.bound.host, ours.port, targets)
        except OSError as error:
            return self._not_bound(node_id, error.strerror or str(error))
        self._listening.add(node_id)
        self._refused.pop(node_id, None)
        self.notes(observe.BROKER_LISTENING, node_id=node_id, address=str(ours), upstream=str(upstream))
        return True

    def seen(self, sight: SeenCluster) -> None:
        """Apply a new view of the cluster. New brokers get a listener, those missing for the grace time lose theirs."""
        services = self.services
        now = services.timers.now()
        for metadata in sight.metadata:
            services.topology.fold(metadata, now)
        for node_id, versions in sight.versions.items():
            services.versions.learn(node_id, versions.ranges)
        services.book.retry_unbound()
        for node_id, address in sight.brokers.items():
            if services.book.advertise(node_id, address) is None:
                self._no_port(node_id)
        if sight.metadata:
            self._let_go(sight.brokers, now)
        self._compare(sight)

    def state(self) -> dict[str, object]:
        """Return the details for /readyz."""
        book = self.services.book
        brokers = {str(node_id): str(book.ours_of(node_id)) for node_id in sorted(book.nodes)}
        left_out = {str(node_id): self._refused.get(node_id, "") for node_id in sorted(book.unbound)}
        state = f"in topic {TOPIC}" if self.keeps_share_state else "in memory"
        told: dict[str, object] = {
            "brokers": brokers,
            "left_out": left_out,
            "share_groups": self.where,
            "state": state,
        }
        told |= {} if self.home is None else self.home.state()
        told |= {} if self.commits is None else {"commits": self.commits.state()}
        return told | ({} if self.views is None else {"views": self.views.state()})

    def gone(self) -> dict[int, str]:
        """Return the brokers that clients still know but Metadata no longer lists: node id -> since when."""
        now = self.services.timers.now()
        return {
            node_id: f"the cluster has not named it for {now - since:.0f} s"
            for node_id, since in sorted(self._gone_since.items())
        }

    def _no_port(self, node_id: int) -> None:
        if self.services.book.address_for(node_id) is None:
            port = self.config.first_broker_port + node_id
            self._not_bound(node_id, f"its port would be {port}, and ports end at 65535; set a lower first_port")

    def _not_bound(self, node_id: int, reason: str) -> bool:
        if self._refused.get(node_id) != reason:
            self._refused[node_id] = reason
            self.notes(observe.BROKER_NOT_BOUND, node_id=node_id, reason=reason)
        return False

    def _let_go(self, brokers: Mapping[int, Address], now: float) -> None:
        for node_id in tuple(self.services.book.nodes):
            if node_id in brokers:
                if self._gone_since.pop(node_id, None) is not None:
                    self.notes(observe.BROKER_BACK, node_id=node_id)
            elif node_id not in self._gone_since:
                self._gone_since[node_id] = now
                self.notes(observe.BROKER_VANISHED, node_id=node_id, grace_s=self.config.vanished_broker_grace_s)
        for node_id, since in tuple(self._gone_since.items()):
            if now - since >= self.config.vanished_broker_grace_s:
                del self._gone_since[node_id]
                self._forget(node_id)

    def _forget(self, node_id: int) -> None:
        self._listening.discard(node_id)
        self.plane.close_listener(node_id)
        self.services.book.forget(node_id)
        self.services.versions.forget(node_id)
        self.notes(observe.BROKER_FORGOTTEN, node_id=node_id)

    def _compare(self, sight: SeenCluster) -> None:
        """Log if share groups should move. They stay until a restart, because state must not vanish while it is
        in use.
        """
        if self.config.share_groups.serve != "auto" or sight.silent or not sight.versions:
            return
        local, reason = serving_side.decide(self.config.share_groups, sight)
        if self.mixed:
            local = not serving_side.rules(self.config.share_groups, sight).native
            differs = local
        else:
            differs = local != self.services.serve_share
        if differs and not self._told_restart:
            self.notes(observe.SHARE_GROUPS_NEED_RESTART, would_be="proxy" if local else "brokers", reason=reason)
        self._told_restart = differs


def introduction() -> Query:
    """Return a cheap request that brokers serve only to authenticated clients: Metadata without topics."""
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


def share_options(config: Config) -> ShareOptions:
    """Return the options of share groups from the settings."""
    bounds = tuple(
        RenewalBound(groups=limit.groups, renewals=limit.renewals, held_s=limit.held_s)
        for limit in config.share_groups.renewal_limits
    )
    return ShareOptions(
        rights_cache_s=config.rights_cache_s,
        renewal_bounds=bounds,
        state_wait_s=config.share_groups.state_wait_s,
    )


def planned_routes(config: Config, local: bool) -> Routes:
    """Return the routes of a proxy with these settings, for display only."""
    book = AddressBook(config.first_broker_port, config.advertised_host, lambda _node_id, _upstream: False)
    versions = EffectiveVersions(offer(config, local))
    services = _services(config, _StoppedClock(), lambda *_, **__: None, book, versions, MemoryJournal(), local)
    views = view_setup.set_up(config, services, own_settings(config, None), services.notes)
    commits = commit_setup.set_up(config, services, services.notes, "", None)
    served = commit_setup.with_commits(commits, share_group_apis.served(services) if local else {})
    return route_table.build(book, versions, services.limits, _with_views(views, served))


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
        raise LocalProtocolError(f"{callback} at {deadline}: nothing waits in parts that are only looked at")


def _with_views(views: view_setup.ViewRuntime | None, served: Mapping[int, Served]) -> dict[int, Served]:
    return view_setup.with_views(None if views is None else views.services, served)


def compose(
    config: Config,
    reactor: Reactor,
    notes: Notes,
    nursery: trio.Nursery,
    sight: SeenCluster,
    *,
    client_tls: ssl.SSLContext | None,
    upstream_tls: ssl.SSLContext | None,
    states: Sequence[HostState] = state_setup.STATES,
) -> ServingParts:
    """Build all parts without opening listeners. `states`: states that may be kept in topics of the cluster."""
    local, reason = serving_side.decide(config.share_groups, sight)
    limits = config.named_limits
    own, address = own_settings(config, upstream_tls), advertised(config)
    journal = (
        TopicJournal(SHARE_STATE, reactor, notes, address)
        if serving_side.keeps_state(config.share_groups, local=local)
        else None
    )
    holder: list[ServingParts] = []
    book = AddressBook(
        config.first_broker_port,
        config.advertised_host,
        lambda node_id, upstream: holder[0].bind(node_id, upstream),
        pinned=config.upstream.nodes,
    )
    versions = EffectiveVersions(offer(config, local))
    services = _services(config, reactor, notes, book, versions, journal or MemoryJournal(), local)
    services.own = OwnIdentityQueries(nursery, own, book.upstream_of)
    if local:
        DeletedTopics(services).start()
    commits = commit_setup.set_up(config, services, notes, address, reactor)
    setup = StateSetup(
        config=config, services=services, reactor=reactor, notes=notes, settings=own, address=address, commits=commits
    )
    home = state_setup.home(setup, states)
    views = view_setup.set_up(config, services, own, notes)
    if commits is not None:
        services.has_ranges = commits.has_ranges
    if commits is not None and views is not None:
        commits.base_of = view_setup.base_of
    rules = serving_side.checked_rules(
        config.share_groups, sight, local=local, is_fleet=config.peer_address is not None
    )
    served = commit_setup.with_commits(commits, share_group_apis.served(services, rules) if local else {})
    view_services, mixed = None if views is None else views.services, local and rules.are_mixed
    audited = audit_setup.Audited(services, view_services, commits, are_mixed=mixed)
    audit = audit_setup.set_up(config, audited, address, own, notes)
    built = audit_setup.watching(audit, route_table.build(book, versions, limits, _with_views(views, served)))
    routes = view_setup.routes(view_services, built)
    dialler = Dialler(nursery, limits.dial_timeout_s)
    times = ServedTimes()
    plane = _plane(config, reactor, services, routes, dialler, notes, client_tls, upstream_tls, times)
    workers = WorkerThreads(reactor)
    audit_setup.give_workers(audit, workers)
    if views is not None:
        views.services.workers = workers
        views.services.catalog.on_first(plane.refresh_routes)
    committing = commit_setup.runtime(commits, setup.access)
    holder.append(ServingParts(config, notes, services, plane, reason, home, audit, views, committing, times, mixed))
    return holder[0]


def _services(
    config: Config,
    timers: Timers,
    notes: Notes,
    book: AddressBook,
    versions: EffectiveVersions,
    journal: Journal[StateKey],
    local: bool,
) -> ShareServices:
    return apis_services.build(
        limits=config.named_limits,
        share_limits=config.share_groups.limits,
        options=share_options(config),
        timers=timers,
        notes=notes,
        book=book,
        topology=ClusterView(),
        versions=versions,
        journal=journal,
        serve_share=local,
        state_owner=journal if isinstance(journal, TopicJournal) else PROCESS,
    )


def _plane(
    config: Config,
    reactor: Reactor,
    services: ShareServices,
    routes: Callable[[], Routes],
    dialler: Dialler,
    notes: Notes,
    client_tls: ssl.SSLContext | None,
    upstream_tls: ssl.SSLContext | None,
    times: ServedTimes,
) -> Plane:
    return Plane(
        reactor,
        routes,
        services.limits,
        notes,
        dialler,
        client_tls=client_tls,
        upstream_tls=upstream_tls,
        upstream_server_name=config.upstream.tls.server_name,
        keep_alive=keep_alive_query,
        introduction=introduction(),
        budget=services.responses,
        slices=services.slices,
        served=times.observe,
        node_at=services.topology.node_at,
    )


def advertised(config: Config) -> str:
    """Return the address that clients bootstrap from. It identifies this proxy among others."""
    return str(Address(config.advertised_host, config.bound.port))
