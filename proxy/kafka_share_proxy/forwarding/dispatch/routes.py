"""Treatment of requests: one dict look-up per request, by the four bytes of API key and version.

`forwarding.dispatch.route_table` builds the `Routes`, and the data plane follows them. This module knows no API.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from kafka_share_proxy.forwarding.dispatch.early_matches import EarlyMatch
from kafka_share_proxy.forwarding.served.interfaces import AtOnce, Call
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions.messages import Message


class Treatment(Protocol):
    """Treatment of the response to one request. A Route is one."""

    @property
    def key(self) -> int:
        """API key."""

    @property
    def version(self) -> int:
        """API version."""

    @property
    def rewrite(self) -> Rewrite | None:
        """Rewriter of the broker's response. A response is collected whole only if this is set."""


class Kind(Enum):
    """Treatment of a request by the data plane."""

    FORWARD = auto()
    """Forward the bytes as they arrive, and those of the response too, unless `rewrite` is set."""
    PRODUCE = auto()
    """Same as FORWARD, but with acks=0 there is no response."""
    RESPONSE = auto()
    """Same as FORWARD, but the response is collected whole and passed to `rewrite`."""
    LOCAL = auto()
    """Serve with `handler`."""
    INSPECT = auto()
    """Collect the request. `serve_here` decides between `handler` and the broker."""
    SASL_HANDSHAKE = auto()
    """Same as FORWARD. After v0, raw tokens without Kafka headers follow."""
    SASL_AUTHENTICATE = auto()
    """Same as FORWARD. Its success ends the period in which the proxy must not send its own requests upstream."""
    REFUSE = auto()
    """End the connection, with `reason` in the log."""


@dataclass(slots=True)
class Context:
    """Data of the connection for rewriters."""

    node_id: int
    """Broker whose listener the client connected to. UNKNOWN_NODE on the bootstrap listener."""


Rewrite = Callable[[memoryview, Context], bytes | None]
"""Function from a response frame without size, with correlation id, to the whole new frame with size.

It returns None to forward the response unchanged. It raises `errors.UnusableResponse` if the response cannot be
forwarded without an address of the upstream cluster in it. The connection then ends, with the text in the log.
"""

Amend = Callable[[memoryview], Treatment | None]
"""Function from a request frame without size to the treatment of its response, with the same key and version.

It may change bytes of the frame in place, never the length. It returns None for the treatment of the route.
"""

Handler = Callable[[Call[Any]], Coroutine[Any, Any, ResponseFrame | Message | None]]
"""Coroutine function that returns the response, as a message or a whole frame. None: forward the request."""

FramedHandler = Callable[[Call[Any]], Coroutine[Any, Any, ResponseFrame | None]]
"""Handler whose response must be a whole frame."""

Picks = Callable[[Call[Any]], Coroutine[Any, Any, bool]]
"""Coroutine function that returns True if the handler serves the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Treatment of one (API key, version)."""

    kind: Kind
    key: int
    version: int
    rewrite: Rewrite | None = None
    """Rewriter of the broker's response. A response is collected whole only if this is set."""
    at_once: AtOnce | None = None
    """Synchronous fast path for the commonest form of the request, without a task. Requests it leaves go to `handler`.

    It is called first, for a request that arrived whole and alone while no other request waits for a response.
    """
    handler: Handler | None = None
    """Handler of routes of the kinds LOCAL and INSPECT."""
    serve_here: Callable[[memoryview], bool] | None = None
    """INSPECT: predicate on the request frame without size. Cheap, never decodes. False: forward."""
    picks: Picks | None = None
    """INSPECT: predicate on decoded requests accepted by `serve_here`. False: forward. None: serve all of them."""
    wants: EarlyMatch | None = None
    """INSPECT: the kind of look that `serve_here` is, if the walk can evaluate that kind without calling it."""
    repeats: bool = False
    """True if requests repeat byte for byte, `amend` does not change them, and results may be cached.

    The results of `amend`, and of `serve_here` when it is False, must stay the same for the same bytes.
    """
    amend: Amend | None = None
    """Function called with each request to forward, which is collected whole for it."""
    opaque: bool = False
    """LOCAL: do not decode the body, because its layout is unknown.

    `Call.message` is the frame without its size, and `Call.client_id` is None.
    """
    needs_no_authentication: bool = False
    """LOCAL: serve before the broker has authenticated the client, as brokers serve ApiVersions before SASL."""
    reason: str = ""
    """REFUSE: text for the log."""


class Routes(dict[bytes, Route]):
    """Routes by the first four bytes of a request frame: key and version, big endian (`routes[header]`).

    A look-up never raises KeyError: an unlisted API version gets the result of `fallback(key, version)`, by default a
    refusal. It is not stored, so that a peer that sends invalid keys does not make the table grow.
    """

    __slots__ = ("fallback",)

    def __init__(self, fallback: Callable[[int, int], Route] | None = None) -> None:
        super().__init__()
        self.fallback = fallback or refusal

    def add(self, route: Route) -> None:
        """Add a route. It replaces an earlier one for the same (key, version)."""
        self[header(route.key, route.version)] = route

    def __missing__(self, four_bytes: bytes) -> Route:
        key = int.from_bytes(four_bytes[:2], "big", signed=True)
        version = int.from_bytes(four_bytes[2:4], "big", signed=True)
        return self.fallback(key, version)


def header(key: int, version: int) -> bytes:
    """Return the first four bytes of a request frame."""
    return key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)


def refusal(key: int, version: int, reason: str = "") -> Route:
    """Return a route that ends the connection."""
    words = reason or f"API key {key} version {version} is not known here"
    return Route(kind=Kind.REFUSE, key=key, version=version, reason=words)
