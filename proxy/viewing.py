"""Views, put together: what is known, where it is kept, who makes them ready."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.apis import view_handlers
from proxy.apis.ports import Notes
from proxy.apis.services import Services
from proxy.apis.table import Served
from proxy.apis.view_creation import ViewCreation
from proxy.apis.view_services import ViewOptions, ViewServices
from proxy.apis.view_store import MemoryViewStore
from proxy.config import Config
from proxy.views.catalog import ViewCatalog
from proxy.wire import compression


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


def set_up(config: Config, services: Services, notes: Notes) -> None:
    """Give the handlers what they need to serve views; nothing where views are switched off."""
    if not config.views.serve:
        return
    catalog = ViewCatalog()
    store = MemoryViewStore(catalog)
    keeper = ViewCreation(catalog, options(config), store, services.timers, notes)
    services.views = ViewServices(catalog=catalog, options=options(config), keeper=keeper)


def with_views(config: Config, services: Services | None, served: Mapping[int, Served]) -> dict[int, Served]:
    """What is served with views in front of `served`."""
    if not config.views.serve:
        return dict(served)
    catalog = services.views.catalog if services is not None and services.views is not None else ViewCatalog()
    return view_handlers.in_front(view_handlers.served(catalog), served)
