"""One request that is served here, as its handler gets it.

A handler (`routes.Handler`) gives the response, as a message or a whole frame, or None to let the request pass to the
broker unchanged. It awaits only promises (`loop.promise`), so a plain call from the reactor drives it. While it runs,
its connection is muted, as a broker mutes a channel (forwarding/README.md rule 20), so at most one handler runs for
each connection.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from proxy.brokers.interfaces import Connection
from proxy.loop.interfaces import Request
from proxy.loop.promise import CallbackOwner
from proxy.loop.slices import AT_ONCE, Work
from proxy.wire.frames import Answer
from proxy.wire.messages import Message

M = TypeVar("M", covariant=True)
"""The class of the request (`wire.messages`); memoryview where it is not decoded (`routes.Route.opaque`)."""


class AwaitedAnswer:
    """Expected of the broker for a request that was taken at once: given to whoever took it, never to the client."""

    __slots__ = ()
    rewrite = True

    def came(self, frame: memoryview) -> None:
        """The answer, with its size. It is read over when this returns."""
        raise NotImplementedError

    def lost(self) -> None:
        """The connection has ended first."""
        raise NotImplementedError


class AtOnceConnection(Protocol):
    """The connection of a client whose request may be taken at once: `begin_at_once`, then `answer_at_once`."""

    @property
    def owner(self) -> CallbackOwner:
        """On whose behalf the request is served."""

    def begin_at_once(self, request: Request) -> None:
        """The client is muted from here on."""

    def to_broker_at_once(self, correlation_id: int, expected: AwaitedAnswer, frame: bytes) -> None:
        """Send a request in place of the client's; it may have the same correlation id."""

    def answer_at_once(self, frame: bytes) -> None:
        """The response to the client; harmless where the connection has ended."""


def nobody(_group_id: str) -> bool:
    """Where no feature stands in front of another."""
    return False


class AtOnce(Protocol):
    """A short way for the commonest form of a request, without a task (forwarding/README.md rule 39)."""

    def __call__(
        self,
        connection: AtOnceConnection,
        frame: memoryview,
        request: Request,
        is_wanted_before: Callable[[str], bool] = nobody,
    ) -> bool:
        """Whether the request is taken; else nothing has been done about it, and it goes to the handler.

        `frame` is all of it with its size, good until this returns; `is_wanted_before` says by the id of a group
        whether a feature that stands in front may want it.
        """


@dataclass(slots=True)
class Call(Generic[M]):
    """One request that is served here."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    message: M
    """The decoded request."""
    connection: Connection
    work: Work = AT_ONCE
    """Lets others run while this request, if it is a large one, is worked on."""
    frame: memoryview | None = None
    """The request as it came, without its size, where it came from a client."""
    behind: Callable[[Call[Any]], Coroutine[Any, Any, Answer | Message | None]] | None = None
    """The features behind the one whose handler has this call (`chain.answer_behind`); None: there are none."""
