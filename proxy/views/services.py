"""What the handlers of views are given: what is known, how views are served, and who makes and finds them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from proxy.brokers.interfaces import Connection
from proxy.brokers.questions import TopicEntry
from proxy.forwarding.services import Services
from proxy.loop.interfaces import Workers
from proxy.loop.promise import Promise, settled
from proxy.views.creation import SeenView
from proxy.views.fetch.key_filter import Filters
from proxy.views.fetch.shared_reads import ViewReads
from proxy.views.fetch.view_chunks import ViewCache
from proxy.views.model.catalog import ViewCatalog
from proxy.views.model.names import ViewName
from proxy.views.options import ViewOptions
from proxy.views.store import ViewStore
from proxy.wire.errors import ErrorCode

T = TypeVar("T")


class Inline:
    """interfaces.Workers without threads."""

    def run(self, work: Callable[[], T], owner: Hashable = None, *, is_large: bool = False) -> Promise[T]:  # noqa: ARG002 - nobody waits
        """See interfaces.Workers."""
        return settled(work())


class ViewKeeper(Protocol):
    """Makes views ready, and tells which topic ids are views (`creation.ViewCreation`)."""

    @property
    def store(self) -> ViewStore:
        """Where plans are kept, and which base a view belongs to."""

    async def ensure(self, connection: Connection, topics: Iterable[str]) -> Mapping[str, ErrorCode]:
        """See ViewServices.ensure."""

    async def resolve(self, connection: Connection, topic_ids: Iterable[bytes]) -> None:
        """See ViewServices.resolve."""

    async def look(
        self, connection: Connection, names: Iterable[ViewName], *, create: bool = True, operations: bool = False
    ) -> dict[str, SeenView]:
        """See ViewCreation.look."""

    async def know(self, names: Iterable[ViewName]) -> bool:
        """See ViewCreation.know."""

    def read(self, topics: Iterable[str]) -> tuple[list[ViewName], dict[str, ErrorCode]]:
        """See ViewCreation.read."""

    def file(self, entries: Iterable[TopicEntry]) -> list[str]:
        """See ViewCreation.file."""


@dataclass(slots=True, kw_only=True)
class ViewServices:
    """One per process, where views are served."""

    services: Services
    """What the handlers of every feature are given."""
    catalog: ViewCatalog = field(default_factory=ViewCatalog)
    options: ViewOptions = field(default_factory=ViewOptions)
    keeper: ViewKeeper
    workers: Workers = field(default_factory=Inline)
    """Takes batches apart where that takes long."""
    filters: Filters = field(default_factory=Filters)
    """KeyFilters that were read lately."""
    reads: ViewReads = field(init=False)
    """What was read for views, and is being read."""

    def __post_init__(self) -> None:
        """Make what the options say."""
        options = self.options
        self.reads = ViewReads(ViewCache(options.cache_bytes, options.cache_age_s), options.codec)

    async def ensure(self, connection: Connection, topics: Iterable[str]) -> Mapping[str, ErrorCode]:
        """Make these views ready over the client's own connection: created, grown, visible, in the catalog.

        Topic -> what stands in its way; NONE: `catalog.named` has it. Names that are no views are left out. Takes at
        most `options.create_wait_s`. Raises UpstreamLost.
        """
        return await self.keeper.ensure(connection, topics)

    async def resolve(self, connection: Connection, topic_ids: Iterable[bytes]) -> None:
        """Ask, over the client's own connection, for each id that the catalog does not know whether it is a view's.

        Afterwards each is a view or plain in the catalog, except those that the broker does not know either, or whose
        view cannot be made ready: neither may go upstream in a Fetch, which the empty topic would answer
        (views/README.md rule 19). Raises UpstreamLost.
        """
        await self.keeper.resolve(connection, topic_ids)
