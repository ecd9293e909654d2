"""Share groups as a feature: which side serves them, their services, state, metrics and probe."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.durable.described_state import DescribedState
from kafka_share_proxy.durable.journal import TopicJournal
from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.feature.feature import (
    ALL,
    PART,
    Coverage,
    Feature,
    FeatureKind,
    Platform,
    Probe,
    Stage,
)
from kafka_share_proxy.feature.status import StatusSection
from kafka_share_proxy.forwarding.dispatch.offered_versions import FeatureOffer
from kafka_share_proxy.forwarding.dispatch.routes import Routes
from kafka_share_proxy.forwarding.observed.forwarded_shares import watched
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.promise import PROCESS
from kafka_share_proxy.sharegroups import admin_pages, log_events, metrics, serving_side, share_group_apis
from kafka_share_proxy.sharegroups import services as share_services
from kafka_share_proxy.sharegroups.carried_requests import CarriedShareRequests
from kafka_share_proxy.sharegroups.lag import ShareLag
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator
from kafka_share_proxy.sharegroups.model.redelivery import DelayedRuns
from kafka_share_proxy.sharegroups.model.renewal import RenewalBound
from kafka_share_proxy.sharegroups.moves_here import Moves
from kafka_share_proxy.sharegroups.placement import ShareRules
from kafka_share_proxy.sharegroups.services import ShareOptions, ShareServices
from kafka_share_proxy.sharegroups.settings import ShareGroups
from kafka_share_proxy.sharegroups.state.deleted_topics import DeletedTopics
from kafka_share_proxy.sharegroups.state.held_state import HeldShareState
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE, TOPIC, StateKey, share_gate

if TYPE_CHECKING:
    from kafka_share_proxy.sharegroups.checks import ShareGroupCheck

PROBE = "share-groups"
BY_GROUP = "proxy or brokers, by group"
FORWARDED = (
    "what passes through here is seen, deliveries and acknowledgements; what the brokers do by themselves is not: "
    "locks that run out, sessions that end, the start offset"
)


class ShareGroupFeature(FeatureKind):
    """Declaration of the feature."""

    section = "share_groups"
    events = log_events.EVENTS
    probe_path = PROBE
    admin_paths = (admin_pages.PATH,)
    decisive_topics = (TOPIC,)

    def offers(self, settings: ShareGroups, cluster: ClusterSnapshot) -> Sequence[FeatureOffer]:
        return (share_group_apis.OFFER,) if serving_side.decide(settings, cluster)[0] else ()

    def states(self, settings: ShareGroups, cluster: ClusterSnapshot) -> Sequence[DescribedState[Any]]:
        local, _ = serving_side.decide(settings, cluster)
        return (SHARE_STATE,) if serving_side.keeps_state(settings, local=local) else ()

    def check(self, settings: ShareGroups) -> ShareGroupCheck:
        from kafka_share_proxy.sharegroups.checks import ShareGroupCheck  # for the command `check` only

        return ShareGroupCheck(settings)

    def build(self, settings: ShareGroups, platform: Platform) -> Feature:
        local, reason = serving_side.decide(settings, platform.cluster)
        observed = observed_routes(platform.audit)
        if not local:
            return _of_brokers(ServingSide(settings, platform.notes, "brokers", reason), observed)
        rules = serving_side.rules(settings, platform.cluster)
        is_kept = not platform.is_displayed and serving_side.keeps_state(settings, local=True)
        services = new_services(settings, platform, is_kept=is_kept)
        if not platform.is_displayed:
            DeletedTopics(services).start()
        where = BY_GROUP if rules.are_mixed else "proxy"
        side = ServingSide(settings, platform.notes, where, reason, is_kept=is_kept)
        lag, apis = ShareLag(services), {Stage.GROUPS: share_group_apis.served(services, rules)}
        choice, moves = share_group_apis.choice_of(services, rules), Moves(services, rules)
        carried = CarriedShareRequests(services, share_group_apis.of_owner(services, rules), choice)

        def serve_by_group() -> None:
            apis[Stage.GROUPS] = share_group_apis.served(services, rules)
            carried.serve_with(share_group_apis.of_owner(services, rules))

        side.notice(rules, serve_by_group)
        return Feature(
            apis=apis,
            carried=carried if is_kept else None,
            groups=carried,
            command=partial(admin_pages.command, services, moves),
            add_metrics=partial(metrics.add, services=services, lag=lag),
            status=partial(_status, services, lag),
            probe=side.probe(),
            coverage=(_coverage(mixed=rules.are_mixed, is_fleet=platform.is_fleet),),
            on_open=side.open,
            on_cluster=side.on_cluster,
            on_apis=side.on_apis,
            observed=observed,
            pages={admin_pages.PATH: partial(admin_pages.response, services, moves=moves)},
            services=services,
        )


SHARE_GROUPS = ShareGroupFeature()


def _of_brokers(side: ServingSide, observed: Callable[[Routes], Routes]) -> Feature:
    """Return the feature where the brokers serve all share groups."""
    coverage = Coverage("share_groups", PART, f"the brokers serve share groups: {FORWARDED}")
    return Feature(
        probe=side.probe(),
        coverage=(coverage,),
        on_open=side.open,
        on_cluster=side.on_cluster,
        observed=observed,
        status=_status_of_brokers,
        pages={admin_pages.PATH: admin_pages.of_brokers},
    )


class ServingSide:
    """The side that serves share groups, as it was decided at start."""

    def __init__(self, settings: ShareGroups, notes: Notes, where: str, reason: str, *, is_kept: bool = False) -> None:
        """`where`: the brokers, the proxy, or both by group. `is_kept`: share state is stored in its topic."""
        self.where = where
        self._settings = settings
        self._notes = notes
        self._reason = reason
        self._is_kept = is_kept
        self._is_restart_reported = False
        self._rules: ShareRules | None = None
        """Rules for which the support of the brokers can be noticed later; None if it has no effect on them."""
        self._serve_by_group: Callable[[], None] = lambda: None
        self._changed: list[Callable[[], object]] = []

    def notice(self, rules: ShareRules, serve_by_group: Callable[[], None]) -> None:
        """Notice when the brokers begin to serve share groups. Then set `rules`, and call `serve_by_group`."""
        if not rules.native and any(rule.serve == "auto" for rule in rules.rules):
            self._rules, self._serve_by_group = rules, serve_by_group

    def on_apis(self, changed: Callable[[], object]) -> None:
        """See Feature.on_apis."""
        self._changed.append(changed)

    def open(self) -> None:
        """Log the side. A stored state is loaded next, or another proxy serves it."""
        placed = "share-groups-belong-here" if self._is_kept else "share-groups-served"
        self._notes(placed, by=self.where, reason=self._reason)

    def on_cluster(self, cluster: ClusterSnapshot) -> None:
        """Follow the support of the brokers (sharegroups/README.md rule 1). Log if only a restart can."""
        if cluster.silent or not cluster.versions:
            return
        if self._rules is not None:
            now = serving_side.rules(self._settings, cluster)
            self._rules.lacking = now.lacking
            if now.native:
                self._noticed(self._rules)
        if self._settings.serve != "auto":
            return
        local, reason = serving_side.decide(self._settings, cluster)
        if self.where == BY_GROUP:
            local = not serving_side.rules(self._settings, cluster).native
            differs = local
        else:
            differs = local != (self.where == "proxy")
        if differs and not self._is_restart_reported:
            self._notes("share-groups-need-restart", would_be="proxy" if local else "brokers", reason=reason)
        self._is_restart_reported = differs

    def _noticed(self, rules: ShareRules) -> None:
        rules.native, self._rules, self.where = True, None, BY_GROUP
        self._notes("share-groups-of-brokers-noticed")
        self._serve_by_group()
        for changed in self._changed:
            changed()

    def probe(self) -> Probe:
        state = f"in topic {TOPIC}" if self._is_kept else "in memory"
        return Probe(
            path=PROBE,
            topic=TOPIC,
            is_first=True,
            details=lambda: {"share_groups": self.where},
            also=lambda: {"state": state},
        )


def new_services(settings: ShareGroups, platform: Platform, *, is_kept: bool) -> ShareServices:
    """Create the services of the handlers. `is_kept`: share state is stored in its topic."""
    timers = platform.services.timers
    delayed = DelayedRuns(timers.now, lambda: timers.wall_ms() / 1000)
    coordinator, gate = ShareCoordinator(settings.limits, delayed), share_gate()
    journal: TopicJournal[StateKey] | MemoryJournal[StateKey] = MemoryJournal()
    if is_kept:
        hosted = platform.host(SHARE_STATE, HeldShareState(coordinator), state_partition)
        gate, journal = hosted.gate, hosted.journal
    return share_services.build(
        platform.services,
        coordinator=coordinator,
        gate=gate,
        options=options(settings, platform.services.options.rights_cache_s),
        journal=journal,
        state_owner=journal if isinstance(journal, TopicJournal) else PROCESS,
        audit=platform.audit,
        fleet=platform.fleet,
        has_ranges=platform.rules.has_ranges,
        workers=platform.workers,
        dead_letters=settings.dead_letters,
    )


def observed_routes(audit: Audit | None) -> Callable[[Routes], Routes]:
    """Return the function for `Feature.observed`: the brokers may serve some share groups on either side."""
    return lambda routes: routes if audit is None else watched(routes, audit)


def options(settings: ShareGroups, rights_cache_s: float) -> ShareOptions:
    bounds = tuple(
        RenewalBound(groups=limit.groups, renewals=limit.renewals, held_s=limit.held_s)
        for limit in settings.renewal_limits
    )
    return ShareOptions(rights_cache_s=rights_cache_s, renewal_bounds=bounds, state_wait_s=settings.state_wait_s)


def _coverage(*, mixed: bool, is_fleet: bool) -> Coverage:
    if mixed:
        return Coverage("share_groups", PART, f"the brokers serve some of the share groups: of these {FORWARDED}")
    if is_fleet:
        return Coverage("share_groups", ALL, "of the groups that this proxy owns; other proxies report theirs")
    return Coverage("share_groups", ALL, "every delivery")


def _status(services: ShareServices, lag: ShareLag) -> Generator[None, None, StatusSection]:
    from kafka_share_proxy.sharegroups import status  # loaded when the page is open: an idle proxy should be small

    return status.section(services, lag)


def _status_of_brokers() -> Generator[None, None, StatusSection]:
    from kafka_share_proxy.sharegroups import status

    return status.of_brokers()
