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

from proxy.forwarding.interfaces import Call
from proxy.forwarding.routes import Handler, Picks, WithKnownIds, WithoutWords
from proxy.forwarding.split_requests import Splits
from proxy.wire.errors import ErrorCode
from proxy.wire.frames import Answer
from proxy.wire.messages import Message

S = TypeVar("S")
"""What the handlers of a feature are given."""

Look = Callable[[memoryview], bool]
"""Request frame without size -> whether the feature wants it; cheap, never decodes."""

Passes = Callable[[int], WithoutWords | WithKnownIds]
"""For a version, which requests the look would not want (`routes.Route.passes`)."""

Away = Callable[[Call, ErrorCode, str], Coroutine[Any, Any, Any]]
"""The response message that says why the API is not answered now: code, and words for people."""


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
    serve_here: Look | None = None
    """Which requests come to the handler, told from their bytes; None: all."""
    picks: Picks | None = None
    """Of those, the ones that the handler answers (`routes.Route.picks`)."""
    passes: Passes | None = None
    """Which requests `serve_here` need not be asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredApi(Generic[S]):
    """One API that a feature answers, or has a say in."""

    key: int
    handle: Callable[[Call, S], Coroutine[Any, Any, Answer | Message | None]]
    """The response: a message, or a whole frame; None: this request is not the feature's, and its message is as it
    came. A handler may ask those behind it (`chain.answer_behind`), with the message as it came or altered."""
    versions: tuple[int, int] | None = None
    """Lowest and highest version that clients are offered, whatever the brokers have, which are never asked; None: what
    the brokers have."""
    raised_to: int | None = None
    """With `versions` None: offered up to this version where the brokers have the API in a lower one."""
    wants: Callable[[S], Look] | None = None
    """Which requests the feature wants, told from their bytes as they come. None: every request."""
    picks: Callable[[S], Picks] | None = None
    """Which of these it answers, told from the decoded request. None: those for which `handle` gives an answer."""
    passes: Callable[[S], Passes] | None = None
    """What saves asking `wants` about most requests."""
    needs: Needs = Needs.NOTHING
    away: Away | None = None
    """The response while the state that it needs is away: being loaded, moved, or at an owner that is not reached."""
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
            every_request if wants is None and picks is not None else wants,
            picks,
            None if self.passes is None else self.passes(services),
        )


def every_request(_frame: memoryview) -> bool:
    """Whether a request is wanted is told from the decoded request only; for APIs that are rare."""
    return True


def _given(
    handle: Callable[[Call, S], Coroutine[Any, Any, Answer | Message | None]], services: S, call: Call
) -> Coroutine[Any, Any, Answer | Message | None]:
    return handle(call, services)
