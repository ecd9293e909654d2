"""Declaration of one API next to its handler. Routes, offered versions, refusals and owners are derived from it.

Features list their declarations in `sharegroups.share_group_apis.APIS` and `views.view_apis.APIS`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.forwarding.dispatch.early_matches import EarlyMatch, EveryRequest
from kafka_share_proxy.forwarding.dispatch.routes import Handler, Picks
from kafka_share_proxy.forwarding.dispatch.split_requests import Splits
from kafka_share_proxy.forwarding.served.interfaces import Call, SynchronousHandler
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode

S = TypeVar("S")
HOLD_MAX_S = 2.0
"""Maximum seconds that a request waits for the gate. Clients wait at least 5 s longer than the time in their request.
"""

UnavailableResponder = Callable[[Call[Any], ErrorCode, str], Coroutine[Any, Any, Message]]
"""Function that builds the response while the API cannot be served, from an error code and a text."""

Interrupted = Callable[[Call[Any], str], Coroutine[Any, Any, Message | None]]
"""Function that builds the response for a request interrupted after its handler began, from a text.

It returns None to use `respond_unavailable`.
"""


class Needs(Enum):
    """State that a response depends on. It decides where and when the handler runs."""

    NOTHING = auto()
    """The handler runs here, immediately."""
    OWNER = auto()
    """The handler runs at the owner of the request's groups, while their state is loaded there."""
    GROUP_LOADED = auto()
    """The handler runs here once it is known whether this proxy holds the group. If not, the request is forwarded."""
    ALL_LOADED = auto()
    """The handler runs here once no state is being loaded."""


class Served(NamedTuple):
    """Declaration bound to the services of its feature."""

    handler: Handler
    wants: EarlyMatch | None = None
    """Early match that selects requests by their bytes. None: all requests."""
    picks: Picks | None = None
    """Predicate on the decoded requests among those (`routes.Route.picks`)."""
    synchronous_handler: SynchronousHandler | None = None
    """Synchronous fast path (`routes.Route.synchronous_handler`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredApi(Generic[S]):
    """API that a feature serves or modifies."""

    key: int
    handle: Callable[[Call[Any], S], Coroutine[Any, Any, ResponseFrame | Message | None]]
    """Handler. It returns a message, a whole frame, or None if the request is not the feature's, with the message
    unchanged.

    It may call the rest of the chain (`chain.next_response`) with the message as received or altered.
    """
    versions: tuple[int, int] | None = None
    """Lowest and highest version offered to clients, independent of the brokers. None: the versions of the
    brokers.
    """
    raised_to: int | None = None
    """With `versions` None: offer up to this version where the brokers support the API in a lower one."""
    wants: Callable[[S], EarlyMatch] | None = None
    """Function that returns the early match. None: every request."""
    picks: Callable[[S], Picks] | None = None
    """Function that returns the predicate on decoded requests. None: requests for which `handle` returns a response."""
    needs: Needs = Needs.NOTHING
    respond_unavailable: UnavailableResponder | None = None
    """Response while the required state is being loaded or moved, or its owner cannot be reached."""
    interrupted: Interrupted | None = None
    """Response when the state became unavailable while the handler ran, so that the stored result is unknown.

    None: as `respond_unavailable`, which suits requests that clients may repeat.
    """
    splits: Splits | None = None
    """List of groups in the request, which may have several owners. None: one group, `group_id`."""
    groups_max: int | None = None
    """Maximum number of groups in one request. Beyond it, each gets 42 (INVALID_REQUEST)."""
    before_move: Callable[[Connection, S], object] | None = None
    """Function that releases what the feature keeps of a connection that should move to the owner of the group, because
    the client will send further requests about it (fleet/README.md rule 22). None: the connection stays.
    """
    is_repeated: bool = False
    """True if every client retries the request on a retriable error.

    False for tools, which do not retry: their requests wait longer, and fail immediately if no proxy can serve them.
    """
    hold_s: float = HOLD_MAX_S
    """Maximum seconds that a request which clients repeat waits for the state, as do later ones of its connection."""

    def handler(self, services: S) -> Handler:
        return partial(_with_services, self.handle, services)

    def served(self, services: S, handler: Handler | None = None) -> Served:
        """Return the declaration bound to its services. `handler` replaces its own."""
        picks = None if self.picks is None else self.picks(services)
        wants = None if self.wants is None else self.wants(services)
        return Served(
            handler or self.handler(services),
            EveryRequest() if wants is None and picks is not None else wants,
            picks,
        )


def _with_services(
    handle: Callable[[Call[Any], S], Coroutine[Any, Any, ResponseFrame | Message | None]], services: S, call: Call[Any]
) -> Coroutine[Any, Any, ResponseFrame | Message | None]:
    return handle(call, services)
