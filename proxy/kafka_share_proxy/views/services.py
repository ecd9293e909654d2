"""Dependencies of the handlers of views: what is known of views, the options, and the preparation of views."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Protocol, TypeVar

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.brokers.queries import TopicEntry
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.loop.interfaces import Workers
from kafka_share_proxy.loop.promise import Promise, settled
from kafka_share_proxy.loop.slices import AT_ONCE, Work
from kafka_share_proxy.views.audit_events import ViewAudit
from kafka_share_proxy.views.creation import Missing, SeenView
from kafka_share_proxy.views.fetch.key_filter import Filters
from kafka_share_proxy.views.fetch.shared_reads import ViewReads
from kafka_share_proxy.views.fetch.view_chunks import ViewCache
from kafka_share_proxy.views.model.catalog import ViewCatalog
from kafka_share_proxy.views.model.names import ViewName
from kafka_share_proxy.views.options import ViewOptions
from kafka_share_proxy.views.store import ViewStore
from kafka_share_proxy.wire.errors import ErrorCode

T = TypeVar("T")


class Inline:
    """Implementation of interfaces.Workers without threads."""

    def run(self, work: Callable[[], T], owner: Hashable = None, *, is_large: bool = False) -> Promise[T]:  # noqa: ARG002 - no waiting
        return settled(work())


class ViewKeeper(Protocol):
    """Prepares views and finds out which topic ids are views (`creation.ViewCreation`)."""

    @property
    def store(self) -> ViewStore: ...

    async def ensure(
        self, connection: Connection, topics: Iterable[str], work: Work = AT_ONCE
    ) -> Mapping[str, ErrorCode]: ...

    async def resolve(self, connection: Connection, topic_ids: Iterable[bytes], work: Work = AT_ONCE) -> None: ...

    async def prepare(
        self,
        connection: Connection,
        names: Iterable[ViewName],
        *,
        missing: Missing = Missing.CREATE,
        operations: bool = False,
        work: Work = AT_ONCE,
    ) -> dict[str, SeenView]: ...

    async def know(self, names: Sequence[ViewName]) -> bool: ...

    async def read(
        self, topics: Iterable[str], work: Work = AT_ONCE
    ) -> tuple[list[ViewName], dict[str, ErrorCode]]: ...

    async def file(self, entries: Iterable[TopicEntry], work: Work = AT_ONCE) -> list[str]: ...


@dataclass(slots=True, kw_only=True)
class ViewServices:
    """Objects for the handlers of views. One per process."""

    services: Services
    catalog: ViewCatalog = field(default_factory=ViewCatalog)
    options: ViewOptions = field(default_factory=ViewOptions)
    keeper: ViewKeeper
    workers: Workers = field(default_factory=Inline)
    """Worker threads that split batches if that takes long."""
    filters: Filters = field(default_factory=Filters)
    """Cache of parsed KeyFilters."""
    audit: InitVar[ViewAudit | None] = None
    """Receiver of what is read and which reader gets it. None if audit is off, which is the default."""
    reads: ViewReads = field(init=False)

    def __post_init__(self, audit: ViewAudit | None) -> None:
        """Create the cache that the options describe."""
        options = self.options
        self.reads = ViewReads(ViewCache(options.cache_bytes, options.cache_age_s), options.codec, audit=audit)

    async def ensure(
        self, connection: Connection, topics: Iterable[str], work: Work = AT_ONCE
    ) -> Mapping[str, ErrorCode]:
        """Make these views ready over the client's own connection: created, grown, visible, in the catalog.

        Return the error code of each topic. With NONE, `catalog.named` has the view. Waits at most
        `options.create_wait_s`. Raises UpstreamLost.
        """
        return await self.keeper.ensure(connection, topics, work)

    async def resolve(self, connection: Connection, topic_ids: Iterable[bytes], work: Work = AT_ONCE) -> None:
        """Find out over the client's own connection whether unknown topic ids are views.

        Afterwards each id is a view or plain in the catalog. Exceptions are ids that the broker does not know either,
        and ids of views that cannot be made ready. Neither may be sent upstream in a Fetch, to which the broker would
        respond for the view's empty topic (views/README.md rule 19). Raises UpstreamLost.
        """
        await self.keeper.resolve(connection, topic_ids, work)
