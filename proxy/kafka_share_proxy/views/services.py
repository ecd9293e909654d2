"""Dependencies of the handlers of views: what is known of views, the options, and the preparation of views."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field

from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.loop.interfaces import Workers
from kafka_share_proxy.loop.workers import InlineWorkers
from kafka_share_proxy.views.audit_events import ViewAudit
from kafka_share_proxy.views.creation import ViewCreation
from kafka_share_proxy.views.fetch.key_filter import KeyFilterCache
from kafka_share_proxy.views.fetch.shared_reads import ViewReads
from kafka_share_proxy.views.fetch.view_chunks import ViewCache
from kafka_share_proxy.views.model.catalog import ViewCatalog
from kafka_share_proxy.views.settings import Views
from kafka_share_proxy.wire.records import compression


@dataclass(slots=True, kw_only=True)
class ViewServices:
    """Dependencies of the handlers of views."""

    services: Services
    catalog: ViewCatalog = field(default_factory=ViewCatalog)
    options: Views = field(default_factory=Views)
    creation: ViewCreation
    workers: Workers = field(default_factory=InlineWorkers)
    filters: KeyFilterCache = field(default_factory=KeyFilterCache)
    """Cache of parsed KeyFilters."""
    audit: InitVar[ViewAudit | None] = None
    """None if audit is off."""
    reads: ViewReads = field(init=False)

    def __post_init__(self, audit: ViewAudit | None) -> None:
        """Create the cache that the options describe."""
        options = self.options
        self.reads = ViewReads(
            ViewCache(options.cache_bytes, options.cache_age_s), compression.NAMES.index(options.codec), audit=audit
        )
