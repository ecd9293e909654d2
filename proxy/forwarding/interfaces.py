"""One request that is served here, as its handler gets it.

A handler (`routes.Handler`) gives the response, as a message or a whole frame, or None to let the request pass to the
broker unchanged. It awaits only promises (`loop.promise`), so a plain call from the reactor drives it. While it runs,
its connection is muted, as a broker mutes a channel (forwarding/README.md rule 20), so at most one handler runs for
each connection.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from proxy.brokers.interfaces import Connection
from proxy.loop.slices import AT_ONCE, Work
from proxy.wire.frames import Answer
from proxy.wire.messages import Message

M = TypeVar("M", covariant=True)
"""The class of the request (`wire.messages`); memoryview where it is not decoded (`routes.Route.opaque`)."""


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
