"""The other proxies of a fleet, as handlers see them (fleet/README.md): the owners of groups that are not owned here.

How it works: the proxy that receives a client's request is the *edge* of that client. If another proxy is the *owner*
of the group's state partition, the request is forwarded to it over the link between them (`Peer.serve`), and the usual
handler runs there with a remote client connection (`owner.FarConnection`). Its requests to the broker are sent by
the edge on the client's own upstream connection, so that the client's rights, quotas and leader apply. Records stay at
the edge: the owner receives only the batch headers of a Fetch, and its response refers to the bytes, which the edge
inserts (`fleet.edge`, `reading.far_records`).

A handler at the owner runs only while the owner's own gate is open. The end of a link ends all connections over it,
with their sessions, locks and reservations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ProxyError


class PeerLost(ProxyError):
    """The link to the owner ended, or too many requests wait for it. The outcome of the request is unknown."""


class HeldGroup(NamedTuple):
    """Share group as it appears in a list of groups."""

    group_id: str
    state: str


class Holdings(NamedTuple):
    """Groups of an owner."""

    groups: Sequence[HeldGroup]
    with_settings: Sequence[str]
    """Ids of groups with settings of their own."""


class Peer(Protocol):
    """Another proxy of the fleet."""

    def serve(self, call: Call[Message], feature: str) -> Promise[bytes | None]:
        """Return its response to the request, as a whole frame. None if it is not the owner. Fails with PeerLost."""

    def give_up(self, response: Promise[bytes | None]) -> None:
        """Cancel a request of `serve`. No effect after the response."""

    def holdings(self) -> Promise[Holdings]: ...

    def knows(self, feature: str, group_id: str) -> Promise[bool]:
        """Return True if it sends all requests of a feature about this group to the owner. Fails with PeerLost."""


class Fleet(Protocol):
    """All other proxies of the fleet."""

    @property
    def groups(self) -> Mapping[str, None]:
        """Share groups in the last notifications of other proxies: always the same dict."""

    @property
    def members(self) -> Mapping[str, Peer | None]:
        """Address -> other proxy. None: there is no link to it now."""

    def owner(self, partition: int) -> Peer | None: ...

    def owners(self, partitions: Iterable[int]) -> list[Peer] | None:
        """Return all owners of these partitions. None if one of them cannot be reached now."""


class HeldAnywhere:
    """Ids of share groups, here or elsewhere."""

    def __init__(self, here: Mapping[str, Any], fleet: Fleet | None) -> None:
        self._here, self._fleet = here, fleet

    @property
    def by_id(self) -> tuple[Mapping[str, Any], ...]:
        """Groups by group id, always the same dicts."""
        return (self._here,) if self._fleet is None else (self._here, self._fleet.groups)

    def __len__(self) -> int:
        return len(self._here) + (0 if self._fleet is None else len(self._fleet.groups))

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._here or (self._fleet is not None and group_id in self._fleet.groups)
