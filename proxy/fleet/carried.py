"""What links carry, as the feature sees it whose requests they are: it serves them, and completes their answers.

A link knows nothing of what is asked over it. At the owner's end the feature hands in its handlers and says what it
holds (`CarriedRequests`); at the edge it may change a request before it goes out, keep parts of what brokers answer,
and put them into the owner's answer (`EdgeOfLink`, one for each link).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, Protocol

from proxy.fleet.group_owners import Holdings
from proxy.forwarding.interfaces import Call
from proxy.forwarding.routes import FramedHandler


class Prepared(NamedTuple):
    """A request as it goes to the owner."""

    request: Any
    not_before: float
    """Its answer goes to the client then, and not before."""


class EdgeOfLink(Protocol):
    """What is kept at the edge for one link; of no use after the link has ended."""

    def prepared(self, call: Call) -> Prepared:
        """The request to send."""

    def completed(self, call: Call, frame: Any) -> bytes | None:
        """The owner's answer with what is kept here put in; None where that is not here any more."""

    def told(self, key: int, version: int, answer: memoryview) -> bytes | memoryview:
        """A broker's answer to a question of the owner, as it goes to the owner. Raises ProxyError."""

    def forget(self, chunks: Iterable[int]) -> None:
        """The owner refers to these no more."""


class CarriedRequests(Protocol):
    """Requests that other proxies may ask of this one."""

    @property
    def handlers(self) -> Mapping[int, FramedHandler]:
        """API key -> handler of the owner; it gives None where this proxy does not own what the request is about."""

    @property
    def groups(self) -> AbstractSet[str]:
        """Ids of the groups that are held here now."""

    def holdings(self) -> Holdings:
        """What is held here, for lists of groups."""

    def edge(self) -> EdgeOfLink:
        """For a link that was just established."""

    def link_ended(self, number: int) -> None:
        """Nothing that was read over this link can be referred to any more."""

    def links_changed(self) -> None:
        """Another proxy may be asked now that could not be before, or the other way round."""
