"""Hand-overs and take-backs of this process, by group."""

from __future__ import annotations

from kafka_share_proxy.loop.promise import on_its_own
from kafka_share_proxy.sharegroups.group_moves import KEPT_MAX, Move, some
from kafka_share_proxy.sharegroups.native_group import MoveRefused
from kafka_share_proxy.sharegroups.placement import ShareRules
from kafka_share_proxy.sharegroups.services import ShareServices

IDENTITY = "the proxy has no identity of its own at the brokers"


class Moves:
    """Moves of groups that are in progress or ended."""

    def __init__(self, services: ShareServices, rules: ShareRules) -> None:
        self._services, self._rules = services, rules
        self._by_group: dict[str, Move] = {}

    def latest(self, group_id: str) -> Move | None:
        return self._by_group.get(group_id)

    def hand_over(self, group_id: str, *, wait_s: float, force: bool) -> Move:
        """Begin a hand-over to the brokers, or return the one in progress. Raises MoveRefused."""
        from kafka_share_proxy.sharegroups.hand_over import HandOver  # most proxies never move a group

        current = self._in_progress(group_id, HandOver)
        if current is not None:
            return current
        group = self._services.coordinator.group(group_id)
        if group is None:
            raise MoveRefused(f"share group {group_id} is not held here")
        if self._rules.serve(group_id) == "local":
            raise MoveRefused(
                f"share_groups.serve is local for {group_id}, which would create it here again: say auto, and restart"
            )
        self._refuse_anything()
        if not self._services.coordinator.keys_of(group_id):
            raise MoveRefused(f"{group_id} has read nothing yet: delete it instead")
        if group.deleting:
            raise MoveRefused("the group is being deleted")
        return self._begin(group_id, HandOver(self._services, group, wait_s=wait_s, force=force))

    def take_back(self, group_id: str, *, wait_s: float, force: bool) -> Move:
        """Begin a take-back from the brokers, or return the one in progress. Raises MoveRefused."""
        from kafka_share_proxy.sharegroups.take_back import TakeBack  # most proxies never move a group

        current = self._in_progress(group_id, TakeBack)
        if current is not None:
            return current
        if self._services.coordinator.group(group_id) is not None:
            raise MoveRefused(f"share group {group_id} is held here already")
        if self._rules.serve(group_id) == "upstream":
            raise MoveRefused(
                f"share_groups.serve is upstream for {group_id}, which would refuse its members: say auto, and restart"
            )
        self._refuse_anything()
        if self._services.writes.transactions is None:
            raise MoveRefused("share_groups.state is memory: the state would be lost when the proxy ends")
        return self._begin(group_id, TakeBack(self._services, group_id, wait_s=wait_s, force=force))

    def _in_progress(self, group_id: str, kind: type[Move]) -> Move | None:
        current = self._by_group.get(group_id)
        if current is None or current.ended:
            return None
        if not isinstance(current, kind):
            raise MoveRefused(f"{group_id} is being moved in the other direction; wait for its end")
        return current

    def _refuse_anything(self) -> None:
        """Raise MoveRefused if no group can be moved."""
        fleet = self._services.fleet
        missing = [] if fleet is None else sorted(address for address, peer in fleet.members.items() if peer is None)
        if missing:
            raise MoveRefused(f"the fleet is not whole: no link to {some(missing)}; try again when it is")
        if self._services.own is None:
            raise MoveRefused(IDENTITY)
        if not self._rules.native:
            raise MoveRefused(
                self._rules.lacking or "it is not known yet whether the brokers serve share groups; try again soon"
            )

    def _begin(self, group_id: str, move: Move) -> Move:
        ended = [name for name, each in self._by_group.items() if each.ended]
        for name in ended[: max(len(self._by_group) - KEPT_MAX, 0)]:
            del self._by_group[name]
        self._by_group[group_id] = move
        on_its_own(move.run())
        return move
