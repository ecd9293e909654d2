"""Declaration of one API next to its handler. Routes, offered versions, refusals and owners are derived from it.

A feature lists its declarations (`sharegroups.share_group_apis.APIS`, `views.view_apis.APIS`).
`forwarding.dispatch.chain` puts the features that handle the same API into a chain.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, TypeVar

from kafka_share_proxy.forwarding.dispatch.early_matches import EarlyMatch, EveryRequest
from kafka_share_proxy.forwarding.dispatch.routes import Handler, Picks
from kafka_share_proxy.forwarding.dispatch.split_requests import Splits
from kafka_share_proxy.forwarding.served.interfaces import AtOnce, Call
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode

S = TypeVar("S")
"""Services that the handlers of a feature use."""

Away = Callable[[Call[Any], ErrorCode, str], Coroutine[Any, Any, Message]]
"""Function that builds the response while the API cannot be served: error code, and a message for people."""

Interrupted = Callable[[Call[Any], str], Coroutine[Any, Any, Message | None]]
"""Function that builds the response for a request interrupted after its handler began, with a message for people.

It returns None to use the response for requests that had not begun (`Away`).
"""


class Needs(Enum):
    """State that a response depends on. It decides where and when the handler runs."""

    NOTHING = auto()
    """The handler runs here, immediately."""
    OWNER = auto()
    """The handler runs at the owner of the request's groups, while their state is loaded there."""
    GROUP_LOADED = auto()
    """The handler runs here once it is known whether this proxy holds the request's group.

    If it does not, the request is forwarded.
    """
    ALL_LOADED = auto()
    """The handler runs here once no state is being loaded."""


@dataclass(frozen=True, slots=True)
class Served:
    """Declaration bound to the services of its feature."""

    handler: Handler
    wants: EarlyMatch | None = None
    """Early look that selects the handler's requests by their bytes. None: all requests."""
    picks: Picks | None = None
    """Predicate that selects, among those, the requests that the handler serves (`routes.Route.picks`)."""
    at_once: AtOnce | None = None
    """Synchronous fast path for the commonest of them (`routes.Route.at_once`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredApi(Generic[S]):
    """API that a feature serves or modifies."""

    key: int
    handle: Callable[[Call[Any], S], Coroutine[Any, Any, ResponseFrame | Message | None]]
    """Handler. It returns the response as a message or a whole frame, or None if the request is not the feature's.

    In the latter case it leaves the message unchanged. A handler may call the rest of the chain
    (`chain.next_response`) with the message as received or altered.
    """
    versions: tuple[int, int] | None = None
    """Lowest and highest version offered to clients, independent of the brokers, which never receive these requests.

    None: the versions of the brokers.
    """
    raised_to: int | None = None
    """With `versions` None: offer up to this version where the brokers support the API in a lower one."""
    wants: Callable[[S], EarlyMatch] | None = None
    """Function that returns the early look at the bytes of requests. None: the feature wants every request."""
    picks: Callable[[S], Picks] | None = None
    """Function that returns the predicate on decoded requests. None: requests for which `handle` returns a response."""
    needs: Needs = Needs.NOTHING
    away: Away | None = None
    """Response while the required state is unavailable: being loaded, moved, or at an owner that cannot be reached."""
    interrupted: Interrupted | None = None
    """Response when the state became unavailable while the handler ran, so that the stored result is unknown.

    None: as `away`, which suits requests that clients may repeat.
    """
    splits: Splits | None = None
    """List of groups in the request, which may have several owners. None: the request names one, as `group_id`."""
    groups_max: int | None = None
    """Maximum number of groups in one request. A request with more gets 42 (INVALID_REQUEST) for each."""
    is_repeated: bool = False
    """True if every client retries the request on a retriable error.

    False for requests of tools, which do not retry: they wait longer here, and get an error immediately if no proxy
    can serve them.
    """

    def handler(self, services: S) -> Handler:
        """Return the handler bound to its services."""
        return partial(_given, self.handle, services)

    def served(self, services: S, handler: Handler | None = None) -> Served:
        """Return the declaration bound to its services. `handler` replaces its own handler."""
        picks = None if self.picks is None else self.picks(services)
        wants = None if self.wants is None else self.wants(services)
        return Served(
            handler or self.handler(services),
            EveryRequest() if wants is None and picks is not None else wants,
            picks,
        )


def _given(
    handle: Callable[[Call[Any], S], Coroutine[Any, Any, ResponseFrame | Message | None]], services: S, call: Call[Any]
) -> Coroutine[Any, Any, ResponseFrame | Message | None]:
    return handle(call, services)
