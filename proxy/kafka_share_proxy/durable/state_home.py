"""All states on this proxy: the partitions that it owns of each, and the links to the owners of the others.

Rules: durable/README.md 18, 25, 30 and 31.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import trio

from kafka_share_proxy.brokers.channels import BrokerChannels
from kafka_share_proxy.durable.described_state import DescribedState, HeldState
from kafka_share_proxy.durable.gate import StateGate
from kafka_share_proxy.durable.hosted_state import HostedState
from kafka_share_proxy.durable.ownership import Ownership, OwnershipEvents, lacks_identity
from kafka_share_proxy.durable.ownership_rules import PARTITIONS
from kafka_share_proxy.durable.state_host import BrokerAccess, StateHost
from kafka_share_proxy.fleet import links as fleet
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.values import Address

ALL = range(PARTITIONS)
AGAIN_S = 1.0
"""Delay in seconds before lost ownership is sought again: two proxies may compete for it."""
DRAIN_S = 0.5
"""Seconds to wait for appends in flight when a partition moves."""
DRAIN_CHECK_S = 0.005
HAND_OVER_CHECK_S = 0.02
LOADING_FIELD = "state_partitions_loading"
"""Field of /readyz while this proxy loads state that it owns."""
LINKED_FIELD = "linked_proxies"
"""Field of /readyz with the names of the proxies that this one has links to, if it is one of several."""
ANNOUNCED_MAX = 500
"""Number of groups of other proxies up to which their partitions are taken over before all others."""


class StateHome:
    """Owner of the assigned numbers in every state, active while `run` is."""

    def __init__(
        self,
        owner: Ownership,
        access: BrokerAccess,
        reactor: Reactor,
        name: str,
        *,
        links: fleet.FleetLinks | None = None,
    ) -> None:
        """`name`: name of this proxy in the logs of states.

        `links`: connections to other proxies, which own the other numbers. None: one proxy owns everything.
        """
        self.states: list[HostedState] = []
        self.links = links
        self._owner = owner
        self._channels = BrokerChannels(
            reactor, access.settings, access.notes, on_changed=self._check_journals, on_unreachable=self._on_unreachable
        )
        self._host = StateHost(
            access=access,
            reactor=reactor,
            name=name,
            channels=self._channels,
            lease_s=owner.lease_s,
            on_lost=self._on_lost,
        )
        self._changed = trio.Event()
        self._active_numbers: set[int] = set()
        """Assigned numbers that have not been given up."""
        self._lost: set[int] = set()
        """Numbers to be stopped, which another proxy has taken over."""
        self._is_retiring = False

    def host(self, state: DescribedState[Any], held: HeldState, partition_of: Callable[[str], int]) -> HostedState:
        """Add a state, with its gate and its journal, before `run`.

        `held`: its records in memory. `partition_of`: returns the partition of a group, by group id.
        """
        gate = StateGate(state.partitions, partition_of, self._owner.is_valid)
        hosted = HostedState(state, held, gate, self._host)
        self.states.append(hosted)
        return hosted

    @property
    def off(self) -> str:
        """Return what the proxy lacks to serve some state."""
        return "; ".join(dict.fromkeys(hosted.off for hosted in self.states if hosted.off))

    @property
    def served(self) -> set[int]:
        """Numbers whose partitions are served in every state."""
        return {
            number
            for number in self._active_numbers
            if all(number in hosted.served for hosted in self.states if number < hosted.state.partitions)
        }

    @property
    def appends(self) -> int:
        """Number of Produce requests to the topics of states."""
        return sum(hosted.journal.appends for hosted in self.states)

    def why_not(self, topic: str) -> str:
        """Return why requests for the state of this topic must wait. Empty while it is served, or if it is off."""
        hosted = self.hosted(topic)
        if hosted is None or hosted.off:
            return ""
        if not hosted.trouble and not self._owner.is_member:
            return "the group of proxies has not responded for a while"
        if self.links is not None and not hosted.trouble and self.links.missing:
            return f"no link to the proxies at {', '.join(self.links.missing)}"
        return hosted.trouble

    def missing(self, topic: str) -> str:
        """Return what the proxy lacks to serve the state of this topic. Empty if it lacks nothing."""
        hosted = self.hosted(topic)
        return "" if hosted is None else hosted.off

    def hosted(self, topic: str) -> HostedState | None:
        return next((hosted for hosted in self.states if hosted.state.topic == topic), None)

    @property
    def has_successors(self) -> bool:
        """True if proxies that do not end with this one can own everything."""
        return self.links is not None and self.links.has_far

    def state(self) -> dict[str, object]:
        """Return fields of /readyz."""
        fields: dict[str, object] = {"state_partitions": len(self.served)}
        if loading := sum(len(hosted.owned - hosted.served) for hosted in self.states):
            fields[LOADING_FIELD] = loading
        if risks := [text for hosted in self.states for text in hosted.guard.risks.values()]:
            fields["risks"] = risks
        return fields if self.links is None else fields | {LINKED_FIELD: self.links.linked}

    def listen(self, address: Address | None) -> None:
        """Accept other proxies, at an address or only on this machine. Raises OSError."""
        if self.links is None:
            return
        if address is not None:
            self.links.listen(address)
        self.links.listen_locally()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._channels.run)
            events = OwnershipEvents(
                changed=self._check_soon,
                rejoins=self._announce_rejoin,
                renewed=self._on_renewed,
                refused=self._on_refused,
            )
            nursery.start_soon(self._owner.run, events)
            if self.links is not None:
                nursery.start_soon(self.links.run)
            for hosted in self.states:
                nursery.start_soon(hosted.run)
                nursery.start_soon(hosted.prepare)
            try:
                await self._follow_assignment(nursery)
            finally:
                self._close_gates()
                self._channels.close()

    def member_ended(self, peer: str) -> bool:
        """See Ownership.member_ended."""
        return self._owner.member_ended(peer)

    async def hand_over(self) -> None:
        """Let others own everything. Return once they do, and requests that arrive here are sent to them."""
        self._owner.retire()
        while self._active_numbers or not self._owner.all_elsewhere:  # noqa: ASYNC110 - changed by other members
            await trio.sleep(HAND_OVER_CHECK_S)

    async def retire(self) -> None:
        """Wait for appends in flight. Call it before `run` is cancelled."""
        self._is_retiring = True
        for hosted in self.states:
            hosted.is_closing = True
        await self._drain(set().union(*(hosted.served for hosted in self.states)))
        self._close_gates()

    def _close_gates(self) -> None:
        for hosted in self.states:
            hosted.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the proxy stops")

    def _check_journals(self) -> None:
        for hosted in self.states:
            hosted.journal.check_soon()

    def _on_unreachable(self, node_id: int) -> None:
        for hosted in self.states:
            hosted.journal.unreachable(node_id)

    # Ownership

    def _check_soon(self) -> None:
        self._changed.set()
        if self.links is not None:
            self.links.check_soon()

    async def _follow_assignment(self, nursery: trio.Nursery) -> None:
        while True:
            self._changed = trio.Event()
            assigned = self._owner.assigned
            lost, self._lost = self._lost, set()
            unassigned = self._active_numbers - assigned
            if unassigned - lost and self._owner.is_valid():
                await self._drain(unassigned - lost)
            await self._give_up(unassigned | (lost & self._active_numbers))
            self._owner.stopped(unassigned)
            if lost:
                await trio.sleep(AGAIN_S)
            self._follow(self._owner.assigned, nursery)
            if not self._lost:
                await self._changed.wait()

    def _follow(self, assigned: frozenset[int], nursery: trio.Nursery) -> None:
        added = assigned - self._active_numbers
        is_sharing = self.links is not None and self._owner.is_member
        for hosted in self.states:
            if is_sharing:
                hosted.close_doors(set(ALL) - assigned, _owned_elsewhere(hosted))
            if added and not self._is_retiring:
                if hosted.state.is_of_share_groups:
                    hosted.gate.requested |= added & set(map(hosted.gate.partition_of, self._announced_groups))
                hosted.begin(added, nursery, has_clients=self._owner.has_others)
            if is_sharing and hosted.partitions_of(assigned) <= hosted.served and not hosted.guard.unsafe:
                hosted.trouble = ""
        if not self._is_retiring:
            self._active_numbers |= added

    @property
    def _announced_groups(self) -> Collection[str]:
        """Share groups that other proxies have or just had. Of many, every partition has some."""
        groups = () if self.links is None else self.links.recent_groups
        return groups if len(groups) <= ANNOUNCED_MAX else ()

    async def _drain(self, numbers: Collection[int]) -> None:
        for hosted in self.states:
            hosted.close_doors(hosted.served.intersection(numbers), "the group moves to another proxy")
        with trio.move_on_after(DRAIN_S):
            while not all(hosted.is_idle(numbers) for hosted in self.states):  # noqa: ASYNC110 - changed by the loop
                await trio.sleep(DRAIN_CHECK_S)
            await trio.lowlevel.checkpoint()  # results of appends in this loop iteration are reported at its end

    async def _give_up(self, numbers: Collection[int]) -> None:
        if not numbers:
            return
        self._active_numbers.difference_update(numbers)
        for hosted in self.states:
            await hosted.give_up(numbers, _owned_elsewhere(hosted))

    # Events of the owner and the journals

    def _announce_rejoin(self) -> None:
        if self.links is not None:
            self.links.announce_rejoin()

    def _on_renewed(self) -> None:
        for hosted in self.states:
            hosted.gate.wake()

    def _on_refused(self, reason: str, error: ProxyError | None = None) -> None:
        for hosted in self.states:
            if error is not None and lacks_identity(error):
                hosted.report_trouble(error)
            elif not hosted.served:
                standby = reason if error is None else ""
                hosted.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason, standby=standby)

    def _on_lost(self, partition: int | None) -> None:
        """Stop serving a partition that another proxy took over, or all partitions after an internal error (None)."""
        lost = set(ALL) if self.links is None or partition is None else {partition}
        for hosted in self.states:
            reason = f"{hosted.state.name} was taken over by another proxy"
            hosted.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason, hosted.partitions_of(lost))
        self._lost |= lost
        self._check_soon()


def _owned_elsewhere(hosted: HostedState) -> str:
    return f"{hosted.state.name} is owned by another proxy"
