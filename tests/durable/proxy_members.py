"""Members of the group of proxies at a coordinator in memory."""

from __future__ import annotations

from collections.abc import Iterable

import trio
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.durable.ownership import OwnershipEvents
from kafka_share_proxy.durable.ownership_group import Membership
from kafka_share_proxy.durable.ownership_rules import GROUP, PARTITIONS
from kafka_share_proxy.wire.errors import ProxyError

from tests.support.target_brokers import TargetBrokers

SESSION_S = 6.0
ALL = frozenset(range(PARTITIONS))


class Member:
    """Member of one proxy, and the events it received."""

    def __init__(
        self,
        brokers: TargetBrokers,
        address: str,
        nursery: trio.Nursery,
        *,
        fleet: bool,
        is_successor: bool = False,
        name: str = "",
    ) -> None:
        self.notes: list[str] = []
        self.refused: list[tuple[str, ProxyError | None]] = []
        peer = f"{address}:9" if fleet else ""
        client = ClusterClient([brokers.address(3)], brokers.settings)
        self.membership = Membership(
            client, self._note, address, SESSION_S, trio.current_time,
            name=name, peer=peer, serves=["share groups", "commits"], is_successor=is_successor,
        )  # fmt: skip
        self.gives_up = True
        """True if unassigned partitions are stopped immediately."""
        self.other_members: list[Member] = []
        """Members that are notified of its rejoins, as over links."""
        self._events = OwnershipEvents(
            changed=self._changed,
            rejoins=lambda: [other.membership.expect_change() for other in self.other_members],
            refused=lambda reason, error: self.refused.append((reason, error)),
        )
        self._held: set[int] = set()
        self.scope = trio.CancelScope()
        nursery.start_soon(self._run)

    def _note(self, event: str, /, **_: object) -> None:
        self.notes.append(event)

    async def _run(self) -> None:
        with self.scope:
            await self.membership.run(self._events)

    async def kill(self) -> None:
        """End it as kill -9 does: the group keeps it until its session timeout."""
        self.membership._leave = trio.lowlevel.checkpoint  # type: ignore[method-assign]  # it sends no LeaveGroup
        self.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()

    def _changed(self) -> None:
        lost = self._held - self.membership.assigned
        self._held |= self.membership.assigned
        if lost and self.gives_up:
            self.stop(lost)

    def stop(self, numbers: Iterable[int]) -> None:
        self._held.difference_update(numbers)
        self.membership.stopped(numbers)


def members(brokers: TargetBrokers) -> int:
    group = brokers.target.groups.get(GROUP)
    assert isinstance(group, ClassicGroup)
    return len(group.members)
