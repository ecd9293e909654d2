"""The other proxies of a fleet, as handlers see them (fleet/README.md): the owners of groups that are not owned here.

A request is forwarded over the link to the owner (`Peer.serve`), and the usual handler runs there with a remote client
connection (`owner.FarConnection`). The owner receives only the batch headers of a Fetch, and its response refers to the
bytes, which the edge inserts (`fleet.edge`, `reading.far_records`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ProxyError


class PeerLost(ProxyError):
    """The link ended, or too many requests wait for it. The outcome of the request is unknown."""


class HeldGroup(NamedTuple):
    """Share group as it appears in a list of groups."""

    group_id: str
    state: str


class Holdings(NamedTuple):
    """Groups of an owner, for lists of groups."""

    groups: Sequence[HeldGroup]
    with_settings: Sequence[str]
    """Ids of groups that have settings, with or without members."""


class CommandResult(NamedTuple):
    """Result of a command of an operator."""

    status: int
    """HTTP status."""
    body: Mapping[str, Any]


Command = Callable[[Sequence[str]], CommandResult]
"""Function that begins a command of a feature and returns the first result."""


class Peer(Protocol):
    """Another proxy of the fleet."""

    def serve(self, call: Call[Message], feature: str) -> Promise[bytes | None]:
        """Return its response, as a whole frame. None if it is not the owner. Fails with PeerLost."""

    def take_client(self, call: Call[Any]) -> Promise[None] | None:
        """Move the client of a request there. None if it stays. The promise is settled only if it is refused there."""

    def give_up(self, response: Promise[bytes | None]) -> None:
        """Cancel the request of this response, for which no client waits any longer."""

    def holdings(self) -> Promise[Holdings]:
        """Return the share groups that it owns. Fails with PeerLost."""

    def knows(self, feature: str, group_id: str) -> Promise[bool]:
        """True if it sends all requests about this group to the owner. Fails with PeerLost."""

    def command(self, feature: str, words: Sequence[str]) -> Promise[CommandResult]:
        """Begin a command of an operator there. Fails with PeerLost."""


class Fleet(Protocol):
    """All other proxies of the fleet."""

    @property
    def groups(self) -> Mapping[str, None]:
        """Share groups of other proxies, by id. Always the same mapping, which follows their reports."""

    @property
    def members(self) -> Mapping[str, Peer | None]:
        """Other proxies by address. None: there is no link to it now."""

    def owner(self, partition: int) -> Peer | None:
        """Return the owner of a partition of state. None if it is unknown, or cannot be reached now."""

    def owners(self, partitions: Iterable[int]) -> list[Peer] | None:
        """Return the owners of partitions, or None if one of them cannot be reached now."""


class HeldAnywhere:
    """Ids of share groups, here or elsewhere."""

    def __init__(self, own_groups: Mapping[str, Any], fleet: Fleet | None) -> None:
        self._own_groups, self._fleet = own_groups, fleet

    @property
    def by_id(self) -> tuple[Mapping[str, Any], ...]:
        return (self._own_groups,) if self._fleet is None else (self._own_groups, self._fleet.groups)

    def __len__(self) -> int:
        return len(self._own_groups) + (0 if self._fleet is None else len(self._fleet.groups))

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._own_groups or (self._fleet is not None and group_id in self._fleet.groups)
