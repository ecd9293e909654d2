"""Who owns state, and for how long a proxy may believe that it is the one (durable/README.md rules 20-25).

Theory of operation. What is owned is a number from 0 to PARTITIONS: partition n of the topic of every state belongs to
the owner of number n, so that all that is kept about one group of clients, in whichever state, is at one proxy.

Proxies are members of one classic group. Its leader writes a table of owners, which everybody gets. A member that does
not hear from the group must stop by itself before the group can have given its partitions away: `Lease` says until
when, by a clock that goes on while the machine sleeps, and counted from when a request was *sent* that the group
answered.

Either one proxy owns everything (`assign`), or all share it (`spread`). Then a partition moves between live members in
two steps: as long as its owner names it among what it owns, the table gives it to that one or to nobody; the owner
stops, joins anew without it, and the table of that generation gives it to its next owner. The two ways have protocol
names of their own, so that the group refuses a proxy that goes the other way than those who are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, TypeVar

from proxy.wire import messages, registry
from proxy.wire.errors import ErrorCode, RemoteProtocolError
from proxy.wire.messages import Message

PARTITIONS = 50
"""Numbers that are spread. Part of the protocol: the member that makes the table gives away so many."""
GROUP = "__proxy_owners"
"""Begins as everything that is hidden from clients does."""
PROTOCOL_TYPE = "proxy"
PROTOCOL, FLEET_PROTOCOL = "share-state", "share-state-fleet"
"""One owner of everything; everything spread over all members."""
VERSIONS = range(2)
FLEET_VERSION = 1
"""From here on addresses for the proxies among themselves."""
_INT16 = 2

M = TypeVar("M", bound=Message)


@dataclass(slots=True)
class Lease:
    """Until when nobody else can have become the owner. All times are seconds of a clock that counts sleep."""

    session_s: float
    """The group gives a silent member up after this."""
    rebalance_s: float
    """The group goes on without a member that does not rejoin after this."""
    margin_s: float
    """For clocks that go at different speed, and for an answer on its way."""
    ends: float = field(default=-inf, init=False)
    """When it ends unless something is heard before."""
    _renewed: float = -inf
    _rebalancing_since: float = inf

    def heard(self, code: ErrorCode, sent: float) -> None:
        """A heartbeat sent then was answered: 0 and 27 mean that we are a member, everything else that we are not."""
        if code == ErrorCode.NONE:
            self._renewed = max(self._renewed, sent)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._renewed = max(self._renewed, sent)
            self._rebalancing_since = min(self._rebalancing_since, sent)
        else:
            self._renewed = -inf
        self._reckon()

    def joined(self, sent: float) -> None:
        """A new generation began with us; the last request of ours on the way to it was sent then."""
        self._renewed, self._rebalancing_since = sent, inf
        self._reckon()

    def end(self) -> None:
        """We are no member any more."""
        self._renewed = -inf
        self._reckon()

    def is_valid(self, now: float) -> bool:
        """Whether we may still answer as the owner."""
        return now < self.ends

    @property
    def is_rebalancing(self) -> bool:
        """Whether the group waits for us to join its next generation."""
        return self._rebalancing_since < inf

    def _reckon(self) -> None:
        """Anew, after something was heard: it is looked at with every request."""
        session = self._renewed + self.session_s - self.margin_s
        self.ends = min(session, self._rebalancing_since + self.rebalance_s - self.margin_s)


class ProxyMember(NamedTuple):
    """What a proxy said of itself."""

    address: str
    owned: tuple[int, ...] = ()
    instance: str = ""
    """Its name in the group; empty for a member without one."""
    peer: str = ""
    """Where other proxies reach it; empty where it owns alone."""


class OwnerInTable(NamedTuple):
    """A line of the table."""

    address: str
    partitions: tuple[int, ...]
    instance: str = ""
    peer: str = ""


def assign(members: Mapping[str, ProxyMember], partitions: Iterable[int]) -> dict[str, OwnerInTable]:
    """The table for one owner of everything: who owns something keeps it, else the first by member id.

    Of several who say that they own something the first by id is believed; the fence decides in the end.
    """
    everything = tuple(partitions)
    order = sorted(members)
    chosen = next((member_id for member_id in order if members[member_id].owned), order[0] if order else "")
    return {
        member_id: OwnerInTable(each.address, everything if member_id == chosen else (), each.instance)
        for member_id, each in sorted(members.items())
    }


def spread(members: Mapping[str, ProxyMember], partitions: Iterable[int]) -> dict[str, OwnerInTable]:
    """The table for a fleet: as even as can be, and as little moves as that takes.

    What a member owns beyond its share is nobody's in this table: it is given away once its owner has stopped. Of
    several who say that they own a partition the first by id is believed; the fence decides in the end.
    """
    order = sorted(members)
    owners: dict[int, str] = {}
    for member_id in order:
        for partition in members[member_id].owned:
            owners.setdefault(partition, member_id)
    everything = sorted(set(partitions))
    held = {m: [p for p in everything if owners.get(p) == m] for m in order}
    quota = _quotas(held, len(everything))
    kept = {member_id: owned[: quota[member_id]] for member_id, owned in held.items()}
    for partition in (p for p in everything if p not in owners or owners[p] not in members):
        neediest = max(order, key=lambda m: (quota[m] - len(kept[m]), m), default="")
        if neediest and len(kept[neediest]) < quota[neediest]:
            kept[neediest].append(partition)
    return {
        member_id: OwnerInTable(each.address, tuple(sorted(kept[member_id])), each.instance, each.peer)
        for member_id, each in sorted(members.items())
    }


def _quotas(held: Mapping[str, list[int]], count: int) -> dict[str, int]:
    """How many each member is to have; one more for those who have most already, so that little moves."""
    if not held:
        return {}
    share, more = divmod(count, len(held))
    favoured = sorted(held, key=lambda member_id: (-len(held[member_id]), member_id))[:more]
    return {member_id: share + (member_id in favoured) for member_id in held}


def encode_member(member: ProxyMember) -> bytes:
    """The metadata of a JoinGroup."""
    message = messages.ProxyMemberMetadata(
        address=member.address, instance=member.instance, owned_partitions=list(member.owned), peer=member.peer
    )
    return _encode(message, FLEET_VERSION if member.peer else 0)


def decode_member(data: bytes) -> ProxyMember:
    """Read a member's metadata. Raises RemoteProtocolError, also for a version that is not known here."""
    message = _decode(messages.ProxyMemberMetadata, data)
    return ProxyMember(message.address, tuple(message.owned_partitions), message.instance, message.peer)


