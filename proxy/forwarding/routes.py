"""What becomes of a request: one dict look-up per request, by the four bytes that name API and version.

`forwarding.route_table` builds the `Routes`; the data plane obeys them. Nothing here knows an API.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from proxy.forwarding.early_looks import EarlyLook
from proxy.forwarding.interfaces import AtOnce, Call
from proxy.wire.frames import Answer
from proxy.wire.messages import Message


class Treatment(Protocol):
    """How the answer to one request is treated: a Route is one."""

    @property
    def key(self) -> int:
        """API key."""

    @property
    def version(self) -> int:
        """API version."""

    @property
    def rewrite(self) -> Rewrite | None:
        """For the answer of the broker, which is collected whole only where this is set."""


class Kind(Enum):
    """How the data plane treats a request of a route."""

    FORWARD = auto()
    """Pass on as the bytes come; so the answer, unless `rewrite` is set."""
    PRODUCE = auto()
    """As FORWARD, but with acks=0 there is no answer."""
    ANSWER = auto()
    """As FORWARD, and the answer is collected whole and given to `rewrite`."""
    LOCAL = auto()
    """Answered by `handler`."""
    INSPECT = auto()
    """The request is collected; `serve_here` says whether `handler` answers it or the broker."""
    SASL_HANDSHAKE = auto()
    """As FORWARD; v0 is followed by raw tokens without Kafka headers."""
    SASL_AUTHENTICATE = auto()
    """As FORWARD; its success ends the time in which nothing of ours may be sent upstream."""
    REFUSE = auto()
    """The connection ends, with `reason` in the log."""


@dataclass(slots=True)
class Context:
    """What a rewriter may know of the connection whose answer it has."""

    node_id: int
    """The broker whose listener the client dialled; UNKNOWN_NODE on the bootstrap listener."""


Rewrite = Callable[[memoryview, Context], bytes | None]
"""Response frame without size, with correlation id -> the whole new frame with size; None = pass it unchanged.

Raises `errors.AnswerUnusable` when the answer cannot be passed on without an address of the upstream cluster in it:
the connection ends, with the text in the log.
"""

Amend = Callable[[memoryview], Treatment | None]
"""Request frame without size, writable, whose bytes may be changed in place (never the length) -> how its answer is
treated, by the same key and version; None = as its route says."""

Handler = Callable[[Call[Any]], Coroutine[Any, Any, Answer | Message | None]]
"""The response: a message, or a whole frame; None = forward the request."""

FramedHandler = Callable[[Call[Any]], Coroutine[Any, Any, Answer | None]]
"""As `Handler`, where only a whole frame can be used."""

Picks = Callable[[Call[Any]], Coroutine[Any, Any, bool]]
"""Whether the handler answers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The treatment of one (API key, version)."""

    kind: Kind
    key: int
    version: int
    rewrite: Rewrite | None = None
    """For an answer of the broker; an answer is collected whole only where this is set."""
    at_once: AtOnce | None = None
    """Asked first about a request that came whole and alone while no other waits for its answer: a short way for the
    commonest form, without a task. What it leaves goes to `handler`."""
    handler: Handler | None = None
    """Who answers it; of routes of the kinds LOCAL and INSPECT."""
    serve_here: Callable[[memoryview], bool] | None = None
    """INSPECT: request frame without size; cheap, never decodes; False = forward."""
    picks: Picks | None = None
    """INSPECT: what `handler` answers of the requests that `serve_here` lets come, told from the decoded request; the
    rest is forwarded. None: all of them."""
    wants: EarlyLook | None = None
    """INSPECT: the kind of look that `serve_here` is, where it is one that the walk settles without asking it."""
    repeats: bool = False
    """Requests come again byte for byte, `amend` changes nothing in them, and what it and `serve_here` (when it says
    no) say of the same bytes stays true: it may be remembered."""
    amend: Amend | None = None
    """Where set, a request that is to be forwarded is collected whole and shown to this first."""
    opaque: bool = False
    """LOCAL: the body is not decoded, for its layout is not known: `Call.message` is the frame without its size, and
    `Call.client_id` is None."""
    reason: str = ""
    """REFUSE: the words for the log."""


class Routes(dict[bytes, Route]):
    """Look up by the first four bytes of a request frame: key and version, big endian (`routes[header]`).

    Never a KeyError: what nobody listed gets what `fallback(key, version)` says, by default a refusal. Nothing is
    stored for it, so a peer that sends nonsense does not make the table grow.
    """

    __slots__ = ("fallback",)

    def __init__(self, fallback: Callable[[int, int], Route] | None = None) -> None:
        super().__init__()
        self.fallback = fallback or refusal

    def add(self, route: Route) -> None:
        """List a route; a later one for the same (key, version) replaces the earlier."""
        self[header(route.key, route.version)] = route

    def __missing__(self, four_bytes: bytes) -> Route:
        key = int.from_bytes(four_bytes[:2], "big", signed=True)
        version = int.from_bytes(four_bytes[2:4], "big", signed=True)
        return self.fallback(key, version)


def header(key: int, version: int) -> bytes:
    """The first four bytes of a request frame."""
    return key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)


def refusal(key: int, version: int, reason: str = "") -> Route:
    """A route that ends the connection."""
    words = reason or f"API key {key} version {version} is not known here"
    return Route(kind=Kind.REFUSE, key=key, version=version, reason=words)
