"""Treatment of requests: one dict look-up per request, by the four bytes of API key and version.

`forwarding.dispatch.route_table` builds the `Routes`. This module knows no API.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from kafka_share_proxy.forwarding.dispatch.early_matches import EarlyMatch
from kafka_share_proxy.forwarding.served.interfaces import Call, SynchronousHandler
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions.messages import Message


class Treatment(Protocol):
    """Treatment of the response to one request. A Route is one."""

    @property
    def key(self) -> int: ...

    @property
    def version(self) -> int: ...

    @property
    def rewrite(self) -> Rewrite | None:
        """Rewriter of the broker's response. A response is collected whole only if this is set."""


class Kind(Enum):
    """Treatment of a request by the data plane."""

    FORWARD = auto()
    """Forward the bytes of request and response as they arrive, unless `rewrite` is set."""
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
    """Data of the connection for functions that rewrite responses."""

    node_id: int
    """Broker of the client's listener. UNKNOWN_NODE on the bootstrap listener."""


Rewrite = Callable[[memoryview, Context], bytes | None]
"""Function from a response frame without size to the whole new frame with size. None: forward it unchanged.

It raises `errors.UnusableResponse` if the response cannot be forwarded without an address of the upstream cluster. The
connection then ends.
"""

Amend = Callable[[memoryview], Treatment | None]
"""Function from a request frame without size to the treatment of its response. None: that of the route.

It may change bytes of the frame in place, never the length.
"""

Handler = Callable[[Call[Any]], Coroutine[Any, Any, ResponseFrame | Message | None]]
"""Coroutine function that returns the response, as a message or a whole frame. None: forward the request."""

FramedHandler = Callable[[Call[Any]], Coroutine[Any, Any, ResponseFrame | None]]

Picks = Callable[[Call[Any]], Coroutine[Any, Any, bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Treatment of one (API key, version)."""

    kind: Kind
    key: int
    version: int
    rewrite: Rewrite | None = None
    synchronous_handler: SynchronousHandler | None = None
    """Synchronous fast path for the commonest form of the request. Requests it leaves go to `handler`.

    Only for a request that arrived whole and alone while no other request waits for a response.
    """
    handler: Handler | None = None
    serve_here: Callable[[memoryview], bool] | None = None
    """INSPECT: predicate on the request frame without size. Never decodes. False: forward."""
    picks: Picks | None = None
    """INSPECT: predicate on decoded requests accepted by `serve_here`. False: forward. None: serve all."""
    wants: EarlyMatch | None = None
    """INSPECT: the kind of match that `serve_here` is, if the walk can evaluate it itself."""
    repeats: bool = False
    """True if requests repeat byte for byte, `amend` does not change them, and results may be cached.

    `amend`, and `serve_here` when False, must return the same for the same bytes.
    """
    amend: Amend | None = None
    """Function called with each request to forward, collected whole."""
    opaque: bool = False
    """LOCAL: do not decode the body, because its layout is unknown.

    `Call.message` is the frame without its size, and `Call.client_id` is None.
    """
    needs_no_authentication: bool = False
    """LOCAL: serve before the broker has authenticated the client, as brokers serve ApiVersions before SASL."""
    reason: str = ""
    """REFUSE: text for the log."""


class Routes(dict[bytes, Route]):
    """Routes by the first four bytes of a request frame: key and version, big endian.

    An unlisted API version gets the result of `fallback(key, version)`, which is not stored: a peer that sends invalid
    keys does not make the table grow.
    """

    __slots__ = ("fallback",)

    def __init__(self, fallback: Callable[[int, int], Route] | None = None) -> None:
        super().__init__()
        self.fallback = fallback or refusal

    def add(self, route: Route) -> None:
        self[header(route.key, route.version)] = route

    def __missing__(self, four_bytes: bytes) -> Route:
        key = int.from_bytes(four_bytes[:2], "big", signed=True)
        version = int.from_bytes(four_bytes[2:4], "big", signed=True)
        return self.fallback(key, version)


def header(key: int, version: int) -> bytes:
    """Return the first four bytes of a request frame."""
    return key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)


def refusal(key: int, version: int, reason: str = "") -> Route:
    words = reason or f"API key {key} version {version} is not known here"
    return Route(kind=Kind.REFUSE, key=key, version=version, reason=words)
