"""The other proxies of a fleet, as handlers see them (fleet/README.md): who owns the groups that are not owned here.

Theory of operation. A client's request may come to any proxy. The one it came to is the *edge* of that client; the
state partition of the group has one *owner*. Where edge and owner are two, the request is handed to the owner over the
link between them (`Peer.serve`), and the same handler as always runs there, with the client's connection far away
(`peer_owner.FarConnection`): what it asks the broker is asked by the edge on the client's own upstream connection, so
that the client's rights, quotas and leader are those that count. Records stay at the edge: of a Fetch the owner gets
the batch headers and the answer it makes refers to the bytes, which the edge puts in (`peer_edge`, `peer_records`).
So there is one set of handlers, one way to take a decision, and no state outside the owner.

A handler at the owner runs only behind the owner's own gate. A link that ends, ends all connections that came over it,
as their own end would: sessions, locks, reservations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from proxy.forwarding.interfaces import Call
from proxy.loop.promise import Promise
from proxy.wire.errors import ProxyError
from proxy.wire.messages import Message


class PeerLost(ProxyError):
    """The link to the owner ended, or too much waits for it: what became of the request is unknown."""


class HeldGroup(NamedTuple):
    """A share group as a list of groups shows it."""

    group_id: str
    state: str


class Holdings(NamedTuple):
    """What an owner holds."""

    groups: Sequence[HeldGroup]
    with_settings: Sequence[str]
    """Ids that have settings of their own."""


class Peer(Protocol):
    """Another proxy of the fleet."""

    def serve(self, call: Call[Message], feature: str) -> Promise[bytes | None]:
        """Its answer to the request about groups of a feature, as a whole frame; None when it is not the owner.

        Fails with PeerLost.
        """

    def give_up(self, answer: Promise[bytes | None]) -> None:
        """Nobody waits for this answer of `serve` any more; harmless when it is there."""

    def holdings(self) -> Promise[Holdings]:
        """What it holds. Fails with PeerLost."""

    def knows(self, feature: str, group_id: str) -> Promise[bool]:
        """Whether it sends all requests of a feature about this group to the owner. Fails with PeerLost."""


class Fleet(Protocol):
    """All other proxies of the fleet."""

    @property
    def groups(self) -> Mapping[str, None]:
        """Ids of the share groups that others were last heard to hold: a dict, always the same one."""

    @property
    def members(self) -> Mapping[str, Peer | None]:
        """Where it is reached -> every other proxy; None: there is no link to it now."""

    def owner(self, partition: int) -> Peer | None:
        """Who owns a state partition, if that is another proxy and there is a link to it."""

    def owners(self, partitions: Iterable[int]) -> list[Peer] | None:
        """Everybody who owns one of these; None when somebody cannot be asked now."""


class HeldAnywhere:
    """The ids of share groups, here or elsewhere: what tells requests for share groups from others."""

    def __init__(self, here: Mapping[str, Any], fleet: Fleet | None) -> None:
        """`here`: those held by this proxy, as they are now."""
        self._here, self._fleet = here, fleet

    @property
    def by_id(self) -> tuple[Mapping[str, Any], ...]:
        """The same as dicts by group id, always the same ones."""
        return (self._here,) if self._fleet is None else (self._here, self._fleet.groups)

    def __len__(self) -> int:
        return len(self._here) + (0 if self._fleet is None else len(self._fleet.groups))

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._here or (self._fleet is not None and group_id in self._fleet.groups)
