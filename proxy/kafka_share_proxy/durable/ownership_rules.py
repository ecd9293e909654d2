"""Ownership of state: the table of owners, and the lease of each owner (durable/README.md rules 20 to 25 and 30)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, TypeVar

from kafka_share_proxy.wire.codec import numbered
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode

PARTITIONS = 50
"""Number of slices of ownership. Part of the protocol between proxies."""
GROUP = "__proxy_owners"
PROTOCOL_TYPE = "proxy"
PROTOCOL, FLEET_PROTOCOL = "share-state", "share-state-fleet"
"""Protocol names: one owner of everything; everything spread over all members."""
VERSIONS = range(2)
FLEET_VERSION = 1
"""First version with the members' addresses."""

M = TypeVar("M", bound=Message)


@dataclass(slots=True)
class Lease:
    """Time until which no other proxy can have become the owner, by a clock that counts sleep."""

    session_s: float
    rebalance_s: float
    margin_s: float
    """Safety margin in seconds for clock drift and responses in flight."""
    ends: float = field(default=-inf, init=False)
    _renewed: float = -inf
    _rebalancing_since: float = inf

    def on_heartbeat(self, code: ErrorCode, sent: float) -> None:
        """Process a code: 0 and 27 confirm the membership, any other ends it."""
        if code == ErrorCode.NONE:
            self._renewed = max(self._renewed, sent)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._renewed = max(self._renewed, sent)
            self._rebalancing_since = min(self._rebalancing_since, sent)
        else:
            self._renewed = -inf
        self._update_end()

    def joined(self, sent: float) -> None:
        """Begin a generation. `sent`: when the last request of the join was sent."""
        self._renewed, self._rebalancing_since = sent, inf
        self._update_end()

    def end(self) -> None:
        self._renewed = -inf
        self._update_end()

    def is_valid(self, now: float) -> bool:
        return now < self.ends

    @property
    def is_rebalancing(self) -> bool:
        return self._rebalancing_since < inf

    def _update_end(self) -> None:
        """Compute `ends` after a change, because every request reads it."""
        session = self._renewed + self.session_s - self.margin_s
        self.ends = min(session, self._rebalancing_since + self.rebalance_s - self.margin_s)


class ProxyMember(NamedTuple):
    """Metadata of a member in its JoinGroup request."""

    address: str
    owned: tuple[int, ...] = ()
    instance: str = ""
    """Name of the static member."""
    peer: str = ""
    """Empty if one proxy owns everything."""
    is_retiring: bool = False
    """True if it will end, and others should own everything."""
    is_successor: bool = False
    """True if it follows a member that will retire. It owns nothing before."""


class OwnerInTable(NamedTuple):
    """Line of the table of owners, about one member."""

    address: str
    partitions: tuple[int, ...]
    instance: str = ""
    peer: str = ""


def assign(members: Mapping[str, ProxyMember], partitions: Iterable[int]) -> dict[str, OwnerInTable]:
    """Return the table for one owner of everything: the first member that owns something, else the first."""
    everything = tuple(partitions)
    order = sorted(members)
    chosen = next((member_id for member_id in order if members[member_id].owned), order[0] if order else "")
    return {
        member_id: OwnerInTable(each.address, everything if member_id == chosen else (), each.instance)
        for member_id, each in sorted(members.items())
    }


def spread(members: Mapping[str, ProxyMember], partitions: Iterable[int]) -> dict[str, OwnerInTable]:
    """Return an even table for a fleet, with as few moves as possible.

    A partition beyond its owner's share has no owner in this table. If several members claim one, the first by id wins.
    The fence decides in the end.
    """
    order = sorted(members)
    owners: dict[int, str] = {}
    for member_id in order:
        for partition in members[member_id].owned:
            owners.setdefault(partition, member_id)
    everything = sorted(set(partitions))
    held: dict[str, list[int]] = {member_id: [] for member_id in order}
    for partition in everything:
        if partition in owners:
            held[owners[partition]].append(partition)
    candidates = {member_id: held[member_id] for member_id in _candidates(members)}
    quota = dict.fromkeys(order, 0) | _quotas(candidates, len(everything))
    shares = {member_id: owned[: quota[member_id]] for member_id, owned in held.items()}
    for partition in everything:
        if partition in owners:
            continue
        neediest = max(order, key=lambda each: (quota[each] - len(shares[each]), each), default="")
        if neediest and len(shares[neediest]) < quota[neediest]:
            shares[neediest].append(partition)
    return {
        member_id: OwnerInTable(each.address, tuple(sorted(shares[member_id])), each.instance, each.peer)
        for member_id, each in sorted(members.items())
    }


def _candidates(members: Mapping[str, ProxyMember]) -> list[str]:
    """Return the members that should own partitions (durable/README.md rule 47)."""
    staying = sorted(member_id for member_id, each in members.items() if not each.is_retiring)
    if len(staying) < len(members):
        return staying or sorted(members)
    present = [member_id for member_id in staying if not members[member_id].is_successor]
    return present or staying


def _quotas(held: Mapping[str, list[int]], count: int) -> dict[str, int]:
    """Give members with most partitions the extra ones, to limit moves."""
    if not held:
        return {}
    share, more = divmod(count, len(held))
    favoured = sorted(held, key=lambda member_id: (-len(held[member_id]), member_id))[:more]
    return {member_id: share + (member_id in favoured) for member_id in held}


def encode_member(member: ProxyMember) -> bytes:
    message = messages.ProxyMemberMetadata(
        address=member.address,
        instance=member.instance,
        owned_partitions=list(member.owned),
        peer=member.peer,
        is_retiring=member.is_retiring,
        is_successor=member.is_successor,
    )
    return numbered.encode(message, FLEET_VERSION if member.peer else 0)


def decode_member(data: bytes) -> ProxyMember:
    """Decode the metadata of a member. Raises RemoteProtocolError, also for an unknown version."""
    message = numbered.decode(messages.ProxyMemberMetadata, data, VERSIONS)
    return ProxyMember(
        message.address,
        tuple(message.owned_partitions),
        message.instance,
        message.peer,
        message.is_retiring,
        message.is_successor,
    )


def encode_table(table: Mapping[str, OwnerInTable]) -> bytes:
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
    return numbered.encode(messages.ProxyAssignment(owners=owners), version)


def decode_table(data: bytes) -> dict[str, OwnerInTable]:
    """Decode the table of owners by member id. Raises RemoteProtocolError, also for an unknown version."""
    message = numbered.decode(messages.ProxyAssignment, data, VERSIONS)
    return {
        owner.member_id: OwnerInTable(owner.address, tuple(owner.partitions), owner.instance, owner.peer)
        for owner in message.owners
    }


def is_mine(member_id: str, owner: OwnerInTable, my_id: str, my_instance: str | None) -> bool:
    """Compare ids. A static member that rejoined has another id than the table."""
    return member_id == my_id or bool(my_instance and owner.instance == my_instance)
