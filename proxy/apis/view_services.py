"""What handlers are given about views: what is known, how they are served, and the doors to making and finding them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from proxy.apis.ports import Connection
from proxy.errors import ErrorCode
from proxy.views.catalog import ViewCatalog
from proxy.views.names import SLOTS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """How views are served (settings `views.*`)."""

    slots_max: int = SLOTS_MAX
    """A view that would have more slots is refused."""
    partitions_max: int = 10_000
    """A view that would have more partitions is refused."""
    create_wait_s: float = 10.0
    """How long a request that names a view waits for it to be ready."""


class ViewKeeper(Protocol):
    """Makes views ready, and tells which topic ids are views (`view_creation.ViewCreation`)."""

    async def ensure(self, connection: Connection, topics: Iterable[str]) -> Mapping[str, ErrorCode]:
        """See ViewServices.ensure."""

    async def resolve(self, connection: Connection, topic_ids: Iterable[bytes]) -> None:
        """See ViewServices.resolve."""


@dataclass(slots=True, kw_only=True)
class ViewServices:
    """One per process, where views are served."""

    catalog: ViewCatalog = field(default_factory=ViewCatalog)
    options: ViewOptions = field(default_factory=ViewOptions)
    keeper: ViewKeeper

    async def ensure(self, connection: Connection, topics: Iterable[str]) -> Mapping[str, ErrorCode]:
        """Make these views ready over the client's own connection: created, grown, visible, in the catalog.

        Topic -> what stands in its way; NONE: `catalog.named` has it. Names that are no views are left out. Takes at
        most `options.create_wait_s`. Raises UpstreamLost.
        """
        return await self.keeper.ensure(connection, topics)

    async def resolve(self, connection: Connection, topic_ids: Iterable[bytes]) -> None:
        """Ask, over the client's own connection, for each id that the catalog does not know whether it is a view's.

        Afterwards each is a view or plain in the catalog, except those that the broker does not know either, or whose
        view cannot be made ready: neither may go upstream in a Fetch (rule 3: the empty topic would answer). Raises
        UpstreamLost.
        """
        await self.keeper.resolve(connection, topic_ids)
