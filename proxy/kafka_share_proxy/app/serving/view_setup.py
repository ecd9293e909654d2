"""Setup of views: their catalog, its storage, and their creation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import trio

from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.brokers.own_client import OwnClient
from kafka_share_proxy.brokers.own_client_connection import OwnPort
from kafka_share_proxy.brokers.own_connection import OwnSettings
from kafka_share_proxy.forwarding.dispatch import chain
from kafka_share_proxy.forwarding.dispatch.declared_api import Served
from kafka_share_proxy.forwarding.dispatch.routes import Routes
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.views import view_apis
from kafka_share_proxy.views.base_watch import ViewWatch
from kafka_share_proxy.views.creation import ViewCreation
from kafka_share_proxy.views.model import names
from kafka_share_proxy.views.model.catalog import ViewCatalog
from kafka_share_proxy.views.model.names import BadViewName
from kafka_share_proxy.views.options import ViewOptions
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.views.state_records import TOPIC
from kafka_share_proxy.views.store import MemoryViewStore, ViewStore
from kafka_share_proxy.views.stored_state import ViewState
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.records import compression


def options(config: Config) -> ViewOptions:
    """Return the options of views from the settings."""
    views = config.views
    return ViewOptions(
        slots_max=views.slots_max,
        partitions_max=views.partitions_max,
        views_max=views.views_max,
        create_wait_s=views.create_wait_s,
        codec=compression.NAMES.index(views.codec),
        cache_bytes=views.cache_bytes,
        cache_age_s=views.cache_age_s,
        read_bytes=views.read_bytes,
        scanned_bytes=views.scanned_bytes,
    )


@dataclass(slots=True)
class ViewRuntime:
    """Background work for views while the proxy runs."""

    services: ViewServices
    store: ViewStore
    watch: ViewWatch

    async def run(self) -> None:
        """Follow the stored facts and the bases until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.watch.run)
            if isinstance(self.store, ViewState):
                nursery.start_soon(self.store.run)

    @property
    def missing(self) -> str:
        """Limitation caused by missing rights; empty if there is none."""
        return self.store.off if isinstance(self.store, ViewState) else ""

    def state(self) -> dict[str, object]:
        """Return the details for /readyz."""
        kept = self.store.off or f"in topic {TOPIC}"
        told: dict[str, object] = {"ready": len(self.services.catalog), "plans": len(self.services.catalog.plans)}
        if isinstance(self.store, ViewState) and self.store.guard.risks:
            told["risks"] = list(self.store.guard.risks.values())
        return told | {"kept": kept}


def set_up(config: Config, services: Services, settings: OwnSettings, notes: Notes) -> ViewRuntime | None:
    """Create the services of the view handlers and the background work; None if views are switched off."""
    if not config.views.serve:
        return None

    def client() -> OwnClient:
        return OwnClient(config.upstream.bootstrap, settings, config.upstream.nodes)

    catalog = ViewCatalog()
    interval_s = config.views.growth_interval_s
    store: ViewStore = MemoryViewStore(catalog)
    if config.views.state == "topic":
        store = ViewState(catalog, client, interval_s, notes)
    keeper = ViewCreation(catalog, options(config), store, services.timers, notes)
    keeper.own = own = OwnPort(client())
    views = ViewServices(services=services, catalog=catalog, options=options(config), keeper=keeper)
    return ViewRuntime(views, store, ViewWatch(keeper, own, interval_s, notes))


def routes(views: ViewServices | None, built: Routes) -> Callable[[], Routes]:
    """Return the current routes. While no view is known, Produce requests are not inspected."""
    if views is None:
        return lambda: built
    quiet = Routes(built.fallback)
    for route in built.values():
        quiet.add(replace(route, handler=None, serve_here=None, wants=None) if route.key == ApiKey.PRODUCE else route)
    catalog = views.catalog
    return lambda: quiet if catalog.is_empty else built


def with_views(views: ViewServices | None, served: Mapping[int, Served]) -> dict[int, Served]:
    """Combine the handlers of views, if they are served, with `served`. Those of views run first."""
    return dict(served) if views is None else chain.in_order((view_apis.served(views), served))


def base_of(topic: str) -> str:
    """Return the base of a view, or the topic itself if it is not a view."""
    try:
        view = names.parse(topic)
    except BadViewName:
        return topic
    return topic if view is None else view.base
