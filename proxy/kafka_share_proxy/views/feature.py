"""Views as a feature: their services, stored facts, metrics, tasks and probe."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka_share_proxy.brokers.cluster_client_connection import ClusterClientConnection
from kafka_share_proxy.feature.feature import (
    ALL,
    NONE,
    Coverage,
    Feature,
    FeatureKind,
    Platform,
    Probe,
    SharedRules,
    Stage,
)
from kafka_share_proxy.feature.status import StatusSection
from kafka_share_proxy.forwarding.dispatch.declared_api import Served
from kafka_share_proxy.views import log_events, metrics, view_apis
from kafka_share_proxy.views.audit_events import ViewAudit
from kafka_share_proxy.views.base_watch import ViewWatch
from kafka_share_proxy.views.creation import ViewCreation
from kafka_share_proxy.views.lag import ViewLag
from kafka_share_proxy.views.model import names
from kafka_share_proxy.views.model.catalog import ViewCatalog
from kafka_share_proxy.views.model.names import BadViewName
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.views.settings import Views
from kafka_share_proxy.views.state_records import TOPIC
from kafka_share_proxy.views.store import MemoryViewStore, ViewStore
from kafka_share_proxy.views.stored_state import ViewState

if TYPE_CHECKING:
    from kafka_share_proxy.views.checks import ViewCheck

PROBE = "views"


class ViewFeature(FeatureKind):
    """Declaration of the feature."""

    section = "views"
    events = log_events.EVENTS
    probe_path = PROBE

    def rules(self, settings: Views, shared: SharedRules) -> SharedRules:
        return replace(shared, base_of=base_of) if settings.serve else shared

    def check(self, settings: Views) -> ViewCheck:
        from kafka_share_proxy.views.checks import ViewCheck  # for the command `check` only

        return ViewCheck(settings)

    def build(self, settings: Views, platform: Platform) -> Feature:
        if not settings.serve:
            off = Coverage("views", NONE, "views.serve is off: views are topics like any other")
            return Feature(probe=Probe(path=PROBE, off="views are switched off (views.serve)"), coverage=(off,))
        runtime = new_runtime(settings, platform)
        views = runtime.services
        lag = ViewLag(views)
        apis: dict[Stage, Mapping[int, Served]] = {}

        def select_apis() -> None:
            """Leave Produce, the hottest path of all, uninspected while no view is known."""
            is_inspected = platform.is_displayed or not views.catalog.is_empty
            apis[Stage.NAMES] = view_apis.served(views, inspects_produce=is_inspected)

        select_apis()
        views.catalog.on_change(select_apis)
        coverage = Coverage(
            "views", ALL, "all responses to readers of views or with a KeyFilter, summed up by the second"
        )
        return Feature(
            apis=apis,
            guards=(runtime.store.guard,) if isinstance(runtime.store, ViewState) else (),
            add_metrics=partial(metrics.add, views=views, lag=lag),
            status=partial(_status, views, lag),
            tasks=runtime.tasks,
            probe=runtime.probe(),
            coverage=(coverage,),
            on_apis=views.catalog.on_change,
            services=views,
        )


VIEWS = ViewFeature()


@dataclass(slots=True)
class ViewRuntime:
    """Background work for views while the proxy runs."""

    services: ViewServices
    store: ViewStore
    watch: ViewWatch

    @property
    def tasks(self) -> tuple[Callable[[], Any], ...]:
        return (self.watch.run, self.store.run) if isinstance(self.store, ViewState) else (self.watch.run,)

    @property
    def missing(self) -> str:
        """Limitation caused by missing rights."""
        return self.store.off if isinstance(self.store, ViewState) else ""

    def state(self) -> dict[str, object]:
        """Return the details for /readyz."""
        storage = self.store.off or f"in topic {TOPIC}"
        details: dict[str, object] = {"ready": len(self.services.catalog), "plans": len(self.services.catalog.plans)}
        if isinstance(self.store, ViewState) and self.store.guard.risks:
            details["risks"] = list(self.store.guard.risks.values())
        return details | {"kept": storage}

    def probe(self) -> Probe:
        return Probe(path=PROBE, lacks=lambda: self.missing, details=lambda: {"views": self.state()})


def new_runtime(settings: Views, platform: Platform) -> ViewRuntime:
    audit = None if platform.audit is None else ViewAudit(platform.audit)
    catalog = ViewCatalog(on_plan=None if audit is None else audit.plan_loaded)
    interval_s, notes = settings.growth_interval_s, platform.notes
    store: ViewStore = MemoryViewStore(catalog)
    if settings.state == "topic":
        store = ViewState(catalog, platform.client, interval_s, notes)
    own = ClusterClientConnection(platform.client())
    creation = ViewCreation(catalog, settings, store, platform.services.timers, notes, own)
    views = ViewServices(
        services=platform.services,
        catalog=catalog,
        options=settings,
        creation=creation,
        workers=platform.workers,
        audit=audit,
    )
    return ViewRuntime(views, store, ViewWatch(creation, own, interval_s, notes))


def base_of(topic: str) -> str:
    try:
        view = names.parse(topic)
    except BadViewName:
        return topic
    return topic if view is None else view.base


def _status(views: ViewServices, lag: ViewLag) -> Generator[None, None, StatusSection]:
    from kafka_share_proxy.views import status  # loaded when the page is open: an idle proxy should be small

    return status.section(views, lag)
