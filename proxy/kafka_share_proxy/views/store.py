"""Storage of plans and of the bindings of views to bases: the port, and an implementation in memory."""

from __future__ import annotations

from typing import Protocol

from kafka_share_proxy.loop.promise import Promise, settled
from kafka_share_proxy.views import state_records
from kafka_share_proxy.views.model.catalog import ViewCatalog


class ViewStore(Protocol):
    """Store of bindings and plans: it writes the records of `state_records`."""

    @property
    def off(self) -> str: ...

    def synced(self) -> Promise[None]:
        """Return a promise, settled when everything stored by now is in the catalog, or when the store is off."""

    def store(self, key: bytes, value: bytes | None) -> Promise[None]:
        """Store a value (None: delete it), and put it into the catalog.

        Fails with a ProxyError. The catalog keeps the value.
        """


class MemoryViewStore:
    """A store whose content ends with the process."""

    def __init__(self, catalog: ViewCatalog, off: str = "views.state is memory") -> None:
        self._catalog = catalog
        self.off = off

    def synced(self) -> Promise[None]:
        return settled(None)

    def store(self, key: bytes, value: bytes | None) -> Promise[None]:
        state_records.take_in(self._catalog, key, value)
        return settled(None)
