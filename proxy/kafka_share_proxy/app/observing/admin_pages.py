"""Pages of the features on the admin listener, and who may change something through them.

Parts of a path are percent-encoded. By default, only requests from this machine may change something (`admin_changes`).
Requests of web pages never may; they are recognised by the Origin header that browsers send. The exception is a
confirmed form of the status page (`confirmations.py`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Literal
from urllib.parse import unquote

from kafka_share_proxy.feature.admin import NO_CLUSTER_YET, AdminRequest, Page, Pages
from kafka_share_proxy.feature.feature import Feature

Changes = Literal["local", "any", "never"]
"""Clients that may change something through the admin listener."""
METHODS = ("GET", "HEAD", "POST")


class AdminPages:
    """Pages of all features, by the first part of the path."""

    def __init__(
        self,
        paths: Iterable[str] = (),
        changes: Changes = "local",
        built: Callable[[], Iterable[Feature] | None] = tuple,
        own: Mapping[str, Pages] = MappingProxyType({}),
    ) -> None:
        """`paths`: paths that features declare. `built` returns None until the cluster has responded.

        `own`: pages of the proxy itself, which are served from the start.
        """
        self.paths = (*paths, *own)
        self.changes = changes
        self._built = built
        self._own = own

    async def response(self, method: str, path: str, *, peer: str, from_page: bool) -> Page | None:
        """Return the response, or None if there is no such page.

        `path`: without query, still percent-encoded. `peer`: address of the client, empty if unknown. `from_page`: True
        if a web page sent the request.
        """
        _, first, *parts = [unquote(part) for part in path.split("/")] if "/" in path else ("", "")
        if method not in METHODS or first not in self.paths:
            return None
        request = AdminRequest(method=method, parts=parts, forbidden=self.forbidden(peer, from_page=from_page))
        if first in self._own:
            return await self._own[first](request)
        built = self._built()
        if built is None:
            return NO_CLUSTER_YET
        for feature in built:
            if first in feature.pages:
                return await feature.pages[first](request)
        return None

    def forbidden(self, peer: str, *, from_page: bool) -> str:
        """Return the reason why a client may not change anything. Empty if it may."""
        if self.changes == "never":
            return "admin_changes is never"
        if from_page:
            return "web pages may not change anything"
        if self.changes == "local" and not _is_loopback(peer):
            return "only this machine may change something: admin_changes is local"
        return ""


def _is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
