"""Where it is kept which base a view belongs to, and which plans there are: the port, and a store in memory."""

from __future__ import annotations

from typing import Protocol

from proxy.loop.promise import Promise, settled
from proxy.views import state_records
from proxy.views.model.catalog import ViewCatalog


class ViewStore(Protocol):
    """The facts of `view_facts`; what is read goes into the catalog."""

    @property
    def off(self) -> str:
        """Why nothing outlives this process; empty where it does."""

    def synced(self) -> Promise[None]:
        """Settled when everything that is stored at this moment is in the catalog, or when the store is off."""

    def store(self, key: bytes, value: bytes | None) -> Promise[None]:
        """Settled when it is stored (None: deleted). Fails with a ProxyError when it cannot be; the catalog has it."""


class MemoryViewStore:
    """Ends with the process."""

    def __init__(self, catalog: ViewCatalog, off: str = "views.state is memory") -> None:
        self._catalog = catalog
        self.off = off

    def synced(self) -> Promise[None]:
        """See ViewStore."""
        return settled(None)

    def store(self, key: bytes, value: bytes | None) -> Promise[None]:
        """See ViewStore."""
        state_records.take_in(self._catalog, key, value)
        return settled(None)
