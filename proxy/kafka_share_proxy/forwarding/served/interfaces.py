"""The request that a handler serves, and the interfaces of the synchronous fast path.

A handler (`routes.Handler`) awaits only promises (`loop.promise`), so that a plain call from the reactor drives it.
While it runs, its connection is muted, as a broker mutes a channel (forwarding/README.md rule 20). Therefore at most
one handler runs for each connection.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.loop.interfaces import Request
from kafka_share_proxy.loop.slices import AT_ONCE, Work
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions.messages import Message

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.served.synchronous_fast_path import SynchronousFastPath

M = TypeVar("M", covariant=True)
"""Class of the request; memoryview if it is not decoded (`routes.Route.opaque`)."""


class ExpectedResponse:
    """Pending broker response that goes to the proxy, for a request on the synchronous fast path."""

    __slots__ = ()
    rewrite = "on_response"
    """Name of the method that the pump calls with a response that arrived whole and alone."""

    def on_response(self, frame: bytes) -> bool:
        """Handle the response, with its size.

        Return True if the caller has to forward it to the client unchanged.
        """
        raise NotImplementedError

    def lost(self) -> None:
        """Handle the end of the connection before the response."""
        raise NotImplementedError


class RepeatableRequest(ExpectedResponse):
    """Request on the synchronous fast path that later ones of its connection may repeat, and are compared with."""

    __slots__ = ()
    request: Request

    def plan(self, received: memoryview, size: int, now: float) -> tuple[bytes, int, *tuple[Any, ...]] | None:
        """Return the request for the broker in place of this one, and its correlation id. What follows is not used.

        None if the first `size` bytes are not one request that repeats it, or circumstances have changed.
        """
        raise NotImplementedError


def never_selected(_group_id: str) -> bool:
    """Return False: no earlier feature in the chain wants the group."""
    return False


class SynchronousHandler(Protocol):
    """Synchronous fast path for the commonest form of a request, without a task (forwarding/README.md rule 39)."""

    def __call__(
        self,
        connection: SynchronousFastPath,
        frame: memoryview,
        request: Request,
        is_selected_before: Callable[[str], bool] = never_selected,
    ) -> bool:
        """Return True if the request is served. Otherwise nothing has been done, and it goes to the handler.

        `frame` is the whole request with its size, valid until this returns. `is_selected_before` returns True if an
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
    connection: Connection
    work: Work = AT_ONCE
    """Lets other work run while a large request is processed."""
    frame: memoryview | None = None
    """Request as received, without its size. None if it is not from a client."""
    rest_of_chain: Callable[[Call[Any]], Coroutine[Any, Any, ResponseFrame | Message | None]] | None = None
    """Rest of the chain after this handler's feature (`chain.next_response`), if any."""
