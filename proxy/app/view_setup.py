"""Views, put together: what is known, where it is kept, who makes them ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import trio

from proxy.app.config import Config
from proxy.brokers.own_client import OwnClient
from proxy.brokers.own_client_connection import OwnPort
from proxy.brokers.own_connection import OwnSettings
from proxy.forwarding import chain
from proxy.forwarding.declared_api import Served
from proxy.forwarding.routes import Routes
from proxy.forwarding.services import Services
from proxy.loop.interfaces import Notes
from proxy.views import view_apis
from proxy.views.base_watch import ViewWatch
from proxy.views.creation import ViewCreation
from proxy.views.model import names
from proxy.views.model.catalog import ViewCatalog
from proxy.views.model.names import BadViewName
from proxy.views.options import ViewOptions
from proxy.views.services import ViewServices
from proxy.views.state_records import TOPIC
from proxy.views.store import MemoryViewStore, ViewStore
from proxy.views.stored_state import ViewState
from proxy.wire import compression
from proxy.wire.api_key import ApiKey


def options(config: Config) -> ViewOptions:
    """How views are served, by the settings."""
    views = config.views
    return ViewOptions(
        slots_max=views.slots_max,
        partitions_max=views.partitions_max,
        create_wait_s=views.create_wait_s,
        codec=compression.NAMES.index(views.codec),
        cache_bytes=views.cache_bytes,
        cache_age_s=views.cache_age_s,
        read_bytes=views.read_bytes,
        scanned_bytes=views.scanned_bytes,
    )


@dataclass(slots=True)
class ViewRuntime:
    """What goes on about views while the proxy runs."""

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
        """What does not work for want of rights; empty when all does."""
        return self.store.off if isinstance(self.store, ViewState) else ""

    def state(self) -> dict[str, object]:
        """What /readyz says about it."""
        kept = self.store.off or f"in topic {TOPIC}"
        return {"ready": len(self.services.catalog), "plans": len(self.services.catalog.plans), "kept": kept}


def set_up(config: Config, services: Services, settings: OwnSettings, notes: Notes) -> ViewRuntime | None:
    """What the handlers of views are given, and what goes on beside them; None where views are switched off."""
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
    """The routes of this moment: as long as no view is known, Produce is not looked into."""
    if views is None:
        return lambda: built
    quiet = Routes(built.fallback)
    for route in built.values():
        quiet.add(replace(route, handler=None, serve_here=None, wants=None) if route.key == ApiKey.PRODUCE else route)
    catalog = views.catalog
    return lambda: quiet if catalog.is_empty else built


def with_views(views: ViewServices | None, served: Mapping[int, Served]) -> dict[int, Served]:
    """What is served with views, where they are served, in front of `served`."""
    return dict(served) if views is None else chain.in_order((view_apis.served(views), served))


def base_of(topic: str) -> str:
    """The topic that a view is of; any other topic itself."""
    try:
        view = names.parse(topic)
    except BadViewName:
        return topic
    return topic if view is None else view.base
