"""All routes of the product, from the message definitions, the decisions and the handlers.

Every client-facing (API key, version) of the definitions is forwarded unless something below says otherwise. Versions
above a cap, APIs for brokers or controllers, and unknown APIs are refused. An unknown version of ApiVersions gets a
response, so that a newer client can fall back to a lower version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafka_share_proxy.forwarding.apis import (
    k01_old_fetch,
    k03_metadata,
    k10_find_coordinator,
    k18_api_versions,
    k32_broker_addresses,
    k60_describe_cluster,
    k78_forwarded_share_fetch,
    without_handler,
)
from kafka_share_proxy.forwarding.dispatch.chain import in_order
from kafka_share_proxy.forwarding.dispatch.declared_api import Served
from kafka_share_proxy.forwarding.dispatch.denied_apis import denied_route
from kafka_share_proxy.forwarding.dispatch.early_matches import kind_at, matcher_on_first_use
from kafka_share_proxy.forwarding.dispatch.forwarded_api import ForwardedApi, RewritingParts
from kafka_share_proxy.forwarding.dispatch.offered_versions import (
    BROKER_INTERNAL,
    CAPS,
    EffectiveVersions,
    client_facing,
    is_newer,
)
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Route, Routes, refusal
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook, ResponseCache
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import LocalProtocolError

FORWARDED: tuple[ForwardedApi, ...] = (
    *without_handler.APIS,
    k03_metadata.API,
    k10_find_coordinator.API,
    k18_api_versions.API,
    k32_broker_addresses.API,
    k60_describe_cluster.API,
    k78_forwarded_share_fetch.API,
)
"""Forwarded APIs with declared changes."""


def build(
    book: AddressBook,
    versions: EffectiveVersions,
    limits: Limits,
    served: Mapping[int, Served],
) -> Routes:
    """Return all routes. `served` maps the API keys served here to their handlers.

    Raises LocalProtocolError if the definitions contain an address that is neither rewritten nor waived.
    """
    table = _Table(book, versions, limits, served)
    routes = Routes(table.fallback)
    for key in sorted(client_facing()):
        lowest, highest = registry.versions(key)
        for version in range(lowest, highest + 1):
            routes.add(table.route(key, version))
    return routes


class _Table:
    def __init__(
        self, book: AddressBook, versions: EffectiveVersions, limits: Limits, served: Mapping[int, Served]
    ) -> None:
        self._versions = versions
        self._parts = RewritingParts(book, versions, limits, ResponseCache(book))
        self._declared = {api.key: api for api in FORWARDED}
        in_parts = k10_find_coordinator.IN_PARTS
        self._served = in_order((served, {in_parts.key: in_parts.served(book)}))

    def route(self, key: int, version: int) -> Route:
        if version > CAPS.get(key, version):
            return self.fallback(key, version)
        if key in self._versions.offer.denied:
            return denied_route(key, version)
        if key in self._served:
            return self._served_here(key, version, self._served[key])
        if self._versions.offer.is_served_here(key):
            raise LocalProtocolError(f"no feature serves {registry.API_KEYS[key]}, which is offered as served here")
        return self._forwarded(key, version)

    def fallback(self, key: int, version: int) -> Route:
        if key == ApiKey.API_VERSIONS:
            return k18_api_versions.unsupported_version(version)
        if (
            key == ApiKey.FETCH
            and key in self._served
            and key not in self._versions.offer.denied
            and version in k01_old_fetch.VERSIONS
        ):
            return k01_old_fetch.route(version)
        if key not in registry.API_KEYS:
            if self._versions.offer.pass_unknown and is_newer(key) and version >= 0:
                return Route(kind=Kind.FORWARD, key=key, version=version)
            return refusal(key, version)
        name = registry.API_KEYS[key]
        if key in client_facing():
            return refusal(key, version, f"{name} v{version} is not offered")
        users = "brokers" if key in BROKER_INTERNAL else "controllers and brokers"
        return refusal(key, version, f"{name} is for {users} among themselves")

    def _served_here(self, key: int, version: int, served: Served) -> Route:
        if served.wants is None:
            return Route(kind=Kind.LOCAL, key=key, version=version, handler=served.handler)
        forwarded = self._forwarded(key, version)
        return replace(
            forwarded,
            kind=Kind.PRODUCE if forwarded.kind is Kind.PRODUCE else Kind.INSPECT,
            handler=served.handler,
            synchronous_handler=served.synchronous_handler,
            serve_here=matcher_on_first_use(served.wants, key, version),
            picks=served.picks,
            wants=kind_at(served.wants, version),
        )

    def _forwarded(self, key: int, version: int) -> Route:
        api = self._declared.get(key) or ForwardedApi(key=key)
        rewrite = api.rewriter(version, self._parts)
        return Route(
            kind=api.kind or (Kind.FORWARD if rewrite is None else Kind.RESPONSE),
            key=key,
            version=version,
            rewrite=rewrite,
            amend=None if api.amend is None else api.amend(version, self._parts),
            repeats=api.requests_repeat,
        )
