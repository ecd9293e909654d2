"""The request that a handler serves, and the interfaces of the synchronous fast path.

A handler (`routes.Handler`) returns the response, as a message or a whole frame, or None to forward the request to the
broker unchanged. It awaits only promises (`loop.promise`), so that a plain call from the reactor drives it. While it
runs, its connection is muted, as a broker mutes a channel (forwarding/README.md rule 20). Therefore at most one
handler runs for each connection.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.loop.interfaces import Request
from kafka_share_proxy.loop.promise import CallbackOwner
from kafka_share_proxy.loop.slices import AT_ONCE, Work
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions.messages import Message

M = TypeVar("M", covariant=True)
"""Class of the request (`wire.definitions.messages`); memoryview if it is not decoded (`routes.Route.opaque`)."""


class ExpectedResponse:
    """Pending broker response for a request on the synchronous fast path. The proxy receives it, never the client."""

    __slots__ = ()
    rewrite = True

    def came(self, frame: memoryview) -> None:
        """Handle the response, with its size. Its memory is reused after this returns."""
        raise NotImplementedError

    def lost(self) -> None:
        """Handle the end of the connection before the response."""
        raise NotImplementedError


class AtOnceConnection(Protocol):
    """Client connection on the synchronous fast path: call `begin_at_once`, then `immediate_response`."""

    @property
    def owner(self) -> CallbackOwner:
        """Owner on whose behalf the request is served."""

    def begin_at_once(self, request: Request) -> None:
        """Mute the client."""

    def to_broker_at_once(self, correlation_id: int, expected: ExpectedResponse, frame: bytes) -> None:
        """Send a request instead of the client's. It may have the same correlation id."""

    def immediate_response(self, frame: bytes) -> None:
        """Send the response to the client. Does nothing if the connection has ended."""


def no_earlier_match(_group_id: str) -> bool:
    """Return False: no earlier feature in the chain wants the group."""
    return False


class AtOnce(Protocol):
    """Synchronous fast path for the commonest form of a request, without a task (forwarding/README.md rule 39)."""

    def __call__(
        self,
        connection: AtOnceConnection,
        frame: memoryview,
        request: Request,
        is_wanted_before: Callable[[str], bool] = no_earlier_match,
    ) -> bool:
        """Return True if the request is served. Otherwise nothing has been done, and it goes to the handler.

        `frame` is the whole request with its size, valid until this returns. `is_wanted_before` returns True if an
        earlier feature in the chain may want the group with this id.
        """


@dataclass(slots=True)
class Call(Generic[M]):
    """Request that is served here."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    message: M
    """Decoded request."""
    connection: Connection
    work: Work = AT_ONCE
    """Lets other work run while a large request is processed."""
    frame: memoryview | None = None
    """Request as the client sent it, without its size. None if it is not from a client."""
    behind: Callable[[Call[Any]], Coroutine[Any, Any, ResponseFrame | Message | None]] | None = None
    """Rest of the chain after this handler's feature (`chain.next_response`). None if there is none."""
