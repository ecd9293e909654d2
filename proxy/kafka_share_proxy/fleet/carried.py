"""Interface between links and the features whose requests they carry.

At the owner's end a feature provides its handlers (`CarriedRequests`). At the edge it may change a request, keep parts
of brokers' responses, and insert them into the owner's response (`EdgeOfLink`, one for each link).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from http import HTTPStatus
from math import inf
from typing import Any, NamedTuple, Protocol

from kafka_share_proxy.fleet.group_owners import Command, CommandResult, Holdings
from kafka_share_proxy.forwarding.dispatch.routes import FramedHandler
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.definitions.messages import Message


class Prepared(NamedTuple):
    """Request as it is sent to the owner."""

    request: Message
    not_before: float
    """Earliest time to send the response to the client."""


class EdgeOfLink(Protocol):
    """State of a feature at the edge for one link. Unused after the link has ended."""

    def prepared(self, call: Call[Message]) -> Prepared:
        """Return the request for the owner."""

    def completed(self, call: Call[Message], frame: Buffer) -> bytes | None:
        """Return the owner's response with the parts kept here, or None if these are no longer here."""

    def to_owner(
        self, key: int, version: int, request: bytes, response: memoryview
    ) -> bytes | memoryview | Promise[bytes]:
        """Return the response for the owner of a group, or a promise of it. Raises ProxyError."""

    def forget(self, chunks: Iterable[int]) -> None:
        """Drop kept parts that the owner no longer refers to, by number."""


class CarriedRequests(Protocol):
    """Requests of one feature that other proxies may send to this one."""

    @property
    def feature(self) -> str:
        """Name on links. Part of the protocol between proxies."""

    @property
    def handlers(self) -> Mapping[int, FramedHandler]:
        """Handlers at the owner, by API key. They return None if this proxy does not own the groups."""

    def knows(self, group_id: str) -> bool:
        """Return True if this proxy sends all requests for the group to its owner (fleet/README.md rule 14)."""

    def edge(self) -> EdgeOfLink: ...

    def link_ended(self, number: int) -> None:
        """Drop everything that was read over this link."""

    def links_changed(self) -> None:
        """Called when the table of owners or a link has changed."""


class HoldsGroups(Protocol):
    """Groups that every other proxy must know."""

    @property
    def groups(self) -> AbstractSet[str]: ...

    def holdings(self) -> Holdings:
        """Return these groups for lists of groups."""


class NothingKept:
    """Edge that forwards requests and responses unchanged. See EdgeOfLink."""

    def prepared(self, call: Call[Message]) -> Prepared:
        return Prepared(call.message, -inf)

    def completed(self, call: Call[Message], frame: Any) -> bytes:  # noqa: ARG002 - as edges are called
        return bytes(frame)

    def to_owner(self, key: int, version: int, request: bytes, response: memoryview) -> memoryview:  # noqa: ARG002 - as edges are called
        return response

    def forget(self, chunks: Iterable[int]) -> None: ...


class NoGroups:
    """Empty HoldsGroups: this proxy has no groups that others must know."""

    groups: AbstractSet[str] = frozenset()

    def holdings(self) -> Holdings:
        return Holdings((), ())


class CarriedFeatures:
    """All features whose requests the links of this proxy carry."""

    def __init__(self) -> None:
        self.held: HoldsGroups = NoGroups()
        """Groups that other proxies are notified of."""
        self._features: dict[str, CarriedRequests] = {}
        self._commands: dict[str, Command] = {}

    def add(self, feature: CarriedRequests, held: HoldsGroups | None = None, command: Command | None = None) -> None:
        """Call this before the first link is made."""
        self._features[feature.feature] = feature
        self.held = held or self.held
        if command is not None:
            self._commands[feature.feature] = command

    def command(self, feature: str, words: Sequence[str]) -> CommandResult:
        command = self._commands.get(feature)
        if command is None:
            return CommandResult(HTTPStatus.NOT_FOUND, {"reason": f"{feature} has no commands at this proxy"})
        return command(words)

    def handler(self, feature: str, key: int) -> FramedHandler | None:
        served = self._features.get(feature)
        return None if served is None else served.handlers.get(key)

    def knows(self, feature: str, group_id: str) -> bool:
        """Return True if a feature served here knows the group."""
        served = self._features.get(feature)
        return served is not None and served.knows(group_id)

    def edges(self) -> dict[str, EdgeOfLink]:
        return {name: each.edge() for name, each in self._features.items()}

    def link_ended(self, number: int) -> None:
        for each in self._features.values():
            each.link_ended(number)

    def links_changed(self) -> None:
        for each in self._features.values():
            each.links_changed()
