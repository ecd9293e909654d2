"""What links carry, as the features see it whose requests they are: they serve them, and complete their answers.

A link knows nothing of what is asked over it. At the owner's end a feature hands in its handlers (`CarriedRequests`);
at the edge it may change a request before it goes out, keep parts of what brokers answer, and put them into the owner's
answer (`EdgeOfLink`, one for each link). Several features may have a say in one API: a request names the one that sent
it. What is told to every proxy without being asked are the groups of one feature (`HoldsGroups`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from math import inf
from typing import Any, NamedTuple, Protocol

from proxy.fleet.group_owners import Holdings
from proxy.forwarding.interfaces import Call
from proxy.forwarding.routes import FramedHandler
from proxy.wire.messages import Message
from proxy.wire.primitives import Buffer


class Prepared(NamedTuple):
    """A request as it goes to the owner."""

    request: Message
    not_before: float
    """Its answer goes to the client then, and not before."""


class EdgeOfLink(Protocol):
    """What a feature keeps at the edge for one link; of no use after the link has ended."""

    def prepared(self, call: Call[Message]) -> Prepared:
        """The request to send."""

    def completed(self, call: Call[Message], frame: Buffer) -> bytes | None:
        """The owner's answer with what is kept here put in; None where that is not here any more."""

    def told(self, key: int, version: int, answer: memoryview) -> bytes | memoryview:
        """A broker's answer to a question of the owner, as it goes to the owner. Raises ProxyError."""

    def forget(self, chunks: Iterable[int]) -> None:
        """The owner refers to these no more."""


class CarriedRequests(Protocol):
    """Requests of one feature that other proxies may ask of this one."""

    @property
    def feature(self) -> str:
        """Its name on links; part of what proxies say to each other."""

    @property
    def handlers(self) -> Mapping[int, FramedHandler]:
        """API key -> handler of the owner; it gives None where this proxy does not own what the request is about."""

    def knows(self, group_id: str) -> bool:
        """Whether this proxy sends all requests about the group to its owner."""

    def edge(self) -> EdgeOfLink:
        """For a link that was just established."""

    def link_ended(self, number: int) -> None:
        """Nothing that was read over this link can be referred to any more."""

    def links_changed(self) -> None:
        """Another proxy may be asked now that could not be before, or the other way round."""


class HoldsGroups(Protocol):
    """What is held here and every proxy must know of."""

    @property
    def groups(self) -> AbstractSet[str]:
        """Ids of the groups that are held here now."""

    def holdings(self) -> Holdings:
        """What is held here, for lists of groups."""


class NothingKept:
    """See EdgeOfLink: requests and answers go as they are."""

    def prepared(self, call: Call[Message]) -> Prepared:
        """See EdgeOfLink."""
        return Prepared(call.message, -inf)

    def completed(self, call: Call[Message], frame: Any) -> bytes:  # noqa: ARG002 - as edges are called
        """See EdgeOfLink."""
        return bytes(frame)

    def told(self, key: int, version: int, answer: memoryview) -> memoryview:  # noqa: ARG002 - as edges are called
        """See EdgeOfLink."""
        return answer

    def forget(self, chunks: Iterable[int]) -> None:
        """See EdgeOfLink."""


class NoGroups:
    """See HoldsGroups: where no groups are held that others must know of."""

    groups: AbstractSet[str] = frozenset()

    def holdings(self) -> Holdings:
        """See HoldsGroups."""
        return Holdings((), ())


class CarriedFeatures:
    """All that links of this proxy carry."""

    def __init__(self, features: Iterable[CarriedRequests], held: HoldsGroups | None = None) -> None:
        """`held`: the groups that other proxies are told of; None: there are none."""
        self.held: HoldsGroups = held or NoGroups()
        self._features = {each.feature: each for each in features}

    def handler(self, feature: str, key: int) -> FramedHandler | None:
        """Who serves this API for a feature."""
        served = self._features.get(feature)
        return None if served is None else served.handlers.get(key)

    def knows(self, feature: str, group_id: str) -> bool:
        """See CarriedRequests; False where the feature is not served here."""
        served = self._features.get(feature)
        return served is not None and served.knows(group_id)

    def edges(self) -> dict[str, EdgeOfLink]:
        """Feature -> what it keeps for a link that was just established."""
        return {name: each.edge() for name, each in self._features.items()}

    def link_ended(self, number: int) -> None:
        """See CarriedRequests."""
        for each in self._features.values():
            each.link_ended(number)

    def links_changed(self) -> None:
        """See CarriedRequests."""
        for each in self._features.values():
            each.links_changed()
