"""Changes of workers in the group of proxies: a member waits for one that retires, and removes those that ended."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from math import inf

import trio

from kafka_share_proxy.durable.group_member import LeavingMember
from kafka_share_proxy.durable.ownership_rules import OwnerInTable

SUCCESSOR_S = 10.0
"""Seconds after which a member that is to follow another one, and has not, owns its share."""


class Succession:
    """Wait of a new member for partitions of a member that retires (durable/README.md rule 47)."""

    def __init__(self, *, is_successor: bool) -> None:
        self.is_waiting = is_successor
        self._until = inf
        """trio.current_time() of SUCCESSOR_S after the first table."""

    def ends_with_table(self, *, has_partitions: bool, has_fewer_members: bool) -> bool:
        """Return True if the wait ends because a member has retired, or has left without."""
        self._until = min(self._until, trio.current_time() + SUCCESSOR_S)
        return self._ends(has_partitions or has_fewer_members)

    def ends_by_time(self) -> bool:
        """Return True if the wait ends because no member retires."""
        return self._ends(trio.current_time() >= self._until)

    def _ends(self, is_over: bool) -> bool:
        if not (self.is_waiting and is_over):
            return False
        self.is_waiting = False
        return True


class EndedMembers:
    """Members whose process has ended and that are still in the group (durable/README.md rule 51)."""

    def __init__(self) -> None:
        self._in_table: dict[str, LeavingMember] = {}
        """Members in the last table, by the address that other proxies dial."""
        self._ended: dict[str, LeavingMember] = {}
        """Members to remove, by the address that proxies dialled."""

    @property
    def peers(self) -> AbstractSet[str]:
        """Addresses of these members."""
        return self._ended.keys()

    def on_table(self, other_owners: Mapping[str, OwnerInTable]) -> None:
        """Learn the identities of other members. `other_owners`: by member id."""
        self._in_table = {
            owner.peer: LeavingMember(member_id, owner.instance) for member_id, owner in other_owners.items()
        }

    def add(self, peer: str) -> None:
        """Note that the process of a member has ended, if the last table has the member."""
        if peer in self._in_table:
            self._ended[peer] = self._in_table[peer]

    def to_remove(self) -> dict[str, LeavingMember]:
        return dict(self._ended)

    def removed(self, members: Mapping[str, LeavingMember]) -> None:
        """Forget members that the coordinator has removed. One that has joined again has another id, and stays."""
        self._ended = {peer: each for peer, each in self._ended.items() if members.get(peer) != each}
