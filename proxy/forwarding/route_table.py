"""The routes of the whole product, from the message definitions, the decisions and the handlers.

Every client-facing (API key, version) of the definitions is listed: forwarded unless something below says otherwise.
A version above a cap, an API for brokers or controllers, and what nobody has heard of are refused with a reason; only
an unknown version of ApiVersions is answered, so that a newer client can step down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proxy.forwarding.address_book import AddressBook, AnswerCache
from proxy.forwarding.address_rewriting import ProduceRewriter, Repair, Special, drop_node_endpoints, rewriter
from proxy.forwarding.apis import (
    k01_old_fetch,
    k03_metadata,
    k10_find_coordinator,
    k18_api_versions,
    k32_broker_addresses,
    k60_describe_cluster,
)
from proxy.forwarding.apis.k32_broker_addresses import DESCRIBE_CONFIGS
from proxy.forwarding.apis.k78_forwarded_share_fetch import limit_max_bytes
from proxy.forwarding.chain import in_order
from proxy.forwarding.declared_api import Served
from proxy.forwarding.offered_versions import (
    API_VERSIONS,
    BROKER_INTERNAL,
    CAPS,
    FETCH,
    METADATA,
    PRODUCE,
    SHARE_APIS,
    SHARE_FETCH,
    EffectiveVersions,
    client_facing,
    is_newer,
)
from proxy.forwarding.routes import Kind, Rewrite, Route, Routes, refusal
from proxy.wire import endpoints, registry
from proxy.wire.errors import LocalProtocolError
from proxy.wire.values import Limits

SASL_HANDSHAKE, SASL_AUTHENTICATE, DESCRIBE_CLUSTER, SHARE_ACKNOWLEDGE = 17, 36, 60, 79

REPAIRS: Mapping[int, Repair] = {
    PRODUCE: drop_node_endpoints,
    METADATA: k03_metadata.repair,
    k10_find_coordinator.KEY: k10_find_coordinator.repair,
    DESCRIBE_CLUSTER: k60_describe_cluster.repair,
    SHARE_FETCH: drop_node_endpoints,
    SHARE_ACKNOWLEDGE: drop_node_endpoints,
}
"""APIs whose answers carry addresses of brokers, and what is done when one of those has no place here."""

WAIVED: Mapping[int, str] = {
    88: "StreamsGroupHeartbeat: endpoints of the applications themselves, which are not brokers",
    89: "StreamsGroupDescribe: endpoints of the applications themselves, which are not brokers",
}
"""Carriers whose addresses must stay as they are, with the reason."""

KINDS: Mapping[int, Kind] = {
    PRODUCE: Kind.PRODUCE,
    SASL_HANDSHAKE: Kind.SASL_HANDSHAKE,
    SASL_AUTHENTICATE: Kind.SASL_AUTHENTICATE,
}
"""Forwarded requests that the data plane has to tell from others."""

REPEATED = frozenset({METADATA, k10_find_coordinator.KEY, DESCRIBE_CLUSTER})
"""Carriers whose answers come again byte for byte, so that rewriting them is remembered."""


def build(
    book: AddressBook,
    versions: EffectiveVersions,
    limits: Limits,
    served: Mapping[int, Served],
) -> Routes:
    """All routes. `served`: API key -> handler, of the APIs that are served here (empty when share groups are not).

    Raises:
        LocalProtocolError: the message definitions have a carrier of addresses nobody rewrites or waives.
    """
    table = _Table(book, versions, limits, served)
    routes = Routes(table.fallback)
    for key in sorted(client_facing()):
        lowest, highest = registry.versions(key)
        for version in range(lowest, highest + 1):
            routes.add(table.route(key, version))
    return routes


class _Table:
    """Decides one route at a time."""

    def __init__(
        self, book: AddressBook, versions: EffectiveVersions, limits: Limits, served: Mapping[int, Served]
    ) -> None:
        self._book, self._versions, self._limits = book, versions, limits
        in_parts = k10_find_coordinator.IN_PARTS
        self._served = in_order((served, {in_parts.key: in_parts.served(book)}))
        self._cache = AnswerCache(book)

    def route(self, key: int, version: int) -> Route:
        """The route of a version that the definitions know."""
        if version > CAPS.get(key, version):
            return self.fallback(key, version)
        offer = self._versions.offer
        if key == METADATA:
            return self._metadata(version, self._served.get(key))
        if key in self._served:
            return self._served_here(key, version, self._served[key])
        if offer.serve_share and key in SHARE_APIS:
            raise LocalProtocolError(f"nobody serves {registry.API_KEYS[key]}, which is to be served here")
        return self._forwarded(key, version, self._rewrite(key, version))

    def fallback(self, key: int, version: int) -> Route:
        """The route of what is not listed."""
        if key == API_VERSIONS:
            return k18_api_versions.unsupported_version(version)
        if key == FETCH and key in self._served and version in k01_old_fetch.VERSIONS:
            return k01_old_fetch.route(version)
        if key not in registry.API_KEYS:
            if self._versions.offer.pass_unknown and is_newer(key) and version >= 0:
                return Route(kind=Kind.FORWARD, key=key, version=version)
            return refusal(key, version)
        name = registry.API_KEYS[key]
        if key in client_facing():
            return refusal(key, version, f"{name} v{version} is not offered")
        whom = "brokers" if key in BROKER_INTERNAL else "controllers and brokers"
        return refusal(key, version, f"{name} is for {whom} among themselves")

    def _served_here(self, key: int, version: int, served: Served) -> Route:
        if served.serve_here is None:
            return Route(kind=Kind.LOCAL, key=key, version=version, handler=served.handler)
        return Route(
            kind=Kind.PRODUCE if key == PRODUCE else Kind.INSPECT,
            key=key,
            version=version,
            handler=served.handler,
            serve_here=served.serve_here,
            picks=served.picks,
            rewrite=self._rewrite(key, version),
            amend=self._amend(key),
            passes=None if served.passes is None else served.passes(version),
        )

    def _forwarded(self, key: int, version: int, rewrite: Rewrite | None) -> Route:
        kind = KINDS.get(key, Kind.ANSWER if rewrite is not None else Kind.FORWARD)
        return Route(kind=kind, key=key, version=version, rewrite=rewrite, amend=self._amend(key))

    def _amend(self, key: int) -> Callable[[memoryview], Route | None] | None:
        return limit_max_bytes(self._limits.collected_bytes) if key == SHARE_FETCH else None

    def _metadata(self, version: int, served: Served | None) -> Route:
        """Answers to "all topics" are another matter than those to names; the request tells which it will be."""
        every = k03_metadata.all_topics_rewriter(version, self._book)
        for_all = Route(
            kind=Kind.ANSWER,
            key=METADATA,
            version=version,
            rewrite=self._cache.through(every),
        )
        asks = k03_metadata.asks_for_all_topics(version)
        return Route(
            kind=Kind.ANSWER if served is None else Kind.INSPECT,
            key=METADATA,
            version=version,
            handler=None if served is None else served.handler,
            serve_here=None if served is None else served.serve_here,
            rewrite=self._rewrite(METADATA, version),
            amend=lambda frame: for_all if asks(frame) else None,
            repeats=True,
        )

    def _rewrite(self, key: int, version: int) -> Rewrite | None:
        """What is done to answers, remembered where they repeat; None = they pass as they come."""
        if key == API_VERSIONS:
            return self._cache.through(k18_api_versions.rewriter(version, self._versions))
        if key == DESCRIBE_CONFIGS:
            return k32_broker_addresses.rewriter(version, self._book)
        if endpoints.locator(key, version) is None or key in WAIVED:
            return None
        if key not in REPAIRS:
            raise LocalProtocolError(f"{registry.API_KEYS[key]} v{version} carries addresses, and nobody rewrites them")
        rewrite = rewriter(key, version, self._book, REPAIRS[key], _special(key, version))
        if key == PRODUCE:
            return ProduceRewriter(rewrite, version)
        return self._cache.through(rewrite) if key in REPEATED else rewrite


def _special(key: int, version: int) -> Special | None:
    """Answers of this API that need more than new addresses."""
    if key == METADATA:
        return k03_metadata.names_no_broker
    if key == DESCRIBE_CLUSTER:
        return k60_describe_cluster.names_no_brokers(version)
    return None
