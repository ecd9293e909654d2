"""Requests that are forwarded without being gathered, by their first bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafka_share_proxy.forwarding.dispatch.early_matches import ByIdOrTag, ByKnownGroup, ByTopicPrefix, ContainsAny
from kafka_share_proxy.forwarding.dispatch.request_inspection import (
    AcksMatch,
    GroupMatch,
    IdMatch,
    RememberedMatch,
    TopicMatch,
    WordMatch,
    inspect_beginning,
    inspect_to_amend,
    inspect_unserved,
)
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Route, Routes
from kafka_share_proxy.forwarding.walk.client_requests import Passing
from kafka_share_proxy.forwarding.walk.walk import Inspect
from kafka_share_proxy.loop.iterations import Iterations
from kafka_share_proxy.wire.definitions.api_key import ApiKey


class PassingRequests(NamedTuple):
    """Requests that can be forwarded without being gathered."""

    first: Passing
    """Requests of a client that has not described itself. `request_dispatch` reads its ApiVersions."""
    described: Passing
    """Requests of a client that has described itself."""


def passing(routes: Routes, iterations: Iterations) -> PassingRequests:
    """Return the requests that pass. `iterations` records those under inspection."""
    plain: dict[bytes, Route] = {}
    describing: dict[bytes, Route] = {}
    inspected: dict[bytes, Inspect] = {}
    for name, route in routes.items():
        if route.kind in (Kind.FORWARD, Kind.RESPONSE) and route.amend is None:
            (describing if route.key == ApiKey.API_VERSIONS else plain)[name] = route
        elif (inspect := _inspection(route, iterations)) is not None:
            inspected[name] = inspect
    produce = frozenset(name for name, inspect in inspected.items() if isinstance(inspect, AcksMatch))
    return PassingRequests(Passing(plain, inspected, produce), Passing(plain | describing, inspected, produce))


def _inspection(route: Route, iterations: Iterations) -> Inspect | None:
    """Return the inspection after which a request can pass, or None if it never does."""
    serve_here = route.serve_here
    if route.key == ApiKey.API_VERSIONS:
        return None
    match route.kind:
        case Kind.PRODUCE if serve_here is not None:
            return _shortened(route, inspect_beginning(serve_here, AcksMatch(route.version, route)))
        case Kind.PRODUCE if route.amend is None:
            return AcksMatch(route.version, route)
        case Kind.FORWARD | Kind.RESPONSE if route.amend is not None:
            return _shortened(route, inspect_to_amend(route.amend, route))
        case Kind.INSPECT if serve_here is not None:
            noted = _noted(route, serve_here, iterations)
            return _shortened(route, inspect_unserved(noted, inspect_to_amend(route.amend or _unchanged, route)))
    return None


def _noted(
    route: Route, serve_here: Callable[[memoryview], bool], iterations: Iterations
) -> Callable[[memoryview], bool]:
    doing = (None, route)

    def inspect(frame: memoryview) -> bool:
        iterations.doing = doing
        return serve_here(frame)

    return inspect


def _shortened(route: Route, inspect: Inspect) -> Inspect:
    if route.repeats:
        return RememberedMatch(inspect)
    if route.amend is not None:
        return inspect
    if isinstance(route.wants, ContainsAny):
        return WordMatch(route.wants.words, inspect, route)
    if isinstance(route.wants, ByTopicPrefix) and route.kind is Kind.PRODUCE:
        return TopicMatch(route.version, route.wants.prefix.encode(), inspect, route)
    if isinstance(route.wants, ByIdOrTag):
        return IdMatch(route.wants.known, route.version, inspect, route)
    if isinstance(route.wants, ByKnownGroup):
        return GroupMatch(route.wants, (route.key, route.version), inspect, route)
    return inspect


def _unchanged(_frame: memoryview) -> None: ...