def encode_table(table: Mapping[str, OwnerInTable]) -> bytes:
    """The assignment of a SyncGroup."""
    version = FLEET_VERSION if any(owner.peer for owner in table.values()) else 0
    owners = [
        messages.ProxyAssignment.Owner(
            member_id=member_id,
            address=owner.address,
            instance=owner.instance,
            partitions=list(owner.partitions),
            peer=owner.peer,
        )
        for member_id, owner in sorted(table.items())
    ]
    return _encode(messages.ProxyAssignment(owners=owners), version)


def decode_table(data: bytes) -> dict[str, OwnerInTable]:
    """Read the table. Raises RemoteProtocolError, also for a version that is not known here."""
    message = _decode(messages.ProxyAssignment, data)
    return {
        owner.member_id: OwnerInTable(owner.address, tuple(owner.partitions), owner.instance, owner.peer)
        for owner in message.owners
    }


def is_mine(member_id: str, owner: OwnerInTable, my_id: str, my_instance: str | None) -> bool:
    """Whether a line of the table is about us: a static member that came back has another id than the table says."""
    return member_id == my_id or bool(my_instance and owner.instance == my_instance)


def _encode(message: Message, version: int) -> bytes:
    body = registry.codec_of(type(message), version).encode(message)
    return version.to_bytes(_INT16, "big") + body


def _decode(message: type[M], data: bytes) -> M:
    version = int.from_bytes(data[:_INT16], "big", signed=True)
    if version not in VERSIONS or len(data) < _INT16:
        raise RemoteProtocolError(f"{message.__name__} of version {version} is not known here")
    return registry.codec_of(message, version).decode(data, _INT16)
