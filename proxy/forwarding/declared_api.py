"""One API, declared beside its handler. Routes, versions offered, refusals and owners are derived from declarations.

A feature lists its declarations (`sharegroups.share_group_apis.APIS`, `views.view_apis.APIS`); `forwarding.chain` puts
the features that have a say in the same API one behind the other.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, TypeVar

from proxy.forwarding.early_looks import EarlyLook, EveryRequest
from proxy.forwarding.interfaces import AtOnce, Call
from proxy.forwarding.routes import Handler, Picks
from proxy.forwarding.split_requests import Splits
from proxy.wire.errors import ErrorCode
from proxy.wire.frames import Answer
from proxy.wire.messages import Message

S = TypeVar("S")
"""What the handlers of a feature are given."""

Away = Callable[[Call[Any], ErrorCode, str], Coroutine[Any, Any, Message]]
"""The response message that says why the API is not answered now: code, and words for people."""

Interrupted = Callable[[Call[Any], str], Coroutine[Any, Any, Message | None]]
"""The response to a request whose handler had begun; words for people. None: as where it had not begun (`Away`)."""


class Needs(Enum):
    """Which state an answer hangs on: it says where the handler runs, and when."""

    NOTHING = auto()
    """It runs here, at once."""
    OWNER = auto()
    """It runs at the owner of the groups that the request names, while their state is loaded there."""
    GROUP_LOADED = auto()
    """It runs here, once it is known whether the group that the request names is held; for one that is not, the request
    goes on."""
    ALL_LOADED = auto()
    """It runs here, once no state is being loaded."""


@dataclass(frozen=True, slots=True)
class Served:
    """What becomes of a declaration once its feature has what handlers are given."""

    handler: Handler
    wants: EarlyLook | None = None
    """Which requests come to the handler, told from their bytes; None: all."""
    picks: Picks | None = None
    """Of those, the ones that the handler answers (`routes.Route.picks`)."""
    at_once: AtOnce | None = None
    """A short way for the commonest of them (`routes.Route.at_once`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredApi(Generic[S]):
    """One API that a feature answers, or has a say in."""

    key: int
    handle: Callable[[Call[Any], S], Coroutine[Any, Any, Answer | Message | None]]
    """The response: a message, or a whole frame; None: this request is not the feature's, and its message is as it
    came. A handler may ask those behind it (`chain.answer_behind`), with the message as it came or altered."""
    versions: tuple[int, int] | None = None
    """Lowest and highest version that clients are offered, whatever the brokers have, which are never asked; None: what
    the brokers have."""
    raised_to: int | None = None
    """With `versions` None: offered up to this version where the brokers have the API in a lower one."""
    wants: Callable[[S], EarlyLook] | None = None
    """Which requests the feature wants, told from their bytes as they come. None: every request."""
    picks: Callable[[S], Picks] | None = None
    """Which of these it answers, told from the decoded request. None: those for which `handle` gives an answer."""
    needs: Needs = Needs.NOTHING
    away: Away | None = None
    """The response while the state that it needs is away: being loaded, moved, or at an owner that is not reached."""
    interrupted: Interrupted | None = None
    """The response where the state went away while the handler ran, so that nobody knows what was stored. None: as
    `away`, which suits requests that clients may repeat."""
    splits: Splits | None = None
    """The list of groups in the request, which may have several owners. None: the request names one, as `group_id`."""
    groups_max: int | None = None
    """Groups in one request; whoever names more gets 42 (INVALID_REQUEST) for each."""
    asks_again: bool = False
    """Every client repeats the request when told to; False: tools do not, so they wait longer, and are told at once
    where nobody will serve them."""

    def handler(self, services: S) -> Handler:
        """The handler with what it is given."""
        return partial(_given, self.handle, services)

    def served(self, services: S, handler: Handler | None = None) -> Served:
        """The declaration put to use; `handler` runs in place of its own."""
        picks = None if self.picks is None else self.picks(services)
        wants = None if self.wants is None else self.wants(services)
        return Served(
            handler or self.handler(services),
            EveryRequest() if wants is None and picks is not None else wants,
            picks,
        )


def _given(
    handle: Callable[[Call[Any], S], Coroutine[Any, Any, Answer | Message | None]], services: S, call: Call[Any]
) -> Coroutine[Any, Any, Answer | Message | None]:
    return handle(call, services)
